"""Looking into backups without restoring them."""

from __future__ import annotations

import base64
import json
import shutil

import pytest

from rootcellar.errors import ChainError, NotFoundError, TargetError, UsageError
from tests.backup.ebr_data import EBR

KEY = "/registry/events/ns0/obj-003"
"""Put at revision 112 and again at 237."""


def test_keys_are_listed_as_they_were(ok, ebr, expected):
    store = ebr()
    now = ok("keys", store).out.splitlines()
    assert len(now) == expected()["keys"]
    assert now == sorted(now)
    assert len(ok("keys", store, "--at", 130).out.splitlines()) < len(now)
    assert ok("keys", store, "--at", "2026-11-21T08:45:30Z").code == 0


def test_a_prefix_and_a_limit_narrow_the_keys(ok, ebr):
    store = ebr()
    shown = ok("keys", store, "--prefix", "/registry/pods/", "--limit", 3).out.splitlines()
    assert len(shown) == 3
    assert all(key.startswith("/registry/pods/") for key in shown)
    assert ok("keys", store, "--prefix", "/nothing/").out == ""


def test_long_tells_revision_version_and_size(ok, ebr):
    header, *rows = ok("keys", ebr(), "--prefix", KEY, "--long").out.splitlines()
    assert header.split() == ["MODIFIED", "VERSION", "SIZE", "LEASE", "KEY", "KUBERNETES"]
    assert rows[0].split() == ["237", "2", "85", "B", "-", KEY]


def test_lists_are_documents_in_json_and_yaml(ok, ebr):
    store = ebr()
    found = ok("keys", store, "--prefix", KEY, "--output", "json").json
    assert (found["apiVersion"], found["kind"], found["revision"]) == ("rootcellar.dev/v1", "Keys", 294)
    assert found["items"] == [
        {"key": KEY, "createRevision": 112, "modRevision": 237, "version": 2, "valueSize": 85}
    ]
    assert ok("keys", store, "--prefix", KEY, "--output", "yaml").yaml == found
    for output in ("json", "yaml"):
        empty = ok("keys", store, "--prefix", "/nothing/", "--output", output)
        assert (empty.json if output == "json" else empty.yaml)["items"] == []


def test_a_value_goes_into_a_pipe_as_it_is(ok, ebr):
    store = ebr()
    value = ok("get", store, KEY).raw
    assert len(value) == 85
    assert ok("get", store, KEY, "--at", 236).raw != value
    shown = ok("get", store, KEY, "--output", "json").json
    assert base64.b64decode(shown["valueBase64"]) == value
    assert shown["item"]["modRevision"] == 237


def test_a_value_goes_into_a_file(ok, ebr, tmp_path):
    store = ebr()
    ok("get", store, KEY, "-o", tmp_path / "value")
    assert (tmp_path / "value").read_bytes() == ok("get", store, KEY).raw


def test_a_file_with_a_value_is_its_owners_alone(ok, cli, ebr, tmp_path):
    store = ebr()
    ok("get", store, KEY, "-o", tmp_path / "value")
    assert (tmp_path / "value").stat().st_mode & 0o777 == 0o600
    missing = tmp_path / "not" / "there"
    for result in (cli("get", store, KEY, "-o", missing), cli("restore", store, "--dry-run", "-o", missing)):
        assert result.code == TargetError.exit_code
        assert f"{missing}" in result.err
        assert "hint: name another file with -o" in result.err


def test_a_value_that_is_no_text_stays_off_the_terminal(terminal, ebr):
    code, shown = terminal("get", ebr(), KEY)
    assert code == 0
    assert "created at 112, modified at 237, version 2" in shown
    assert "85 B that are no text" in shown


def test_a_key_that_is_not_there_is_told_with_the_revision(cli, ebr):
    result = cli("get", ebr(), "/no/such/key", "--at", 200)
    assert result.code == NotFoundError.exit_code
    assert "there is no key /no/such/key at revision 200" in result.err


