"""What we are held against: restore by replay, as etcd-backup-restore does it, with etcd's own tools.

`python -m benchmarks.yardstick STORE ETCD_DIRECTORY SCRATCH`: the newest full restored by etcdutl, then each
delta revision as one blocking transaction into a real etcd that does not fsync.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import groupby
from pathlib import Path

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import codecs, delta
from rootcellar.etcd import operations
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess, find_etcd


def replay(store: Path, etcd: Path, scratch: Path) -> int:
    """Restore; the revision reached."""
    found = (names.parse(f"v2/{path.name}") for path in (store / "v2").iterdir())
    objects = sorted((name for name in found if name is not None), key=lambda name: name.order)
    fulls = [name for name in objects if name.kind is names.Kind.FULL]
    snapshot, data = scratch / "snapshot.db", scratch / "data"
    with (store / fulls[-1].key).open("rb") as source, snapshot.open("wb") as target:
        for chunk in codecs.decompress(iter(lambda: source.read(1 << 20), b""), fulls[-1].suffix):
            target.write(chunk)
    subprocess.run(
        [etcd / "etcdutl", "snapshot", "restore", snapshot, "--data-dir", data],
        check=True,
        capture_output=True,
    )
    snapshot.unlink()
    flags = ["--unsafe-no-fsync", "--quota-backend-bytes=8589934592", "--log-level=error"]
    with (
        EtcdProcess(find_etcd(etcd / "etcd"), data, flags=flags) as process,
        EtcdClient([process.client_url]) as client,
    ):
        process.wait_ready(client)
        revision = client.header().revision
        for name in objects:
            if name.kind is names.Kind.DELTA and name.last > revision:
                revision = _apply(client, store / name.key, name.suffix, revision)
        return client.header().revision


def _apply(client: EtcdClient, path: Path, suffix: str, revision: int) -> int:
    payload = codecs.hash_tail(codecs.decompress([path.read_bytes()], suffix))
    events = [event for part in delta.decode(payload) for event in part]
    for mod_revision, group in groupby(events, key=lambda event: event.mod_revision):
        if mod_revision > revision:
            client.txn(
                [
                    operations.delete(event.key) if event.type else operations.put(event.key, event.value)
                    for event in group
                ]
            )
    return events[-1].mod_revision


if __name__ == "__main__":
    print(replay(*map(Path, sys.argv[1:4])))
