"""A random life of etcd, captured while it goes on, comes back equal: at its end and in the middle of it."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from rootcellar.backup.capture.capture import capture
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.hashkv import HashKV
from rootcellar.stores.file import FileStore
from tests.backup.ebr_rules import check_prefix
from tests.backup.plans import restore_into, restore_members
from tests.mvcc.workload import Workload
from tests.stores.places import s3_store

LINES = ("3.4", "3.5", "3.6", "3.7")
BIG = 1_500_000 - 1000
"""Bytes: a value as large as etcd's own limit on requests allows, with its key."""


@pytest.fixture(params=["file", "s3"])
def store(request, tmp_path):
    if request.param == "file":
        return FileStore(tmp_path / "store")
    return s3_store(request.getfixturevalue("bucket"), "prod/etcd-main")


@dataclass(frozen=True)
class Life:
    """What the source answered while it lived."""

    hashes: list[HashKV]
    leases: dict[int, int]


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("line", LINES)
def test_a_random_life_comes_back(line, seed, store, etcd, tmp_path):
    source = etcd.start(line)
    with EtcdClient([source.endpoint]) as client:
        client.role_add("reader", (b"/a/", b"/a0"))
        client.user_add("somebody", "secret", roles=["reader"])
        life = lived(client, store, seed=seed)
    users = roles_and_users(source)
    source.stop()
    assert check_prefix(store) == []

    for number, said in enumerate(life.hashes):
        restored = restore_into(
            tmp_path / str(number), store, said.revision, compact_to=said.compact_revision
        )
        assert restored.hashkv == said

    started = etcd.make(line)
    final = life.hashes[-1]
    restore_members([started], store, final.revision, compact_to=final.compact_revision)
    started.start()
    with EtcdClient([started.endpoint]) as client:
        answer = client.hash_kv(final.revision)
        assert (answer.hash, answer.compact_revision) == (final.hash, final.compact_revision)
        attached = {lease: ttl for lease in client.leases() if (ttl := client.lease_ttl(lease).granted)}
        assert life.leases.items() <= attached.items()
    assert roles_and_users(started) == users


def lived(client, store, seed):
    """Four rounds of changes, each captured while further ones go on; what etcd said in between."""
    choose = random.Random(seed)
    work = Workload(client, seed, keys=40, value_size=600)
    work.grant()
    work.run(60)
    hashes = []
    for number in range(4):
        with going_on(work):
            capture(client, store, full=number % 3 == 0, writer="tests/1")
        if number == 1:
            work.compact()
            client.put(b"/big", choose.randbytes(BIG))
        if number == 2:
            client.defragment()
        work.run(20)
        capture(client, store, full=False, writer="tests/1")
        hashes += sampled(client, work, choose)
    held = {kv.lease for page in client.pages(b"\0", b"\0") for kv in page.kvs if kv.lease}
    return Life(hashes, {lease: client.lease_ttl(lease).granted for lease in held})


def sampled(client, work, choose):
    """HashKV now, and at some revisions back to the last compaction (at that one etcd may use a cache)."""
    last = client.header().revision
    revisions = {last, *(choose.randint(max(work.compacted + 1, 2), last) for _ in range(2))}
    for revision in sorted(revisions):
        answer = client.hash_kv(revision)
        yield HashKV(answer.hash, revision, answer.compact_revision)


@contextmanager
def going_on(work):
    """Changes without end beside what is done meanwhile."""
    enough = threading.Event()

    def change():
        while not enough.is_set():
            work.change()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def roles_and_users(member):
    """All users with their roles, all roles with their permissions."""
    users = member.etcdctl_json("user", "list")["users"]
    roles = member.etcdctl_json("role", "list")["roles"]
    return (
        {user: member.etcdctl_json("user", "get", user)["roles"] for user in users},
        {role: member.etcdctl_json("role", "get", role)["perm"] for role in roles},
    )


def test_what_was_captured_says_all_that_a_restore_wants_to_know(store, etcd):
    source = etcd.start("3.6")
    with EtcdClient([source.endpoint]) as client:
        lived(client, store, seed=5)
        catalogue = read_catalogue(store)

    assert not catalogue.unrecorded
    assert not catalogue.damaged
    assert not catalogue.strays
    status = source.etcdctl_json("endpoint", "status")[0]["Status"]
    assert catalogue.marker.cluster_id == f"{status['header']['cluster_id']:x}"
    linked = [each.record.previous for each in catalogue.snapshots]
    assert linked[0] is None
    assert all(link is not None for link in linked[1:])
