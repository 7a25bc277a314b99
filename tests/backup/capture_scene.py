"""A live etcd with writers, its backups, and what comes of restoring them."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from rootcellar.backup.capture.capture import CaptureOptions, capture
from rootcellar.backup.capture.full import FullOptions
from rootcellar.errors import EtcdUnavailableError
from rootcellar.etcd import operations as ops
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from tests.backup.plans import restore_members
from tests.stores.places import s3_store

WRITER = "tests/1"


class Scene:
    """One source etcd, a client of it, and a store that its captures go to."""

    def __init__(self, etcd, line, member, client, store):
        self.etcd = etcd
        self.line = line
        self.member = member
        self.client = client
        self.store = store

    def write(self, count=1, key=b"k", value=b"v"):
        """So many revisions, on ten keys in turn; the last one."""
        for number in range(count):
            header = self.client.put(b"%s%d" % (key, number % 10), value + b"%d" % number)
        return header.revision

    def full(self, **options):
        """The record of a full that was taken now."""
        return self.capture(full=True, how=FullOptions(**options)).full.record

    def capture(self, *, full=False, how=None, store=None, client=None, **options):
        return capture(
            client or self.client,
            store or self.store,
            full=full,
            writer=WRITER,
            options=CaptureOptions(how or FullOptions(), **options),
        )

    def wait_connected(self):
        """Wait until the client has noticed that a member is back."""
        while True:
            try:
                return self.client.header()
            except EtcdUnavailableError:
                assert self.member.running
                threading.Event().wait(0.02)

    def restored(self, revision=None, *, keep_history=True, **wish):
        """A started etcd of the same line on what the store restores to."""
        member = self.etcd.make(self.line)
        restore_members([member], self.store, revision, keep_history=keep_history, **wish)
        member.start()
        return member

    def must_equal(self, restored, *revisions):
        """HashKV at these revisions is the source's."""
        for revision in revisions:
            ours, theirs = self.member.hash_kv(revision), restored.hash_kv(revision)
            assert theirs == ours, f"at revision {revision}"


@contextmanager
def a_scene(etcd, line, store, **options):
    """A started member and its scene."""
    member = etcd.start(line, **options)
    with EtcdClient([member.endpoint]) as client:
        yield Scene(etcd, line, member, client, store)


class Writers(AbstractContextManager["Writers"]):
    """Threads that put, delete, delete ranges, use leases and transactions until told to stop.

    Large values come seldom and end: else a database would be the larger the slower the machine is that
    copies it meanwhile, and on a slow one no copy would end.
    """

    def __init__(self, endpoints, seed=1, threads=2):
        self._endpoints = endpoints
        self._enough = threading.Event()
        self._large = threading.Semaphore(20)
        self.written = 0
        self._threads = [
            threading.Thread(target=self._write, args=(random.Random(seed + n), b"w%d/" % n), daemon=True)
            for n in range(threads)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._enough.set()
        for thread in self._threads:
            thread.join()

    def more(self, count):
        """Wait until they have written that many more revisions."""
        target = self.written + count
        while self.written < target:
            assert any(thread.is_alive() for thread in self._threads), "the writers died"
            self._enough.wait(0.005)

    def _write(self, chance, prefix):
        with EtcdClient(self._endpoints, timeout=5) as client:
            lease = client.lease_grant(3600)
            while not self._enough.is_set():
                try:
                    self._write_one(client, chance, prefix, lease)
                    self.written += 1
                except EtcdUnavailableError:
                    pass

    def _write_one(self, client, chance, prefix, lease):
        key = prefix + b"%02d" % chance.randrange(40)
        kind = chance.random()
        if kind < 0.7:
            client.put(key, chance.randbytes(chance.randrange(400)), lease=chance.choice([0, 0, lease]))
        elif kind < 0.8:
            client.delete(key)
        elif kind < 0.85:
            client.delete(prefix + b"1", prefix + b"2")
        elif kind < 0.99:
            other = prefix + b"%02d" % chance.randrange(40, 60)
            client.txn([ops.put(key, b"in a transaction"), ops.delete(other), ops.put(prefix + b"z", key)])
        elif self._large.acquire(blocking=False):
            client.put(key, os.urandom(1_400_000))
        else:
            client.put(key, b"small")


class Between:
    """A client whose calls go through, but for those a test replaces; narrowed to a member too."""

    def __init__(self, client, **replaced):
        self._client = client
        self._replaced = replaced

    def __getattr__(self, name):
        if name in self._replaced:
            return lambda *args, **kwargs: self._replaced[name](self._client, *args, **kwargs)
        return getattr(self._client, name)

    def member(self, endpoint):
        return Between(self._client.member(endpoint), **self._replaced)


def deaths(count, within):
    """Where a process that writes `count` things dies: around each of them, and within one.

    What it left before one is what it left after the one before that, so these are long tests.
    """
    again = [pytest.param(at, "before", marks=pytest.mark.long) for at in range(2, count + 1)]
    return [(1, "before"), *((at, "after") for at in range(1, count + 1)), (within, "within"), *again]


class Dying:
    """A store in a process that is killed before, within or after the `at`-th thing it writes or removes."""

    def __init__(self, store, at, when):
        self._store = store
        self._left = at
        self._when = when

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, key, chunks, *, condition=None):
        due = self._due()
        if due == "within":
            chunks = self._until_death(chunks)
        info = self._store.put(key, chunks, condition=condition)
        self._die_if(due == "after")
        return info

    def delete(self, key, **options):
        due = self._due()
        self._store.delete(key, **options)
        self._die_if(due == "after")

    def _due(self):
        self._left -= 1
        if self._left:
            return None
        self._die_if(self._when == "before")
        return self._when

    def _until_death(self, chunks):
        chunks = iter(chunks)
        yield next(chunks)
        self._die_if(True)

    @staticmethod
    def _die_if(due):
        if due:
            os.kill(os.getpid(), signal.SIGKILL)


def store_at(place):
    """The store in a directory, or in (bucket, prefix)."""
    return FileStore(place) if isinstance(place, Path) else s3_store(*place)


def capture_and_die(endpoint, place, full, at, when):
    """One capture in a process of its own; see Dying."""
    with EtcdClient([endpoint]) as client:
        capture(client, Dying(store_at(place), at, when), full=full, writer="doomed/1")
