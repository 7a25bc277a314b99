"""etcd-backup-restore's command line: read as it reads it, carried out by our engine."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rootcellar.agent.validation import Mode, validate
from rootcellar.bolt.file import BoltFile
from rootcellar.cli.etcdbrctl import living
from rootcellar.cli.etcdbrctl.reading import read
from rootcellar.cli.etcdbrctl.sections import (
    SUBCOMMANDS,
    Compression,
    Connection,
    Http,
    Restoration,
    Snapshots,
    Snapstore,
    Upkeep,
)
from rootcellar.errors import ConfigError, UsageError
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.stores.file import FileStore
from testbed.ports import free_port
from tests.agent.door_scene import ask, break_pages, eventually, lived, write

SECOND = 10**9

# reading


def test_the_defaults_are_the_references():
    server = read(["server"])
    connection, shots = server.get(Connection), server.get(Snapshots)
    assert connection.endpoints == ("http://127.0.0.1:2379",)
    assert (connection.timeout, connection.snapshot_timeout) == (30 * SECOND, 900 * SECOND)
    assert (shots.schedule, shots.delta_period, shots.delta_memory) == ("0 */1 * * *", 20 * SECOND, 10 << 20)
    assert (shots.gc_policy, shots.max_backups) == ("Exponential", 7)
    assert server.get(Http).port == 8080
    assert server.get(Compression).enabled is True
    assert server.get(Restoration).quota == 8 << 30
    assert server.get(Upkeep).defragmentation == "0 0 */3 * *"
    assert server.warnings == ()


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_every_default_is_a_value_of_its_flag_and_no_flag_is_there_twice(command):
    read([command])
    names = [flag.name for placed in SUBCOMMANDS[command] for _, flag in placed.flags()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "words",
    [
        ["--data-dir=/d", "--max-backups=3"],
        ["--data-dir", "/d", "--max-backups", "3"],
        ["-d", "/d", "-m", "3"],
        ["-d/d", "-m=3"],
    ],
)
def test_a_value_comes_behind_an_equals_sign_or_a_blank(words):
    server = read(["server", *words])
    assert (server.get(Restoration).data_dir, server.get(Snapshots).max_backups) == ("/d", 3)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--compress-snapshots"], True),
        (["--compress-snapshots=false"], False),
        (["--compress-snapshots=F"], False),
        (["--compress-snapshots", "0"], False),
        (["--compress-snapshots", "--max-backups=1"], True),
    ],
)
def test_booleans_are_gos(words, meant):
    assert read(["server", *words]).get(Compression).enabled is meant


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("5m0s", 300), ("12h0m0s", 43200), ("1.5h", 5400), ("300ms", 0.3), ("0", 0), ("0s", 0), ("1h30m", 5400)],
)
def test_durations_are_gos(written, seconds):
    shots = read(["server", f"--delta-snapshot-period={written}"]).get(Snapshots)
    assert shots.delta_period == seconds * SECOND


@pytest.mark.parametrize("written", ["4d", "5", "", "m", "1h 30m"])
def test_what_go_takes_for_no_duration_is_refused(written):
    with pytest.raises(UsageError, match="not a duration as Go writes it"):
        read(["server", f"--delta-snapshot-period={written}"])


def test_lists_are_parted_by_commas_and_may_come_again():
    endpoints = (
        read(["server", "--endpoints=http://a:1,http://b:1", "-e", "http://c:1"]).get(Connection).endpoints
    )
    assert endpoints == ("http://a:1", "http://b:1", "http://c:1")


def test_the_last_word_counts_where_a_flag_comes_again():
    assert read(["server", "-m=1", "-m=2"]).get(Snapshots).max_backups == 2


@pytest.mark.parametrize(("limit", "size"), [("1", 1), ("0", 10 << 20), ("-1", 10 << 20)])
def test_no_limit_of_a_delta_s_size_is_the_usual_one_and_not_a_delta_for_each_revision(limit, size):
    told = read(["snapshot", "--storage-provider=Local", f"--delta-snapshot-memory-limit={limit}"])
    assert living.settings(told, {}).options.limits.size == size


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ([], "needs a command", "server"),
        (["servr"], "no command 'servr'", "did you mean server?"),
        (["server", "--max-backup=1"], "no flag --max-backup", "did you mean --max-backups?"),
        (["restore", "--schedule=x"], "no flag --schedule", "--help"),
        (["server", "-x"], "no flag -x", "--help"),
        (["server", "word"], "'word' is one word too many", "flags alone"),
        (["server", "--max-backups"], "--max-backups needs a value", "default"),
        (["server", "--max-backups=many"], "not a whole number", "default"),
        (["server", "--server-port=65536"], "not a port from 0 to 65535", "default"),
        (["server", "--server-port=-1"], "not a port from 0 to 65535", "default"),
        (["server", "--compression-policy=zstd"], "not one of gzip, lzw, zlib", "default"),
        (["server", "--compress-snapshots=yes"], "neither true nor false", "default"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_nearest_that_can(words, message, hint):
    with pytest.raises(UsageError) as caught:
        read(words)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_flag_without_a_meaning_here_is_told_once_it_says_something():
    given = read(["server", "--max-fetchers=9", "--snapstore-temp-directory=/tmp", "--max-txn-ops=10240"])
    assert given.warnings == ("--max-fetchers has no effect here: deltas are fetched ahead of their use",)


DRUID = (
    *("server", "--server-port=8080", "--enable-snapshot-lease-renewal=true"),
    *("--full-snapshot-lease-name=etcd-test-full-snap", "--delta-snapshot-lease-name=etcd-test-delta-snap"),
    *("--storage-provider=S3", "--store-prefix=etcd-test"),
    *("--store-endpoint-override=http://localstack.default:4566", "--delta-snapshot-period=5m0s"),
    *("--garbage-collection-period=12h0m0s", "--delta-snapshot-memory-limit=1073741824"),
    *("--garbage-collection-policy=Exponential", "--compress-snapshots=true", "--compression-policy=gzip"),
    *("--etcd-snapshot-timeout=15m", "--etcd-defrag-timeout=15m", "--auto-compaction-mode=periodic"),
    *("--auto-compaction-retention=30m", "--insecure-transport=true", "--insecure-skip-tls-verify=true"),
    *("--endpoints=http://etcd-test-local:2379", "--service-endpoints=http://etcd-test-client:2379"),
    *("--data-dir=/var/etcd/data/new.etcd", "--use-etcd-wrapper=true", "--etcd-connection-timeout=5m"),
    "--restoration-temp-snapshots-dir=/var/etcd/data/restoration.temp",
    *("--snapstore-temp-directory=/var/etcd/data/temp", "--embedded-etcd-quota-bytes=8589934592"),
    *("--enable-member-lease-renewal=true", "--k8s-heartbeat-duration=10s"),
    *("--etcd-connection-timeout-leader-election=5s", "--reelection-period=5s"),
)
"""What etcd-druid gives a sidecar with a store (sections 2.4 and 2.5 of its inventory)."""


def test_the_command_line_of_etcd_druid_is_read():
    given = read([*DRUID, "--schedule=0 */24 * * *", "--defragmentation-schedule=0 */24 * * *"])
    assert given.get(Snapstore).endpoint == "http://localstack.default:4566"
    assert given.get(Connection).service_endpoints == ("http://etcd-test-client:2379",)
    assert given.get(Upkeep).wrapper is True
    assert given.warnings == ()


CONFIG = """\
etcdConnectionConfig:
  endpoints: ["http://a:2379", "http://b:2379"]
  connectionTimeout: 10s
