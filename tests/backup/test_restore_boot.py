"""What is restored, started: each etcd that may serve it says the recorded HashKV, alone and as a cluster."""

from __future__ import annotations

import pytest

from rootcellar.etcd.client import EtcdClient
from testbed.binaries import LINES
from testbed.etcd import start_together
from tests.backup.ebr_data import EBR_NAMES
from tests.backup.plans import restore_members
from tests.backup.source import Source
from tests.mvcc.workload import Workload


def allowed():
    """(fixture, etcd line) for the source's own line and all newer ones."""
    for name in EBR_NAMES:
        for line in LINES:
            if line >= name[-3:]:
                yield pytest.param(name, line, id=f"{name}-under-{line}")


@pytest.mark.parametrize(("ebr_backup", "line"), [*allowed()], indirect=["ebr_backup"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_started_etcd_says_the_recorded_hash(etcd, ebr_backup, line, size):
    last = ebr_backup.expected["last_revision"]
    recorded = ebr_backup.expected["hashkv"][str(last)]
    members = etcd.make_cluster(line, size)

    restore_members(members, ebr_backup.store, compact_to=recorded["compact_revision"], for_etcd=line)
    start_together(members)

    for member in members:
        found = member.hash_kv(last)
        assert (found.hash, found.compact_revision) == (recorded["hash"], recorded["compact_revision"])
    members[-1].etcdctl("put", "after", "restore")
    assert "restore" in members[0].etcdctl("get", "after")


def pairs():
    """(line that wrote, line that serves) for all newer ones."""
    lines = list(LINES)
    return [(source, serving) for source in lines for serving in lines if serving > source]


@pytest.mark.parametrize(("source", "serving"), pairs())
def test_a_newer_etcd_takes_over_what_an_older_one_wrote(etcd, store, source, serving):
    old = etcd.start(source)
    with EtcdClient([old.endpoint]) as client:
        workload = Workload(client, 8)
        workload.run(40)
        captured = Source(client, store)
        captured.full()
        workload.run(40)
        last = captured.delta()
        said = client.hash_kv()
    new = etcd.make(serving)

    restored = restore_members([new], store, for_etcd=serving)
    new.start()

    assert (restored.for_etcd, restored.revision) == (serving, last)
    assert (new.hash_kv().hash, new.hash_kv().revision) == (said.hash, last)
    new.etcdctl("put", "after", "restore")
    new.stop()
    new.start()
    assert "restore" in new.etcdctl("get", "after")
    assert new.hash_kv().revision == last + 1