def test_history_tells_every_change(ok, cli, ebr):
    store = ebr()
    changes = ok("history", store, KEY, "--output", "json").json["items"]
    assert [(each["revision"], each["type"], each["version"]) for each in changes] == [
        (112, "put", 1),
        (237, "put", 2),
    ]
    header, *rows = ok("history", store, KEY).out.splitlines()
    assert header.split() == ["REVISION", "CHANGE", "VERSION", "LEASE", "SIZE", "VALUE"]
    assert [row.split()[0] for row in rows] == ["112", "237"]
    nothing = cli("history", store, "/no/such/key")
    assert nothing.code == NotFoundError.exit_code


def test_history_knows_deletions(ok, ebr):
    store = ebr()
    gone = ok("diff", store, "--from", 290, "--output", "json").json["items"][0]
    assert gone["type"] == "removed"
    changes = ok("history", store, gone["key"], "--output", "json").json["items"]
    assert changes[-1]["type"] == "delete"
    assert "value" not in changes[-1]


def test_diff_shows_what_changed_between_two_points(ok, ebr):
    store = ebr()
    result = ok("diff", store, "--from", 290, "--to", 294)
    assert result.out.splitlines() == [
        "- /registry/leases/ns2/obj-030",
        "+ /registry/pods/ns0/obj-027",
        "+ /registry/pods/ns3/obj-015",
        "+ /registry/secrets/ns3/obj-006",
    ]
    assert "3 added, 1 removed from revision 290 to revision 294" in result.err
    document = ok("diff", store, "--from", 290, "--output", "json").json
    assert (document["kind"], document["beforeRevision"], document["afterRevision"]) == (
        "Differences",
        290,
        294,
    )
    assert [each["type"] for each in document["items"]] == ["removed", "added", "added", "added"]
    assert ok("diff", store, "--from", 290, "--output", "yaml").yaml == document


def test_diff_shows_values_when_asked(ok, ebr):
    store = ebr()
    words = ("diff", store, "--from", 230, "--prefix", KEY, "--values")
    before, after = ok("get", store, KEY, "--at", 230).raw, ok("get", store, KEY).raw
    (shown,) = ok(*words, "--output", "json").json["items"]
    assert base64.b64decode(shown["beforeBase64"]) == before
    assert base64.b64decode(shown["afterBase64"]) == after
    assert shown["fields"] == ["mod_revision", "version", "value"]
    marked = [line.split()[0] for line in ok(*words).out.splitlines()]
    assert marked == ["~", "-", "+"]


def test_diff_may_tell_by_its_exit_code(cli, ebr):
    store = ebr()
    assert cli("diff", store, "--from", 290, "--exit-code").code == 1
    assert cli("diff", store, "--from", 290, "--prefix", "/nothing/", "--exit-code").code == 0
    assert cli("diff", store, "--from", 290).code == 0


def test_two_backups_are_compared(ok, ebr):
    document = ok("diff", ebr(), "--against", ebr("gzip-3.4"), "--output", "json").json
    assert document["afterRevision"] == 285
    assert document["items"]


def test_a_comparison_with_itself_is_refused(cli, ebr):
    store = ebr()
    for words in (("diff", store), ("diff", store, "--live", "--to", "5")):
        assert cli(*words).code == UsageError.exit_code


def test_sizes_are_by_prefix_and_largest_first(ok, ebr, expected):
    store = ebr()
    groups = ok("sizes", store, "--output", "json").json["groups"]
    assert {each["prefix"] for each in groups} == {
        f"/registry/{kind}/" for kind in ("events", "leases", "pods", "secrets")
    }
    assert sum(each["liveKeys"] for each in groups) == expected()["keys"]
    totals = [each["liveBytes"] + each["historyBytes"] for each in groups]
    assert totals == sorted(totals, reverse=True)
    assert ok("sizes", store).out.splitlines()[1].endswith(groups[0]["prefix"])
    assert len(ok("sizes", store, "--depth", 1, "--output", "json").json["groups"]) == 1


