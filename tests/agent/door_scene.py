"""Pieces that tests of the start protocol share: etcds that lived, and stores that hold what they wrote."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

from rootcellar.agent.initialization import Home
from rootcellar.agent.serving import serving
from rootcellar.backup.catalogue import names
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.connection import TlsFiles
from testbed.etcd import start_together
from tests.backup.source import Source

TOKEN = "etcd-cluster"


def lived(etcd, line, name="m1", keys=40, **options):
    """A member that has written some keys, and runs."""
    member = etcd.start(line, name, **options)
    with EtcdClient([member.endpoint]) as client:
        write(client, keys)
    return member


def backed_up_member(etcd, store, line="3.6", name="m1"):
    """A stopped member whose last revision is in the store, and its HashKV there."""
    member = lived(etcd, line, name)
    with EtcdClient([member.endpoint]) as client:
        last = captured(client, store)
    hashed = member.hash_kv()
    assert hashed.revision == last
    member.stop()
    return member, hashed


@contextmanager
def half_rolled(etcd, authority):
    """Two members, m1 with plaintext for its clients still and m2 with TLS; and a client with TLS files."""
    members = first, second = etcd.make("3.6", "m1"), etcd.make("3.6", "m2", tls=authority)
    first.initial_cluster = second.initial_cluster = f"{first.initial_cluster},{second.initial_cluster}"
    start_together(members)
    pair = authority.client()
    with EtcdClient([second.endpoint], tls=TlsFiles(authority.ca, pair.certificate, pair.key)) as client:
        eventually(lambda: all(member.client_urls for member in client.member_list()))
        yield client


def stillborn(etcd, line):
    """A member that could not ask its peers whom it joins: its etcd ended, and left a database and no log."""
    member = etcd.make(line, "m2")
    with closed_port() as nobody:
        member.initial_cluster = f"m1=http://127.0.0.1:{nobody},{member.initial_cluster}"
        member.joins = True
        member.start_soon()
        eventually(lambda: not member.running)
    assert (member.data_dir / "member" / "snap" / "db").stat().st_size
    return member


def database(member):
    return member.data_dir / "member" / "snap" / "db"


def contents(directory):
    return {
        str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()
    }


def no_wait(_seconds):
    """Tries follow each other at once: what they wait for is there, or is not in this test."""


def write(client, keys, prefix=b"k"):
    for number in range(keys):
        client.put(prefix + b"%d" % number, b"v" * 100)


def captured(client, store):
    """A full and a delta of a live etcd in a store; the last revision."""
    source = Source(client, store)
    source.full()
    write(client, 10, b"d")
    return source.delta()


def damage(path, at, data=b"\xff" * 64):
    """Overwrite bytes at an offset; negative: from the end."""
    with path.open("r+b") as file:
        file.seek(at, 2 if at < 0 else 0)
        file.write(data)


def break_pages(database):
    """Break every page of the database but the meta pages."""
    size = database.stat().st_size
    for at in range(8192, size, 4096):
        damage(database, at)


def home(member, **more):
    """Where a member of the testbed starts, by its own name and URLs."""
    clusters = {}
    for part in member.initial_cluster.split(","):
        name, url = part.split("=")
        clusters[name] = (url,)
    return Home(
        **{
            "data_dir": member.data_dir,
            "name": member.name,
            "initial_cluster": clusters,
            "token": TOKEN,
            "quota": 2 << 30,
            **more,
        }
    )


@contextmanager
def closed_port():
    """A port of this machine on which nobody listens, kept from others meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class Leases:
    """What leases would say."""

    def __init__(self, names):
        self._names = names

    def registered(self):
        return None if self._names is None else frozenset(self._names)


class PlainSnapshotter:
    """Snapshots taken without a session: what the tests of captures use, behind the protocol of the API."""

    def __init__(self, client, store, *, leader="", healthy=True):
        self._source, self._store = Source(client, store), store
        self.leads_at, self.is_healthy = leader, healthy

    async def full(self, *, final):
        return await asyncio.to_thread(self._take, self._source.full)

    async def delta(self):
        newest = await asyncio.to_thread(self._source.client.header)
        if newest.revision <= self._source.last:
            return None
        return await asyncio.to_thread(self._take, self._source.delta)

    def _take(self, take):
        before = {info.key for info in self._store.list()}
        take()
        (key,) = {info.key for info in self._store.list()} - before
        return names.parse(key)

    async def latest(self):
        taken = [names.parse(info.key) for info in self._store.list()]
        taken.sort(key=lambda name: name.order)
        full = next((name for name in reversed(taken) if name.kind is names.Kind.FULL), None)
        return full, [name for name in taken if full is not None and name.start > full.last]

    def healthy(self):
        return self.is_healthy

    async def leader(self):
        return self.leads_at


@contextmanager
def served(make_routes, port=0, **tls):
    """Serve routes made inside a running loop, in a thread of its own; the base URL."""
    ready, over = threading.Event(), None
    found = {}

    async def run():
        nonlocal over
        over = asyncio.Event()
        found["loop"] = asyncio.get_running_loop()
        async with serving(make_routes(), "127.0.0.1", port, **tls) as bound:
            found["port"] = bound
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(20)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{found['port']}"
    finally:
        found["loop"].call_soon_threadsafe(over.set)
        thread.join()


def ask(url, method="GET", context=None):
    """(code, body, headers) of one request."""
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def eventually(check, seconds=60):
    """What `check` returns once it is true; the condition is polled, and the time is bounded."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s"
        threading.Event().wait(0.05)