serverConfig:
  port: 9999
  server-cert: /tls.crt
  server-key: /tls.key
snapshotterConfig:
  schedule: "0 0 * * *"
  deltaSnapshotPeriod: 1m
  maxBackups: 3
snapstoreConfig:
  provider: Local
  container: backups
  maxParallelChunkUploads: 5
compressionConfig:
  enabled: false
restorationConfig:
  restoreDataDir: old.etcd
  initialAdvertisePeerURLs: ["http://x:2380"]
  DATADIRR: typo
defragmentationSchedule: "0 0 * * 1"
"""


def test_a_configuration_file_replaces_all_flags(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    given = read(["server", f"--config-file={path}", "--store-prefix=lost", "--max-backups=9"])
    assert given.get(Connection).endpoints == ("http://a:2379", "http://b:2379")
    assert given.get(Connection).timeout == 10 * SECOND
    assert (given.get(Http).port, given.get(Http).cert) == (9999, "/tls.crt")
    assert (given.get(Snapshots).max_backups, given.get(Snapshots).gc_policy) == (3, "Exponential")
    assert (given.get(Snapstore).container, given.get(Snapstore).prefix) == ("backups", "")
    assert given.get(Compression).enabled is False
    assert given.get(Restoration).data_dir == "old.etcd"
    assert given.get(Upkeep).defragmentation == "0 0 * * 1"
    assert any("--max-backups, --store-prefix are not heard" in each for each in given.warnings)
    assert any("DATADIRR, which is not known (did you mean datadir?)" in each for each in given.warnings)


@pytest.mark.parametrize(
    ("text", "message"),
    [("- a\n", "holds no mapping"), ("a: [", "neither YAML nor JSON"), ("serverConfig: {port: {}}", "port")],
)
def test_a_configuration_file_that_is_none_is_refused(tmp_path, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read(["server", "--config-file", str(path)])


def test_json_is_a_configuration_too(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"snapstoreConfig": {"provider": "S3"}}))
    assert read(["server", "--config-file", str(path)]).get(Snapstore).provider == "S3"


def test_only_the_server_reads_a_file():
    with pytest.raises(UsageError, match="no flag --config-file"):
        read(["restore", "--config-file=x"])


# carried out


@pytest.fixture
def at_home(ebr, monkeypatch):
    """A backup that etcd-backup-restore wrote, where its provider Local looks for it."""
    root = ebr()
    monkeypatch.setenv("HOME", str(root.parent))
    return ("--storage-provider=Local", f"--store-container={root.name}")


def restored(data_dir):
    with BoltFile(data_dir / "member" / "snap" / "db") as file:
        return hash_kv(file).hash


def test_restore_builds_the_newest_state(ok, at_home, expected, tmp_path):
    data_dir = tmp_path / "data"
    shown = ok("etcdbrctl", "restore", *at_home, f"--data-dir={data_dir}").out
    last = expected()["last_revision"]
    assert f"restored to revision {last}" in shown
    assert f"HashKV      {expected()['hashkv'][str(last)]['hash']} at revision {last}" in shown
    assert validate(data_dir, Mode.FULL).valid
    assert "nothing to do" in ok("etcdbrctl", "restore", *at_home, f"--data-dir={data_dir}").out


def test_restore_never_replaces_a_member(cli, at_home, tmp_path):
    (tmp_path / "data" / "member").mkdir(parents=True)
    result = cli("etcdbrctl", "restore", *at_home, "--data-dir", tmp_path / "data")
    assert result.code == 32
    assert "holds an etcd member already" in result.err


def test_restore_of_nothing_is_an_error_and_not_the_success_that_it_is_there(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    result = cli("etcdbrctl", "restore", f"--data-dir={tmp_path}/data")
    assert result.code == 31
    assert not (tmp_path / "data" / "member").exists()


def test_restore_wants_one_set_of_peer_urls(cli, at_home, tmp_path):
    words = ("--name=a", "--initial-cluster=a=http://a:2380", f"--data-dir={tmp_path}/data")
    assert cli("etcdbrctl", "restore", *at_home, *words).code == 12
    fits = (*words, "--initial-advertise-peer-urls=http://a:2380")
    assert cli("etcdbrctl", "restore", *at_home, *fits).code == 0


def test_initialize_restores_a_damaged_member_and_keeps_it(ok, at_home, tmp_path, monkeypatch):
    data_dir = tmp_path / "volume" / "data"
    ok("etcdbrctl", "restore", *at_home, f"--data-dir={data_dir}")
    hashed = restored(data_dir)
    break_pages(data_dir / "member" / "snap" / "db")
    monkeypatch.setenv("POD_NAMESPACE", "shoot--a")
    shown = ok("etcdbrctl", "initialize", *at_home, f"--data-dir={data_dir}", "--validation-mode=full").out
    assert "restore from the store: the database is damaged" in shown
    assert ".rootcellar-quarantine" in shown
    assert restored(data_dir) == hashed
    assert (tmp_path / "volume" / "safe_guard").read_text() == "shoot--a"
    assert "start on the data" in ok("etcdbrctl", "initialize", *at_home, "-d", data_dir).out


def test_compact_folds_and_copy_copies(ok, at_home, tmp_path, ebr):
    root = tmp_path / at_home[1].partition("=")[2]
    shown = ok("etcdbrctl", "compact", *at_home, f"--data-dir={tmp_path}/scratch/compaction.etcd").out
    assert "are now also v2/Full-" in shown
    source = ("--source-storage-provider=Local", f"--source-store-container={root.name}")
    shown = ok("etcdbrctl", "copy", *source, "--storage-provider=Local", "--store-container=elsewhere").out
    assert "objects copied" in shown
    keys = {info.key for info in FileStore(root).list() if info.key.startswith("v2/")}
    assert {info.key for info in FileStore(tmp_path / "elsewhere").list() if info.key[:3] == "v2/"} == keys


def test_the_most_talkative_log_holds_nothing_of_the_backup_and_no_key(
    command, at_home, tmp_path, ebr, bucket_tls, monkeypatch
):
    key = "an encryption key of 32 letters."
    told = {
        "accessKeyID": bucket_tls.access_key,
        "secretAccessKey": bucket_tls.secret_key,
        "endpoint": bucket_tls.endpoint,
        "s3ForcePathStyle": "true",
        "trustedCaCert": bucket_tls.ca.read_text(),
        "sseCustomerKey": key,
    }
    (tmp_path / "s3.json").write_text(json.dumps(told))
    monkeypatch.setenv("AWS_APPLICATION_CREDENTIALS_JSON", str(tmp_path / "s3.json"))
    root = tmp_path / at_home[1].partition("=")[2]
    source = ("--source-storage-provider=Local", f"--source-store-container={root.name}")
    words = (*source, "--storage-provider=S3", f"--store-container={bucket_tls.name}", "--log-level=5")
    done = command("etcdbrctl", "copy", *words)
    assert "objects copied" in done.stdout
    (full,) = root.glob("v2/Full-*")
    assert repr(full.read_bytes()[:12])[2:-1] not in done.stderr.replace("\\\\", "\\")  # as the log quotes it
    assert base64.b64encode(key.encode()).decode() not in done.stderr
    assert key not in done.stderr


def test_only_our_own_parts_tell_more_when_asked_to():
    said = (
        "import logging; from rootcellar.logs import carry_notes, make_log\n"
        "carry_notes(make_log(), logging.DEBUG)\n"
        "for name in ('rootcellar.agent', 'botocore.endpoint', 'urllib3.connectionpool'):\n"
        "    logging.getLogger(name).debug('much'), logging.getLogger(name).info('little')\n"
    )
    lines = subprocess.run([sys.executable, "-c", said], capture_output=True, check=True, text=True).stderr
    told = re.findall(r"by=(\S+) text=(\S+)", lines)
    assert told == [
        ("agent", "much"),
        ("agent", "little"),
        ("botocore.endpoint", "little"),
        ("urllib3.connectionpool", "little"),
    ]


def test_a_second_site_without_stores_is_refused_rather_than_forgotten(cli):
    result = cli("etcdbrctl", "server", "--secondary-backup-sync-enabled")
    assert result.code == 11
    assert "needs two stores" in result.err


def test_the_version_and_the_help_answer(ok):
    assert "in the place of etcdbrctl" in ok("etcdbrctl", "-v").out
    assert "server|snapshot|restore" in ok("etcdbrctl").out
    assert "--max-fetchers (default '6'); no effect here" in ok("etcdbrctl", "server", "--help").out


# the server, with a real etcd that the wrapper starts


def test_server_and_wrapper_play_the_whole_protocol(tmp_path, etcd, monkeypatch):  # noqa: PLR0915 - one story
    """An empty volume becomes an etcd that is backed up; a damaged one comes back with all it had."""
    made = etcd.make("3.6")
    port, wrapper_port, client_port, peer_port = (free_port() for _ in range(4))
    data_dir = tmp_path / "volume" / "new.etcd"
    data_dir.parent.mkdir()
    peer = f"http://127.0.0.1:{peer_port}"
    client_url = f"http://127.0.0.1:{client_port}"
    shared = {
        "name": "etcd-config",
        "data-dir": str(data_dir),
        "initial-cluster": f"main-0={peer}",
        "listen-client-urls": client_url,
        "listen-peer-urls": peer,
        "advertise-client-urls": {"main-0": [client_url]},
        "initial-advertise-peer-urls": {"main-0": [peer]},
    }
    (tmp_path / "etcd.conf.yaml").write_text(yaml.safe_dump(shared))
    for name, value in (
        ("HOME", tmp_path),
        ("POD_NAME", "main-0"),
        ("POD_NAMESPACE", "shoot"),
        ("ETCD_CONF", tmp_path / "etcd.conf.yaml"),
        ("XDG_RUNTIME_DIR", tmp_path),
    ):
        monkeypatch.setenv(name, str(value))
    log = (tmp_path / "log").open("ab")
    ours = (sys.executable, "-m", "rootcellar")
    sidecar = [
        *(*ours, "etcdbrctl", "server", f"--server-port={port}", f"--endpoints={client_url}"),
        *("--storage-provider=Local", "--store-container=bucket", "--store-prefix=main"),
        *(f"--data-dir={data_dir}", "--delta-snapshot-period=1s", "--reelection-period=1s"),
        "--etcd-connection-timeout=5s",
    ]
    wrapper = [
        *(*ours, "wrapper", "start-etcd", f"--backup-restore-host-port=127.0.0.1:{port}"),
        *(f"--etcd-client-port={client_port}", f"--etcd-wrapper-port={wrapper_port}"),
        *(f"--exit-code-file={tmp_path}/volume/exit_code", f"--etcd={made.programs.etcd}"),
        "--etcd-server-name=127.0.0.1",
    ]

    def answers(path, code=200):
        try:
            return ask(f"http://127.0.0.1:{port}{path}")[0] == code
        except OSError:
            return False

    def ready():
        try:
            return ask(f"http://127.0.0.1:{wrapper_port}/readyz")[0] == 200
        except OSError:
            return False

    with log, subprocess.Popen(sidecar, stdout=log, stderr=log) as beside:
        try:
            with subprocess.Popen(wrapper, stdout=log, stderr=log) as runs:
                try:
                    eventually(ready)
                    eventually(lambda: answers("/healthz"))
                    with EtcdClient([client_url]) as client:
                        write(client, 5)
                        eventually(lambda: answers("/snapshot/delta"))
                        hashed = client.hash_kv()
                    latest = json.loads(ask(f"http://127.0.0.1:{port}/snapshot/latest")[1])
                    taken = [latest["fullSnapshot"], *(latest["deltaSnapshots"] or ())]
                    assert taken[-1]["lastRevision"] == hashed.revision == 6
                    code, body, _ = ask(f"http://127.0.0.1:{port}/metrics")
                    assert code == 200
                    assert b"etcdbr_" in body
                finally:
                    runs.kill()
            eventually(lambda: not ready())
            eventually(lambda: validate(data_dir, Mode.SANITY).status.value != "FailToOpenBoltDB")
            break_pages(data_dir / "member" / "snap" / "db")
            with subprocess.Popen(wrapper, stdout=log, stderr=log) as runs:
                try:
                    eventually(ready)
                    with EtcdClient([client_url]) as client:
                        assert client.hash_kv(hashed.revision).hash == hashed.hash
                finally:
                    runs.send_signal(signal.SIGTERM)
                    runs.wait(30)
            assert (tmp_path / "volume" / "exit_code").read_text() == "terminated"
        finally:
            beside.terminate()
            try:
                beside.wait(40)
            finally:
                beside.kill()
    assert (data_dir / ".rootcellar-quarantine").is_dir()
    assert Path(tmp_path / "bucket" / "main" / "v2").is_dir()


def test_snapshot_captures_a_running_etcd_until_it_is_told_to_end(etcd, tmp_path, monkeypatch):
    member = lived(etcd, "3.6")
    for name in ("HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    store = FileStore(tmp_path / "bucket")
    command = [
        *(sys.executable, "-m", "rootcellar", "etcdbrctl", "snapshot", f"--endpoints={member.endpoint}"),
        *("--storage-provider=Local", "--store-container=bucket", "--delta-snapshot-period=1s"),
        *("--compression-policy", "zlib"),
    ]

    def reached():
        return max((int(info.key.split("-")[2]) for info in store.list() if info.key[:3] == "v2/"), default=0)

    with (tmp_path / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            eventually(lambda: reached() == 41)
            with EtcdClient([member.endpoint]) as client:
                write(client, 3, b"more")
            eventually(lambda: reached() == 44)
            process.terminate()
            assert process.wait(40) == 0
        finally:
            process.kill()
    assert all(info.key.endswith(".zlib") for info in store.list() if info.key[:3] == "v2/")


def test_initialize_speaks_for_a_member_of_several(etcd, cli, tmp_path, monkeypatch):
    """Its configuration names three, so it asks the cluster, and joins it."""
    first = etcd.start("3.6", "main-0", flags=("--strict-reconfig-check=false",))
    peers = [first.peer_url, *(f"http://127.0.0.1:{free_port()}" for _ in range(2))]
    shared = {
        "initial-cluster": ",".join(f"main-{n}={url}" for n, url in enumerate(peers)),
        "initial-advertise-peer-urls": {f"main-{n}": [url] for n, url in enumerate(peers)},
    }
    (tmp_path / "etcd.conf.yaml").write_text(yaml.safe_dump(shared))
    monkeypatch.setenv("ETCD_CONF", str(tmp_path / "etcd.conf.yaml"))
    monkeypatch.setenv("POD_NAME", "main-1")
    words = (f"--service-endpoints={first.endpoint}", f"--data-dir={tmp_path}/data")
    result = cli("etcdbrctl", "initialize", *words)
    assert (result.code, result.out) == (0, "join the cluster as a learner: main-1 is new to the cluster\n")
    with EtcdClient([first.endpoint]) as client:
        assert [each.peer_urls for each in client.member_list() if each.is_learner] == [(peers[1],)]


ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "as-etcd-backup-restore.md").read_text()
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    named = set(re.findall(r"`(test_\w+(?:\.py)?)`", page))
    assert len(named) > 20
    for name in named:
        if name.endswith(".py"):
            assert name in sources
        else:
            assert any(f"def {name}(" in source for source in sources.values()), name


def test_a_flag_that_asks_for_what_is_done_anyway_is_no_warning():
    """etcd-druid says this wherever clients speak TLS."""
    assert not read(["server", "--insecure-skip-tls-verify=false"]).warnings
    (warning,) = read(["server", "--max-fetchers=7"]).warnings
    assert "--max-fetchers has no effect here" in warning