def test_extract_writes_lines_of_json(ok, ebr, expected, tmp_path):
    store = ebr()
    lines = [json.loads(line) for line in ok("extract", store).out.splitlines()]
    assert len(lines) == expected()["keys"]
    first = next(line for line in lines if line["key"] == KEY)
    assert base64.b64decode(first["valueBase64"]) == ok("get", store, KEY).raw
    told = ok("extract", store, "-o", tmp_path / "keys.jsonl")
    assert f"{expected()['keys']} keys at revision 294 written to" in told.err
    assert [json.loads(line) for line in (tmp_path / "keys.jsonl").read_text().splitlines()] == lines
    assert (tmp_path / "keys.jsonl").stat().st_mode & 0o777 == 0o600
    bare = json.loads(ok("extract", store, "--no-values", "--limit", 1).out)
    assert not {"value", "valueBase64"} & bare.keys()


def test_extract_writes_a_file_for_each_key(ok, cli, ebr, tmp_path):
    store = ebr()
    shown = ok(
        "extract", store, "--prefix", KEY, "--format", "raw", "-o", tmp_path / "raw", "--output", "json"
    )
    assert (shown.json["kind"], shown.json["keys"]) == ("Extracted", 1)
    (path,) = (path for path in (tmp_path / "raw").rglob("*") if path.is_file())
    assert path.read_bytes() == ok("get", store, KEY).raw
    again = cli("extract", store, "--format", "raw", "-o", tmp_path / "raw")
    assert again.code == TargetError.exit_code
    assert cli("extract", store, "--format", "raw").code == UsageError.exit_code


@pytest.mark.parametrize("name", ["lzw-3.5", "zlib-leases-3.5", "none-compacted-3.5", "gzip-3.4"])
def test_every_backup_of_etcd_backup_restore_can_be_looked_into(ok, ebr, expected, name):
    shown = ok("keys", ebr(name), "--output", "json").json
    assert len(shown["items"]) == expected(name)["keys"]
    assert shown["revision"] == expected(name)["last_revision"]


def test_a_leased_key_shows_its_lease(ok, ebr):
    shown = ok("keys", ebr("zlib-leases-3.5"), "--prefix", "/leased/", "--output", "json").json["items"]
    assert shown
    assert all(int(each["lease"], 16) for each in shown)


def test_a_single_file_is_looked_into_where_it_lies(ok, ebr):
    path = ebr() / "v2" / "Full-00000000-00000127-1795250723.gz"
    assert ok("keys", path, "--output", "json").json["revision"] == 127


def test_an_object_of_a_store_is_looked_into_whatever_its_name(ok, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    full = next((EBR / "gzip-3.5").rglob("Full-*"))
    shutil.copy(full, store / "monday.db.gz")
    assert ok("keys", store, "--object", "monday.db.gz", "--output", "json").json["revision"] == 127


def test_a_data_directory_of_a_stopped_etcd_is_looked_into(ok, ebr, tmp_path):
    ok("restore", ebr(), "--data-dir", tmp_path / "data", "--bump-revision", 0)
    result = ok("get", tmp_path / "data", KEY)
    assert len(result.raw) == 85
    assert "its log alone has" in result.err


def test_a_revision_that_was_never_captured_is_refused(cli, ebr):
    assert cli("keys", ebr(), "--at", 9999).code == ChainError.exit_code


def test_scratch_space_is_left_as_it_was(ok, ebr, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ok("keys", ebr(), "--scratch", scratch)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("seconds", [1795333080000, 2**63 - 1], ids=["milliseconds", "the most"])
def test_a_name_beyond_all_calendars_stands_in_nobodys_way(ok, ebr, tmp_path, seconds):
    store = ebr()
    (full,) = (path for path in (store / "v2").iterdir() if path.name.startswith("Full-00000000-00000127"))
    odd = full.with_name(f"Full-00000000-00000127-{seconds}.gz")
    shutil.copy(full, odd)
    assert odd.name in ok("ls", store, "--objects").out
    assert ok("ls", store).out
    assert ok("prune", store, "--dry-run", "--policy", "daily=7").out
    assert ok("sizes", store).out
    assert ok("restore", odd, "--data-dir", tmp_path / "alone").code == 0
    assert ok("restore", store, "--data-dir", tmp_path / "data", "--to-revision", 127).code == 0
