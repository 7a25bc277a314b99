"""Pieces that tests of the start protocol share: etcds that lived, and stores that hold what they wrote."""

from __future__ import annotations

import socket
from contextlib import contextmanager

from rootcellar.agent.initialization import Home
from rootcellar.etcd.client import EtcdClient
from tests.backup.source import Source

TOKEN = "etcd-cluster"


def lived(etcd, line, name="m1", keys=40, **options):
    """A member that has written some keys, and runs."""
    member = etcd.start(line, name, **options)
    with EtcdClient([member.endpoint]) as client:
        write(client, keys)
    return member


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
