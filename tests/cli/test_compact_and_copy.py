"""`compact` and `copy` as a person or a script calls them."""

from __future__ import annotations

import pytest

from rootcellar.errors import ConfigError, DamagedObjectError, NothingToRestoreError, UsageError
from rootcellar.stores.file import FileStore


@pytest.fixture
def store(ebr):
    """A full and deltas of etcd-backup-restore."""
    return ebr()


@pytest.fixture
def recorded(etcd, ok, tmp_path, monkeypatch):
    """A full and a delta of ours."""
    member = etcd.start("3.6")
    monkeypatch.setenv("ROOTCELLAR_ENDPOINTS", member.endpoint)
    store = tmp_path / "recorded"
    for number in range(5):
        member.etcdctl("put", "a", str(number))
    ok("snapshot", "full", store)
    member.etcdctl("put", "b", "c")
    ok("snapshot", "delta", store)
    return store


def names(place):
    return sorted(path.name for path in (place / "v2").iterdir())


def test_a_chain_is_folded_and_the_result_is_told(ok, recorded):
    shown = ok("compact", recorded, "--output", "json").json
    assert (shown["kind"], shown["revision"], shown["recorded"]) == ("Compaction", 7, True)
    assert len(shown["objects"]) == 2
    assert shown["key"].removeprefix("v2/") in names(recorded)
    verified = ok("verify", recorded, "--output", "json").json["proofs"][0]
    assert (verified["objects"], verified["hashKv"]) == ([shown["key"]], shown["hashKv"])


def test_folding_as_text(ok, recorded):
    shown = ok("compact", recorded).out
    assert "up to revision 7, of v2/Full-00000000-00000006-" in shown
    assert "and 1 delta" in shown
    assert "that of the chain" in shown
    assert ok("compact", recorded).out == "nothing to fold: the chain is one full already\n"
    assert ok("compact", recorded, "--output", "json").json["kind"] == "NothingToCompact"


def test_a_dry_run_of_a_fold_writes_nothing(ok, recorded):
    before = names(recorded)
    shown = ok("compact", recorded, "--dry-run", "--output", "yaml").yaml
    assert (shown["kind"], shown["revision"], len(shown["objects"])) == ("CompactionPlan", 7, 2)
    assert "to revision  7" in ok("compact", recorded, "--dry-run").out
    assert names(recorded) == before
    assert not list((recorded / "catalogue").glob("pins/*"))


def test_a_fold_without_a_record_is_told(ok, store):
    shown = ok("compact", store)
    assert "the full has no record" in shown.err


def test_an_empty_store_cannot_be_folded(cli, tmp_path):
    assert cli("compact", tmp_path / "none").code == NothingToRestoreError.exit_code


def test_a_copy_is_told_and_repeated_without_effect(ok, recorded, tmp_path):
    there = tmp_path / "there"
    shown = ok("copy", recorded, there, "--output", "json").json
    assert (shown["kind"], len(shown["copied"]), shown["present"], shown["final"]) == (
        "CopyResult",
        2,
        0,
        None,
    )
    assert names(there) == names(recorded)
    again = ok("copy", recorded, there).out
    assert "0 objects copied" in again
    assert "2 there already" in again
    assert "every revision from 6 to 7" in ok("ls", there).out


def test_a_dry_run_of_a_copy_writes_nothing(ok, store, tmp_path):
    there = tmp_path / "there"
    shown = ok("copy", store, there, "--dry-run", "--output", "json").json
    assert (shown["kind"], len(shown["objects"])) == ("PlannedCopy", len(names(store)))
    assert f"{len(names(store))} objects to copy" in ok("copy", store, there, "--dry-run").out
    assert not there.exists()


def test_filters_are_heard(ok, recorded, tmp_path):
    ok("compact", recorded)
    newest = names(recorded)[1]
    for count, words in enumerate(
        (("--max-backups", 1), ("--chain", newest), ("--max-age", "1h", "--max-backups", 1))
    ):
        there = tmp_path / f"there-{count}"
        ok("copy", recorded, there, *words)
        assert names(there) == [newest]


def test_damage_ends_with_its_exit_code_and_the_rest_is_copied(cli, recorded, tmp_path):
    delta = next(path for path in (recorded / "v2").iterdir() if path.name.startswith("Incr"))
    delta.write_bytes(delta.read_bytes()[:-1] + b"x")
    there = tmp_path / "there"
    result = cli("copy", recorded, there, "--output", "json")
    assert result.code == DamagedObjectError.exit_code
    assert result.json["failed"][0]["key"] == f"v2/{delta.name}"
    assert len(names(there)) == 1
    assert "not copied" in cli("copy", recorded, there).out


def test_nothing_to_copy_is_told(cli, tmp_path):
    result = cli("copy", tmp_path / "none", tmp_path / "there")
    assert result.code == NothingToRestoreError.exit_code
    assert "there is no backup to copy" in result.err


def test_waiting_in_vain_is_told_and_what_is_there_is_copied(ok, recorded, tmp_path):
    shown = ok("copy", recorded, tmp_path / "there", "--wait-for-final", "--wait", "1ms", "--output", "json")
    assert shown.json["final"] is False
    assert len(shown.json["copied"]) == 2
    assert "no final full came" in shown.err


def test_both_words_are_needed(cli, store):
    result = cli("copy", store)
    assert result.code == UsageError.exit_code
    assert "DESTINATION is missing" in result.err


def test_a_store_that_wants_encryption_gets_nothing_in_the_clear(cli, ok, config, store, tmp_path):
    there = tmp_path / "there"
    recipient = next(
        word for word in ok("key", "new", "-o", tmp_path / "identity").out.split() if word.startswith("age1")
    )
    config(f"stores:\n- name: sealed\n  url: {there.as_uri()}\n  encryption: {{recipients: [{recipient}]}}\n")
    for named in ("@sealed", there):
        result = cli("copy", store, named)
        assert result.code == ConfigError.exit_code
        assert "wants encryption" in result.err
    assert not there.exists()


def test_limits_and_names_of_the_configuration_are_used(ok, config, recorded, tmp_path):
    there = tmp_path / "there"
    config(
        f"stores:\n- name: main\n  url: {recorded.as_uri()}\n  limits: {{download: 100MiB/s}}\n"
        f"- name: second\n  url: {there.as_uri()}\n  limits: {{upload: 100MiB/s}}\n"
    )
    ok("copy", "@main", "@second")
    assert [info.key for info in FileStore(there).list("v2/")]
