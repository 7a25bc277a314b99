"""`ls`, `show`, `verify`, `check` and holds: what a store is worth, and who says so."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from rootcellar.backup.catalogue import fence
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.ledger import keep_proof
from rootcellar.backup.catalogue.records import Check, Finding, Link, Proof, Result
from rootcellar.errors import ConfigError, DeniedError, NotFoundError, ProofError, UsageError
from rootcellar.stores.file import FileStore
from testbed import binaries

FULL = "Full-00000000-00000127-1795250723.gz"
DELTA = "Incr-00000212-00000252-1795250731.gz"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
OLD = ("--max-age", "5000d", "--proof-age", "5000d")
"""The backups under test are as old as they are."""


def damage(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.fixture
def without_rights(ebr):
    """A store that may not be looked into, by nobody but root: who is root is somebody else meanwhile."""
    store, user = ebr(), os.geteuid()
    store.chmod(0)
    if user == 0:
        os.seteuid(65534)
    yield store
    os.seteuid(user)
    store.chmod(0o700)


def test_a_store_that_may_not_be_looked_into_is_unknown_to_monitoring(cli, without_rights):
    shown = cli("check", without_rights)
    assert shown.code == 3
    assert shown.out.startswith("ROOTCELLAR UNKNOWN - ")
    assert f"{without_rights} cannot be looked into: permission denied" in shown.out


@pytest.mark.parametrize("verb", ["ls", "keys", "verify"])
def test_a_store_that_may_not_be_looked_into_is_told_with_a_hint(cli, without_rights, verb):
    shown = cli(verb, without_rights)
    assert shown.code == DeniedError.exit_code
    assert f"{without_rights} cannot be looked into: permission denied" in shown.err
    assert "hint: do it as the user that the backups belong to" in shown.err


def test_ls_answers_the_three_questions(ok, ebr):
    store = ebr()
    shown = ok("ls", store).out
    assert "no catalogue: written by another tool, timeline 1" in shown
    assert "can restore  every revision from 127 to 294" in shown
    assert "2026-11-21 08:45:24 UTC to 2026-11-21 08:45:34 UTC" in shown
    assert "proven       never" in shown
    assert "takes        nobody knows" in shown
    ok("verify", store)
    shown = ok("ls", store).out
    assert "proven       replayed up to revision 294" in shown
    assert "as measured by that proof" in shown


def test_a_proof_that_is_too_old_is_not_called_good(terminal, ok, ebr):
    store = ebr()
    ok("verify", store)
    green, yellow = "\x1b[32mreplayed", "\x1b[33mreplayed"
    assert green in terminal("ls", store, env={"NO_COLOR": ""})[1]
    assert yellow in terminal("ls", store, "--proof-age", "0s", env={"NO_COLOR": ""})[1]


def test_ls_in_json_is_stable(ok, ebr):
    document = ok("ls", ebr(), "--output", "json").json
    assert list(document) == [
        "apiVersion",
        "kind",
        "store",
        "clusterId",
        "timeline",
        "timelines",
        "window",
        "chains",
        "problems",
        "below",
    ]
    assert list(document["window"]) == [
        "ranges",
        "first",
        "last",
        "firstTime",
        "lastTime",
        "aliveUntil",
        "proven",
    ]
    (chain,) = document["chains"]
    assert list(chain) == [
        "objects",
        "first",
        "last",
        "firstTime",
        "lastTime",
        "size",
        "missing",
        "proof",
        "held",
        "cautions",
        "encrypted",
        "keyIds",
    ]
    assert list(chain["objects"][0]) == [
        "key",
        "kind",
        "start",
        "last",
        "size",
        "capturedAt",
        "recorded",
    ]
    assert (chain["first"], chain["last"], len(chain["objects"])) == (127, 294, 5)


def test_ls_names_what_is_missing_and_what_is_adrift(ok, ebr):
    store = ebr()
    (store / "v2" / DELTA).unlink()
    shown = ok("ls", store).out
    assert "every revision from 127 to 211" in shown
    assert "chain 1: revisions 212 to 252 are missing behind it" in shown
    assert "1 delta no full leads to, the first v2/Incr-00000253-00000294" in shown


def test_ls_of_an_empty_store_says_so(ok, tmp_path):
    (tmp_path / "empty").mkdir()
    shown = ok("ls", tmp_path / "empty").out
    assert "can restore  nothing" in shown
    assert "another tool" not in shown
    assert "further down" not in shown


def test_who_does_not_know_the_prefix_finds_it_from_the_bucket(ok, cli, ebr):
    prefix, bucket = "etcd-main", ebr().rename("etcd-main").parent
    listed = ok("ls", bucket).out
    assert "can restore  nothing" in listed
    assert listed.endswith(f"Put one of these behind the store's URL:\n  {prefix}\n")
    assert ok("ls", bucket, "--output", "json").json["below"] == [prefix]
    assert "no backup itself; 1 prefix further down" in ok("status", bucket).out
    for verb in (("verify",), ("verify", "--all"), ("restore", "--dry-run"), ("keys",)):
        assert f"backups lie further down; put behind the URL {prefix}\n" in cli(*verb, bucket).err
    assert "can restore  every revision" in ok("ls", bucket / prefix).out


def test_ls_names_so_many_prefixes_and_counts_the_rest(ok, tmp_path):
    for number in range(53):
        path = tmp_path / "bucket" / f"shoot--{number:02}" / "v2"
        path.mkdir(parents=True)
        (path / "Full-00000000-00000001-1700000000").touch()
    *_, last, more = ok("ls", tmp_path / "bucket").out.splitlines()
    assert (last, more) == ("  shoot--49", "  and 3 more")


def test_ls_of_a_single_file_is_refused_with_a_way_out(cli, ebr):
    result = cli("ls", ebr() / "v2" / FULL)
    assert result.code == UsageError.exit_code
    assert "is a single backup" in result.err


def test_objects_are_listed_chain_by_chain(ok, ebr):
    shown = ok("ls", ebr(), "--objects").out
    assert shown.count("v2/Incr-") == 4


def test_show_tells_all_of_one_object(ok, cli, ebr):
    store = ebr()
    ok("verify", store)
    ok("hold", "add", store, FULL, "--reason", "before the upgrade")
    for name in (FULL, f"v2/{FULL}"):
        shown = ok("show", store, name).out
        assert "up to 127, or somewhat more: only reading it tells" in shown
        assert "record      none" in shown
        assert "listed, hash, structure, replayed" in shown
        assert "held        before the upgrade" in shown
    document = ok("show", store, FULL, "--output", "json").json
    assert (document["kind"], document["type"], document["last"]) == ("Object", "full", 127)
    assert cli("show", store, "nonsense").code == NotFoundError.exit_code


@pytest.mark.parametrize(
    ("level", "passed"),
    [
        (1, ["listed"]),
        (2, ["listed", "hash"]),
        (3, ["listed", "hash", "structure"]),
        (4, ["listed", "hash", "structure", "replayed"]),
    ],
)
def test_each_level_proves_more(ok, ebr, level, passed):
    store = ebr()
    document = ok("verify", store, "--level", level, "--output", "json").json
    (proof,) = document["proofs"]
    assert [each["check"] for each in proof["findings"] if each["result"] == "passed"] == passed
    assert (store / proof["key"]).is_file()
    assert document["passed"] is True


def test_the_last_level_starts_an_etcd(ok, ebr):
    etcd = binaries.etcd("3.5").etcd
    (proof,) = ok("verify", ebr(), "--level", 5, "--etcd", etcd, "--output", "json").json["proofs"]
    assert proof["findings"][-1]["check"] == "booted"
    assert proof["findings"][-1]["result"] == "passed"
    assert proof["etcdVersion"].startswith("3.5.")


def test_a_proof_needs_not_be_filed(ok, ebr):
    store = ebr()
    (proof,) = ok("verify", store, "--no-record", "--output", "json").json["proofs"]
    assert proof["key"] is None
    assert not (store / "catalogue").exists()


def test_checks_may_be_named(ok, cli, ebr):
    store = ebr()
    (proof,) = ok("verify", store, "--checks", "listed,replayed", "--output", "json").json["proofs"]
    assert {each["check"] for each in proof["findings"]} == {"listed", "replayed"}
    assert cli("verify", store, "--checks", "nonsense").code == UsageError.exit_code
    assert cli("verify", store, "--checks", "hash", "--level", "2").code == UsageError.exit_code


def test_a_damaged_object_fails_its_proof_by_name(cli, ok, ebr):
    store = ebr()
    damage(store / "v2" / DELTA)
    result = cli("verify", store)
    assert result.code == ProofError.exit_code
    assert f"v2/{DELTA}" in result.err
    assert "hash        failed" in result.out
    assert "hash FAILED" in ok("ls", store).out
    document = json.loads(cli("verify", store, "--output", "json").out)
    assert document["passed"] is False


def test_each_of_all_chains_is_proven_from_its_own_full(cli, ok, ebr):
    store = ebr()
    newest = ok("compact", store, "--output", "json").json["key"]
    proofs = ok("verify", store, "--all", "--output", "json").json["proofs"]
    # The first chain reaches the second one's full, so a restore of that revision would not read the first.
    assert [(each["objects"][0], len(each["objects"])) for each in proofs] == [(f"v2/{FULL}", 5), (newest, 1)]
    assert {each["revision"] for each in proofs} == {294}

    damage(store / "v2" / DELTA)
    result = cli("verify", store, "--all", "--output", "json")
    assert (result.code, DELTA in result.err) == (ProofError.exit_code, True)
    first, second = json.loads(result.out)["proofs"]
    assert [each["check"] for each in first["findings"] if each["result"] == "failed"] == ["hash"]
    assert all(each["result"] != "failed" for each in second["findings"])
    assert [each["proof"]["failed"] for each in ok("ls", store, "--output", "json").json["chains"]] == [
        ["hash"],
        [],
    ]


def test_a_single_file_is_proven_and_its_proof_kept_nowhere(ok, ebr):
    store = ebr()
    (proof,) = ok("verify", store / "v2" / FULL, "--output", "json").json["proofs"]
    assert (proof["revision"], proof["key"]) == (127, None)
    assert not (store / "catalogue").exists()


def test_check_is_fine_where_all_is_proven(cli, ok, ebr):
    store = ebr()
    ok("verify", store)
    result = cli("check", store, *OLD)
    assert result.code == 0
    assert result.out.startswith("ROOTCELLAR OK - revision 294, ")
    assert " | backup_age=" in result.out
    assert result.out.count("\n") == 1


def test_check_warns_of_what_was_never_proven(cli, ebr):
    result = cli("check", ebr(), *OLD)
    assert result.code == 1
    assert result.out.startswith("ROOTCELLAR WARNING - nothing was ever proven by a replay")


def test_check_warns_of_a_proof_that_is_old(cli, ok, ebr):
    store = ebr()
    ok("verify", store)
    result = cli("check", store, "--max-age", "5000d", "--proof-age", "0s")
    assert result.code == 1
    assert "the newest proof is" in result.out


@pytest.mark.parametrize("name", [FULL, DELTA])
def test_check_is_critical_where_something_is_gone(cli, ok, ebr, name):
    store = ebr()
    ok("verify", store)
    (store / "v2" / name).unlink()
    result = cli("check", store, *OLD)
    assert result.code == 2
    assert result.out.startswith("ROOTCELLAR CRITICAL - ")


def test_check_is_critical_where_the_newest_backup_is_old(cli, ebr):
    result = cli("check", ebr(), "--max-age", "1s")
    assert result.code == 2
    assert "the newest backup is" in result.out


@pytest.mark.parametrize(
    ("ahead", "is_damaged", "code", "told"),
    [
        (timedelta(minutes=1), False, 1, "WARNING - nothing was ever proven"),
        (timedelta(days=365), False, 3, "UNKNOWN - the newest backup says that it is of 365 days from now"),
        (timedelta(days=365), True, 2, "CRITICAL - "),
    ],
)
def test_check_does_not_take_a_time_to_come_for_a_fresh_backup(cli, ebr, ahead, is_damaged, code, told):
    """The clock was a year ahead when the agent was last alive, and its heartbeat says so."""
    store = ebr()
    if is_damaged:
        damage(store / "v2" / DELTA)
        cli("verify", store)
    place, now = FileStore(store), datetime.now(UTC)
    fence.beat(place, fence.claim_epoch(place, "agent/1", now), 294, 1, now + ahead + timedelta(seconds=30))
    result = cli("check", store)
    assert result.code == code
    assert result.out.startswith(f"ROOTCELLAR {told}")


def test_check_warns_of_a_proof_of_a_time_to_come(cli, ok, ebr):
    store = ebr()
    ok("verify", store)
    (proof,) = (each for each in read_catalogue(FileStore(store)).proofs if each.passed(Check.REPLAYED))
    late = datetime.now(UTC) + timedelta(days=9)
    keep_proof(FileStore(store), msgspec.structs.replace(proof, finished_at=late))
    result = cli("check", store, *OLD)
    assert result.code == 1
    assert "the newest proof says that it is of" in result.out


def test_check_is_critical_where_a_proof_failed(cli, ebr):
    store = ebr()
    damage(store / "v2" / DELTA)
    cli("verify", store)
    result = cli("check", store, *OLD)
    assert result.code == 2
    assert "hash failed" in result.out


@pytest.mark.parametrize("key", [FULL, DELTA])
def test_what_an_upload_disproves_is_a_word_on_its_chain_and_what_it_proves_is_none(cli, ok, ebr, key):
    store = ebr()
    place = FileStore(store)

    def upload(check, result):
        (name,) = (each.name for each in read_catalogue(place).snapshots if each.key.endswith(key))
        proof = Proof(
            objects=(Link(name.key, "a" * 64),),
            revision=name.last,
            findings=(Finding(check, result, "as found"),),
            started_at=NOW,
            finished_at=NOW,
            by="agent/1",
            in_passing=True,
        )
        keep_proof(place, proof)

    upload(Check.HASH, Result.PASSED)
    assert ok("ls", store, "--output", "json").json["chains"][0]["proof"] is None
    upload(Check.LISTED, Result.FAILED)
    assert ok("ls", store, "--output", "json").json["chains"][0]["proof"]["failed"] == ["listed"]
    result = cli("check", store, *OLD)
    assert (result.code, "listed failed" in result.out) == (2, True)
    ok("verify", store)
    assert cli("check", store, *OLD).code == 0


def test_check_is_unknown_where_the_store_does_not_answer(cli):
    result = cli("check", "/nowhere/at/all")
    assert result.code == 3
    assert result.out == "ROOTCELLAR UNKNOWN - /nowhere/at/all does not exist\n"


def test_check_in_json_has_the_same_exit_code(cli, ebr):
    result = cli("check", ebr(), *OLD, "--output", "json")
    assert result.code == 1
    assert (result.json["kind"], result.json["state"], result.json["exitCode"]) == (
        "CheckResult",
        "WARNING",
        1,
    )


def test_limits_of_age_may_stand_in_the_configuration(cli, ebr, config):
    config("policy: {backup-age: 5000d, proof-age: 1s}\n")
    assert cli("check", ebr()).code == 1


def test_a_hold_is_added_listed_and_released(ok, cli, ebr):
    store = ebr()
    assert "nothing is held" in ok("hold", "list", store).err
    held = ok("hold", "add", store, FULL, "--reason", "audit", "--through", 252, "--output", "json").json
    assert (held["kind"], held["key"], held["through"]) == ("Held", f"v2/{FULL}", 252)
    assert held["id"] in ok("hold", "list", store).out
    assert ok("hold", "list", store, "--output", "json").json["holds"][0]["reason"] == "audit"
    assert "held" in ok("ls", store).out
    ok("hold", "release", store, held["id"], "--reason", "done")
    assert ok("hold", "list", store, "--output", "json").json["holds"] == []
    again = cli("hold", "release", store, held["id"], "--reason", "done")
    assert again.code == NotFoundError.exit_code


def test_a_hold_is_of_a_full_and_has_a_reason(cli, ebr):
    store = ebr()
    assert cli("hold", "add", store, DELTA, "--reason", "x").code == UsageError.exit_code
    missing = cli("hold", "add", store, FULL)
    assert missing.code == UsageError.exit_code
    assert "--reason is needed" in missing.err


def test_an_import_becomes_a_full_that_can_be_proven(ok, cli, ebr, tmp_path):
    backup, store = ebr() / "v2" / FULL, tmp_path / "imported"
    first = ok("import", backup, store, "--output", "json").json
    assert (first["kind"], first["revision"], first["repeated"]) == ("ImportedBackup", 127, False)
    assert ok("import", backup, store, "--output", "json").json["repeated"] is True
    url = f"file://{backup.parent}/{backup.name}"
    assert ok("import", url, store, "--output", "json").json["repeated"] is True
    ok("verify", store)
    shown = ok("ls", store).out
    assert "revision 127" in shown
    assert f"imported from {FULL}" in shown
    elsewhere = cli("import", backup, ebr("gzip-3.4"))
    assert elsewhere.code == 34
    assert "import into a prefix of its own" in elsewhere.err


def test_what_is_no_backup_is_not_imported(cli, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("nothing of the kind\n" * 100)
    result = cli("import", path, tmp_path / "store")
    assert result.code == 20
    assert "is not an etcd database" in result.err
    assert not Path(tmp_path / "store").exists() or not list(Path(tmp_path / "store").rglob("Full-*"))


def test_an_object_to_import_needs_its_key(cli, tmp_path):
    result = cli("import", "s3://", tmp_path / "store")
    assert result.code == UsageError.exit_code
    unknown = cli("import", "@main/x", tmp_path / "store")
    assert unknown.code == ConfigError.exit_code
