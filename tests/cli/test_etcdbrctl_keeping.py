"""What `etcdbrctl server` keeps in order by the reference's flags: garbage collection, the second store."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.prune.retention import Exponential, LimitBased
from rootcellar.cli.etcdbrctl.keeping import jobs, mirrors, rules
from rootcellar.cli.etcdbrctl.reading import read
from rootcellar.cli.etcdbrctl.stores import readable
from rootcellar.errors import UsageError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from testbed.ports import free_port
from tests.agent.door_scene import ask, eventually, lived, write

SECOND_SITE = (
    *("--storage-provider=Local", "--store-container=bucket", "--secondary-backup-sync-enabled"),
    *("--secondary-storage-provider=Local", "--secondary-store-container=second"),
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    return {"HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("words", "policy", "deltas"),
    [
        ([], Exponential(), timedelta(0)),
        (["--garbage-collection-policy=LimitBased", "-m=3"], LimitBased(3), timedelta(0)),
        (["--delta-snapshot-retention-period=36h"], Exponential(), timedelta(hours=36)),
    ],
)
def test_the_flags_of_garbage_collection_are_our_rules(words, policy, deltas):
    found = rules(read(["server", *words]))
    assert (found.policy, found.deltas, found.minimum) == (policy, deltas, 1)


def test_a_period_of_a_second_or_less_collects_nothing():
    def names(*words):
        return [job.name for job in jobs(read(["server", *words]), "seed", has_store=True)]

    assert names() == ["defragment", "prune"]
    assert names("--garbage-collection-period=1s") == ["defragment"]


def test_a_limit_that_keeps_nothing_is_refused():
    words = ["server", "--garbage-collection-policy=LimitBased", "--max-backups=0"]
    with pytest.raises(UsageError, match="keeps nothing"):
        rules(read(words))


def test_a_second_site_needs_two_stores(home):
    with pytest.raises(UsageError, match="needs two stores") as caught:
        mirrors(read(["server", "--storage-provider=Local", "--secondary-backup-sync-enabled"]), home)
    assert caught.value.hint == "--secondary-storage-provider is not given"
    (found,) = mirrors(read(["server", *SECOND_SITE]), home)
    assert (found.name, found.every, found.standby) == ("secondary", 3600, None)
    assert mirrors(read(["server", "--storage-provider=Local"]), home) == ()


def test_what_is_restored_before_etcd_starts_comes_from_the_second_store_where_the_first_cannot_be_read(
    home, tmp_path
):
    server = read(["server", *SECOND_SITE])
    assert readable(server, home).url.endswith("/bucket")
    (tmp_path / "bucket").write_text("no directory")
    assert readable(server, home).url.endswith("/second")


def test_the_server_collects_garbage_and_fills_the_second_store(etcd, tmp_path):
    member = lived(etcd, "3.6")
    port = free_port()
    command = [
        *(sys.executable, "-m", "rootcellar", "etcdbrctl", "server", f"--endpoints={member.endpoint}"),
        *(*SECOND_SITE, "--secondary-backup-sync-period=2s", f"--server-port={port}"),
        *("--garbage-collection-period=2s", "--garbage-collection-policy=LimitBased", "--max-backups=2"),
        *("--delta-snapshot-period=1s", "--reelection-period=1s", f"--data-dir={tmp_path}/data"),
    ]
    first, second = FileStore(tmp_path / "bucket"), FileStore(tmp_path / "second")

    def fulls(store):
        return [each.key for each in read_catalogue(store).snapshots if each.is_full]

    def full_is_taken():
        try:
            return ask(f"http://127.0.0.1:{port}/snapshot/full")[0] == 200
        except OSError:
            return False

    with (tmp_path / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            for _ in range(4):
                with EtcdClient([member.endpoint]) as client:
                    write(client, 2)
                eventually(full_is_taken)
            eventually(lambda: len(fulls(first)) == 2)
            eventually(lambda: fulls(second) == fulls(first))
            process.terminate()
            assert process.wait(40) == 0
        finally:
            process.kill()
    assert read_catalogue(first).epoch.number == 1
    assert read_catalogue(second).damaged == ()


def test_the_server_without_a_store_serves_initializes_and_takes_no_snapshot(etcd, tmp_path):
    member = lived(etcd, "3.6")
    port = free_port()
    here = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "rootcellar", "etcdbrctl", "server", f"--endpoints={member.endpoint}"),
        *(f"--server-port={port}", "--reelection-period=1s", f"--data-dir={tmp_path}/data"),
    ]

    def leads():
        try:
            return b"rootcellar_leader 1.0" in ask(f"{here}/metrics")[1]
        except OSError:
            return False

    with (tmp_path / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            eventually(leads)
            assert ask(f"{here}/snapshot/full")[0] == 405
            assert ask(f"{here}/initialization/start?mode=full")[0] == 200
            eventually(lambda: ask(f"{here}/initialization/status")[1] == b"Successful")
            assert b'job_runs_total{job="prune"}' not in ask(f"{here}/metrics")[1]
            process.terminate()
            assert process.wait(40) == 0
        finally:
            process.kill()
    assert not (tmp_path / "data" / "member").exists()  # it starts empty, and etcd itself is elsewhere
