"""`restore` as a person uses it."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
import zipfile

import pytest

from rootcellar.bolt.file import BoltFile
from rootcellar.errors import (
    ChainError,
    DamagedObjectError,
    NotFoundError,
    NothingToRestoreError,
    QuotaError,
    TargetError,
    UsageError,
)
from rootcellar.mvcc.hashkv import hash_kv


def hashed(directory, revision):
    with BoltFile(directory / "member" / "snap" / "db") as file:
        return hash_kv(file, revision).hash


def test_the_newest_revision_is_restored_unless_told(ok, ebr, expected, tmp_path):
    result = ok("restore", ebr(), "--data-dir", tmp_path / "data", "--bump-revision", 0)
    recorded = expected()["hashkv"]["294"]["hash"]
    assert hashed(tmp_path / "data", 294) == recorded
    assert f"HashKV      {recorded} at revision 294" in result.out
    assert "restored to revision 294 in" in result.out
    assert f"etcd --name default --data-dir {tmp_path / 'data'}" in result.out


@pytest.mark.parametrize("revision", ["127", "147", "231", "273"])
def test_any_revision_is_restored_to_what_it_was(ok, ebr, expected, tmp_path, revision):
    shown = ok(
        "restore", ebr(), "--data-dir", tmp_path / "data", "--to-revision", revision, "--output", "json"
    ).json
    assert shown["kind"] == "RestoreResult"
    assert shown["hashKv"] == expected()["hashkv"][revision]["hash"]
    assert shown["revision"] == int(revision)


def test_a_time_is_restored_to_the_last_revision_received_by_then(ok, ebr, tmp_path):
    shown = ok("restore", ebr(), "--data-dir", tmp_path / "a", "--to-revision", 200, "--output", "json").json
    again = ok(
        "restore", ebr("gzip-3.4"), "--data-dir", tmp_path / "b", "--to-time", "1m ago", "--output", "json"
    ).json
    assert again["revision"] == 285
    store = tmp_path / "ebr-gzip-3.5"
    by_time = ok(
        "restore", store, "--data-dir", tmp_path / "c", "--to-time", shown["lastTime"], "--output", "json"
    ).json
    assert by_time["revision"] >= 200
    assert by_time["lastTime"] == shown["lastTime"]


def test_a_dry_run_shows_the_plan_and_touches_nothing(ok, ebr, tmp_path):
    target = tmp_path / "data"
    result = ok("restore", ebr(), "--data-dir", target, "--to-revision", 200, "--dry-run")
    assert "to          revision 200" in result.out
    assert "state of    2026-11-21T08:45" in result.out
    assert "full        v2/Full-00000000-00000127-1795250723.gz" in result.out
    assert not target.exists()


def test_the_plan_in_json_is_the_plan_itself(ok, ebr):
    plan = ok("restore", ebr(), "--dry-run", "--output", "json").json
    assert (plan["apiVersion"], plan["kind"]) == ("rootcellar.dev/v1", "RestorePlan")
    assert len(plan["deltas"]) == 4


def test_hosts_that_carry_out_one_plan_build_one_cluster(ok, ebr, tmp_path):
    members = [f"--member={name}=http://10.0.0.{number}:2380" for number, name in enumerate("abc", 1)]
    plan = tmp_path / "plan.json"
    ok("restore", ebr(), "--dry-run", "-o", plan, *members)
    shown = {}
    for name in "abc":
        words = ("restore", "--plan", plan, "--name", name, "--data-dir", tmp_path / name)
        shown[name] = ok(*words, "--output", "json").json
        assert "nothing to do: this very restore is there already" in ok(*words).out
    assert len({each["clusterId"] for each in shown.values()}) == 1
    assert len({each["hashKv"] for each in shown.values()}) == 1
    side_by_side = ok("restore", "--plan", plan, "--data-dir", tmp_path / "all", "--output", "json").json
    assert sorted(side_by_side["members"]) == ["a", "b", "c"]
    assert side_by_side["hashKv"] == shown["a"]["hashKv"]


def test_a_plan_of_another_store_finds_nothing_to_read(cli, ok, ebr, tmp_path):
    plan = tmp_path / "plan.json"
    ok("restore", ebr(), "--dry-run", "-o", plan)
    result = cli("restore", ebr("gzip-3.4"), "--plan", plan, "--data-dir", tmp_path / "x")
    assert result.code == NotFoundError.exit_code
    assert "Full-00000000-00000127-1795250723.gz: no such object" in result.err


def test_members_on_one_host_lie_side_by_side(ok, ebr, tmp_path):
    words = ("restore", ebr(), "--member", "a=http://h1:2380", "--member", "b=http://h2:2380")
    shown = ok(*words, "--data-dir", tmp_path / "all", "--output", "json").json
    assert shown["members"] == {name: str(tmp_path / "all" / name) for name in "ab"}
    named = ok(
        *words, "--data-dir", f"b={tmp_path / 'x'}", "--data-dir", f"a={tmp_path / 'y'}", "--output", "json"
    ).json
    assert named["members"] == {"b": str(tmp_path / "x"), "a": str(tmp_path / "y")}


def test_a_plan_has_decided_what_it_decides(cli, ok, ebr, tmp_path):
    plan = tmp_path / "plan.json"
    ok("restore", ebr(), "--dry-run", "-o", plan)
    result = cli("restore", "--plan", plan, "--data-dir", tmp_path / "x", "--to-revision", 200)
    assert result.code == UsageError.exit_code
    assert "--to-revision does not go with --plan" in result.err


def test_a_plan_reads_its_objects_from_a_copy_when_told(ok, ebr, tmp_path):
    store, plan = ebr(), tmp_path / "plan.json"
    ok("restore", store, "--dry-run", "-o", plan)
    copy = shutil.move(store, tmp_path / "copy")
    assert ok("restore", copy, "--plan", plan, "--data-dir", tmp_path / "x").code == 0


def test_data_that_is_there_is_replaced_only_when_told_and_kept(cli, ok, ebr, tmp_path):
    store, target = ebr(), tmp_path / "data"
    ok("restore", store, "--data-dir", target, "--to-revision", 200)
    again = ("restore", store, "--data-dir", target, "--to-revision", 210)
    refused = cli(*again)
    assert refused.code == TargetError.exit_code
    assert "--replace" in refused.err
    unasked = cli(*again, "--replace")
    assert unasked.code == UsageError.exit_code
    assert "say --yes if you mean it" in unasked.err
    done = ok(*again, "--replace", "--yes", "--output", "json").json
    (quarantined,) = done["quarantined"]
    assert json.loads((tmp_path / quarantined / "rootcellar.json").read_text())["revision"] == 200


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        (["--to-revision", "9999"], ChainError, "revision 9999 was not captured"),
        (["--to-time", "2020-01-01T00:00:00Z"], NothingToRestoreError, "no usable full taken at or before"),
        (["--to-revision", "200", "--to-time", "now"], UsageError, "exclude each other"),
        (["--quota", "1KiB"], QuotaError, "quota"),
        (["--for-etcd", "3.4"], TargetError, "the backup is from etcd 3.5"),
        (["--timeline", "7"], UsageError, "there is no timeline 7"),
        (["--member", "nonsense"], UsageError, "nonsense"),
    ],
)
def test_what_cannot_be_restored_leaves_no_trace(cli, ebr, tmp_path, words, error, told):
    result = cli("restore", ebr(), "--data-dir", tmp_path / "data", *words)
    assert result.code == error.exit_code
    assert told in result.err
    assert "hint:" in result.err
    assert not (tmp_path / "data" / "member").exists()


def test_without_a_data_directory_it_is_asked_for(cli, ebr):
    result = cli("restore", ebr())
    assert result.code == UsageError.exit_code
    assert "--data-dir is needed" in result.err


def test_a_damaged_delta_is_named_with_what_can_be_restored(cli, ok, ebr, tmp_path):
    store = ebr()
    delta = store / "v2" / "Incr-00000212-00000252-1795250731.gz"
    damaged = bytearray(delta.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    delta.write_bytes(damaged)
    result = cli("restore", store, "--data-dir", tmp_path / "data")
    assert result.code == DamagedObjectError.exit_code
    assert delta.name in result.err
    assert "--to-revision 211" in result.err
    ok("restore", store, "--data-dir", tmp_path / "data", "--to-revision", 211)
    excluded = cli("restore", store, "--data-dir", tmp_path / "other", "--exclude", f"v2/{delta.name}")
    assert excluded.code == ChainError.exit_code


def test_a_restore_announces_the_fork_and_a_trial_does_not(ok, ebr, tmp_path):
    store = ebr()
    ok("restore", store, "--data-dir", tmp_path / "a", "--trial")
    assert not (store / "catalogue").exists()
    ok("restore", store, "--data-dir", tmp_path / "b")
    assert len(list((store / "catalogue" / "forks").iterdir())) == 1


def test_kubernetes_keys_are_raised_and_what_to_restart_is_told(ok, ebr, tmp_path):
    result = ok("restore", ebr(), "--data-dir", tmp_path / "data", "--output", "text")
    assert "etcd goes on from revision 1,000,000,294" in result.out
    assert "keep every kube-apiserver stopped" in result.out
    assert "kube-controller-manager" in result.out


def test_quiet_says_only_what_came_of_it(ok, ebr, tmp_path):
    result = ok("restore", ebr(), "--data-dir", tmp_path / "data", "--quiet")
    assert "restore from" not in result.out
    assert "restored to revision 294" in result.out


@pytest.mark.parametrize("wrapping", ["plain", "gzip", "zip"])
def test_a_single_file_of_another_tool_is_restored(ok, ebr, expected, tmp_path, wrapping):
    store = ebr()
    full = store / "v2" / "Full-00000000-00000127-1795250723.gz"
    if wrapping == "gzip":
        path = tmp_path / "snapshot.db.gz"
        shutil.copy(full, path)
    else:
        ok("restore", full, "--data-dir", tmp_path / "first", "--bump-revision", 0)
        path = tmp_path / "etcd.db"
        shutil.copy(tmp_path / "first" / "member" / "snap" / "db", path)
        if wrapping == "zip":
            with zipfile.ZipFile(tmp_path / "k3s.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                archive.write(path, "etcd-snapshot-1")
            path = tmp_path / "k3s.zip"
    shown = ok("restore", path, "--data-dir", tmp_path / "data", "--output", "json").json
    assert shown["hashKv"] == expected()["hashkv"]["127"]["hash"]


@pytest.mark.parametrize("where", ["file", "object"])
def test_the_plan_of_a_single_backup_says_how_it_is_carried_out_on_each_host(ok, ebr, tmp_path, where):
    ok("restore", ebr(), "--data-dir", tmp_path / "first", "--to-revision", 127, "--bump-revision", 0)
    archive, plan = tmp_path / "k3s on a.zip", tmp_path / "plan.json"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(tmp_path / "first" / "member" / "snap" / "db", "etcd-snapshot-1")
    if where == "object":
        (tmp_path / "bucket").mkdir()
        shutil.move(archive, tmp_path / "bucket")
    place = [archive] if where == "file" else [tmp_path / "bucket", "--object", archive.name]
    members = ("--member", "a=http://h1:2380", "--member", "b=http://h2:2380", "--bump-revision", 0)
    planned = ok("restore", *place, *members, "--dry-run", "-o", plan)

    told = next(line for line in planned.err.splitlines() if "to carry it out" in line)
    command = shlex.split(told.partition("rootcellar ")[2].replace(" DIR", f" {tmp_path / 'both'}"))
    shown = ok(*command, "--output", "json").json
    assert sorted(shown["members"]) == ["a", "b"]
    assert hashed(tmp_path / "both" / "a", 127) == hashed(tmp_path / "first", 127)


@pytest.mark.parametrize("verb", [("restore", "--data-dir", "x"), ("verify",)], ids=["restore", "verify"])
def test_the_file_under_a_running_etcd_is_not_read(cli, ok, ebr, tmp_path, verb):
    ok("restore", ebr(), "--data-dir", tmp_path / "data")
    database = tmp_path / "data" / "member" / "snap" / "db"
    with database.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as etcd does
        result = cli(verb[0], database, *verb[1:])
    assert result.code == TargetError.exit_code
    assert f"an etcd is running on {database}" in result.err
    assert ok(verb[0], database, *verb[1:]).code == 0


def test_a_plan_is_shown_and_written_again_without_its_store_being_named(ok, ebr, tmp_path):
    plan, again = tmp_path / "plan.json", tmp_path / "again.json"
    ok("restore", ebr(), "--dry-run", "-o", plan)
    shown = ok("restore", "--plan", plan, "--dry-run", "-o", again)
    assert f"rootcellar restore --plan {again} --data-dir DIR" in shown.err
    assert again.read_bytes() == plan.read_bytes()


def test_a_single_file_knows_no_times(cli, ebr, tmp_path):
    path = ebr() / "v2" / "Full-00000000-00000127-1795250723.gz"
    result = cli("restore", path, "--data-dir", tmp_path / "x", "--to-time", "now")
    assert result.code == UsageError.exit_code
    assert "knows no times" in result.err


def test_an_object_to_do_without_is_named_as_elsewhere_and_never_passed_over(cli, ok, ebr, tmp_path):
    store = ebr()
    full, delta = "Full-00000000-00000127-1795250723.gz", "Incr-00000212-00000252-1795250731.gz"
    for name in (delta, f"v2/{delta}"):
        cut = cli("restore", store, "--data-dir", tmp_path / "x", "--exclude", name)
        assert cut.code == ChainError.exit_code
        assert "211" in cut.err
    unknown = cli("restore", store, "--data-dir", tmp_path / "x", "--exclude", "Incr-00000212")
    assert unknown.code == NotFoundError.exit_code
    assert "Incr-00000212: no such snapshot" in unknown.err
    alone = cli("restore", store / "v2" / full, "--data-dir", tmp_path / "x", "--exclude", full)
    assert alone.code == UsageError.exit_code


def test_a_damaged_single_file_has_no_other_to_turn_to(cli, ebr, tmp_path):
    path = shutil.copy(ebr() / "v2" / "Full-00000000-00000127-1795250723.gz", tmp_path / "alone.gz")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    result = cli("restore", path, "--data-dir", tmp_path / "x")
    assert result.code == DamagedObjectError.exit_code
    assert "--exclude" not in result.err


def test_a_single_file_is_not_compacted_behind_its_end(cli, ok, ebr, tmp_path):
    path = ebr() / "v2" / "Full-00000000-00000127-1795250723.gz"
    result = cli("restore", path, "--data-dir", tmp_path / "x", "--compact-to", 99999)
    assert result.code == TargetError.exit_code
    assert "it cannot be compacted at revision 99999: it ends at 127" in result.err
    assert not (tmp_path / "x" / "member").exists()
    both = cli("restore", path, "--data-dir", tmp_path / "x", "--compact-to", 120, "--keep-history")
    assert both.code == UsageError.exit_code
    assert ok("restore", path, "--data-dir", tmp_path / "x", "--compact-to", 120).code == 0


def test_a_configured_quota_is_heard(cli, ebr, tmp_path, config):
    config("etcd: {quota: 1KiB}\n")
    result = cli("restore", ebr(), "--data-dir", tmp_path / "data")
    assert result.code == QuotaError.exit_code
