"""Encrypted stores from the command line: keys, captures, restores, and that no private key ever shows."""

from __future__ import annotations

import json
import shutil

import pytest

from rootcellar.backup.objects.sealing.keyring import read_identities
from rootcellar.errors import ConfigError, NoKeyError


@pytest.fixture
def live(etcd, monkeypatch):
    member = etcd.start("3.6")
    for number in range(20):
        member.etcdctl("put", f"/config/{number:02}", f"value {number}")
    monkeypatch.setenv("ROOTCELLAR_ENDPOINTS", member.endpoint)
    return member


@pytest.fixture
def new_key(ok, tmp_path):
    """Makes a key by `key new`; (file, recipient, key id)."""

    def make(name):
        path = tmp_path / f"{name}.key"
        shown = ok("key", "new", "-o", path, "--output", "json").json
        assert shown["file"] == str(path)
        return path, shown["recipient"], shown["keyId"]

    return make


@pytest.fixture
def secrets(monkeypatch, capfdbinary, tmp_path):
    """At the end: no private key that a test made has been shown, or written anywhere but to its own file."""
    shown = []
    yield shown
    found = [
        identity.secret_text()
        for path in tmp_path.glob("*.key")
        for identity in read_identities(path).identities
    ]
    assert found
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".key"]
    texts = [
        *shown,
        *(path.read_bytes().decode("latin-1") for path in written if path.stat().st_size < 1 << 22),
    ]
    for secret in found:
        for text in texts:
            assert secret not in text.upper()


def configure(config, store, *recipients, identities=""):
    wanted = f"encryption: {{recipients: [{', '.join(recipients)}]}}"
    told = f", identities: {{file: '{identities}'}}" if identities else ""
    config(f"stores:\n- {{name: main, url: 'file://{store}', {wanted}{told}}}\n")


def test_an_encrypted_store_from_key_to_restore(cli, ok, config, live, new_key, tmp_path, secrets):
    def run(*words, code=0):
        result = cli(*words)
        secrets.append(result.out + result.err)
        assert result.code == code, result.err
        return result

    store = tmp_path / "store"
    path, recipient, key_id = new_key("first")
    configure(config, store, recipient)
    run("config", "check")
    full = run("snapshot", "full", "@main", "--output", "json").json["full"]["key"]
    assert full.startswith("sealed/snapshots/full_")
    assert full.endswith(".zst.age")
    live.etcdctl("put", "/config/01", "changed")
    # By its URL it is the same store, with the same wish.
    (delta,) = run("snapshot", "delta", f"file://{store}", "--output", "json").json["deltas"]
    assert delta["key"].endswith(".zst.age")
    before = live.hash_kv()
    listed = run("ls", "@main").out
    assert f"chain 1 is encrypted: opens with {key_id}" in listed
    assert key_id in run("show", "@main", full).out
    run("check", "@main", code=1)

    data = tmp_path / "data"
    refused = run("restore", "@main", "--data-dir", data, code=NoKeyError.exit_code)
    assert f"it needs one of {key_id}" in refused.err
    assert not (data / "member").exists()
    assert key_id in run("restore", "@main", "--dry-run").err
    plan = tmp_path / "plan.json"
    dry = run("restore", "@main", "--dry-run", "-o", plan, "--identity", path)
    assert "needs one of" not in dry.err
    run("verify", "@main", code=NoKeyError.exit_code)
    run("verify", "@main", "--level", 1)
    run("verify", "@main", "--identity", path)
    assert run("get", "@main", "/config/01", "--identity", path).out.strip() == "changed"
    for words in (["keys", "@main"], ["sizes", "@main"], ["history", "@main", "/config/01"]):
        run(*words, "--identity", path)
        run(*words, code=NoKeyError.exit_code)
    run("diff", "@main", "--from", 21, "--identity", path)
    run("extract", "@main", "-o", tmp_path / "out.jsonl", "--identity", path)
    run("restore", "--plan", plan, "--data-dir", data, "--identity", path)
    configure(config, store, recipient, identities=path)
    shown = run("restore", "@main", "--data-dir", tmp_path / "other", "--output", "json").json
    assert shown["hashKv"] == before.hash
    run("config", "show")
    live.etcdctl("del", "/config/01")
    run("put-back", "@main", "--prefix", "/config/", "--yes")
    assert live.etcdctl("get", "/config/01", "--print-value-only").strip() == "changed"


def test_another_key_is_added_and_taken_back(cli, ok, config, live, new_key, tmp_path, secrets):
    store = tmp_path / "store"
    old, recipient, old_id = new_key("old")
    new, other, new_id = new_key("new")
    configure(config, store, recipient)
    ok("snapshot", "full", "@main")
    assert cli("get", "@main", "/config/01", "--identity", new).code == NoKeyError.exit_code
    shown = ok("key", "add-recipient", "@main", other, "--identity", old, "--output", "json").json
    assert (shown["keyId"], len(shown["granted"]), shown["encrypted"]) == (new_id, 1, 1)
    assert ok("get", "@main", "/config/01", "--identity", new).out.strip() == "value 1"
    assert f"opens with {old_id} or {new_id}" in ok("ls", "@main").out
    removed = ok("key", "remove", "@main", new_id, "--output", "json").json
    assert (len(removed["removed"]), removed["writtenFor"]) == (1, [])
    assert cli("get", "@main", "/config/01", "--identity", new).code == NoKeyError.exit_code
    honest = ok("key", "remove", "@main", recipient)
    secrets.append(honest.out + honest.err)
    assert "open with it until they are pruned" in honest.err
    assert "may have read these backups" in honest.err


def test_the_keys_of_a_file_are_shown_without_what_is_secret(ok, new_key, secrets):
    path, recipient, key_id = new_key("one")
    shown = ok("key", "show", path).out
    secrets.append(shown)
    assert shown == f"{key_id}  {recipient}\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_private_key_in_the_place_of_a_public_one_is_not_repeated(cli, config, new_key, tmp_path):
    path, _, _ = new_key("leaked")
    (identity,) = read_identities(path).identities
    secret = identity.secret_text()
    configure(config, tmp_path / "store", secret)
    for words in (
        ("config", "show"),
        ("config", "check"),
        ("config", "show", "--output", "json"),
        ("key", "add-recipient", "@main", secret),
        ("snapshot", "full", "@main", "--endpoints", "http://127.0.0.1:1", "--debug"),
    ):
        result = cli(*words)
        assert secret not in (result.out + result.err).upper(), words
    assert result.code == ConfigError.exit_code
    assert "private key" in result.err


def test_ls_warns_that_etcdbrctl_would_restore_an_old_state(ok, config, live, new_key, tmp_path):
    store = tmp_path / "store"
    _, recipient, _ = new_key("one")
    ok("snapshot", "full", store)
    live.etcdctl("put", "a", "b")
    configure(config, store, recipient)
    assert "sealed from now on" in ok("snapshot", "delta", "@main").out
    assert "etcdbrctl would restore an old state, revision 21" in ok("ls", "@main").out


def test_an_encrypted_store_is_not_continued_in_the_clear_by_accident(
    cli, ok, config, live, new_key, tmp_path
):
    store = tmp_path / "store"
    _, recipient, _ = new_key("one")
    configure(config, store, recipient)
    ok("snapshot", "full", "@main")
    config("stores: []\n")
    live.etcdctl("put", "a", "b")
    refused = cli("snapshot", "delta", store)
    assert refused.code == ConfigError.exit_code
    assert "are encrypted, and this one would not be" in refused.err
    ok("snapshot", "delta", store, "--unencrypted")
    assert json.loads(ok("ls", store, "--output", "json").out)["chains"][-1]["encrypted"] is False


def test_zstd_is_written_where_it_is_asked_for(ok, live, tmp_path):
    store = tmp_path / "store"
    key = ok("snapshot", "full", store, "--compression", "zstd", "--output", "json").json["full"]["key"]
    assert key.endswith(".zst")
    live.kill()
    shutil.rmtree(live.data_dir)
    ok("restore", store, "--data-dir", live.data_dir)
    live.start()
    assert live.etcdctl("get", "/config/07", "--print-value-only").strip() == "value 7"


def test_an_encrypted_chain_is_folded_and_verified_as_far_as_keys_are_at_hand(
    cli, ok, config, live, new_key, tmp_path, secrets
):
    store = tmp_path / "store"
    path, recipient, key_id = new_key("one")
    configure(config, store, recipient)
    ok("snapshot", "full", "@main")
    live.etcdctl("put", "/config/01", "changed")
    ok("snapshot", "delta", "@main")
    held = ok("verify", "@main", "--level", 2)
    secrets.append(held.out + held.err)
    assert "of the stored bytes; the hash inside was skipped" in held.out
    assert cli("compact", "@main").code == NoKeyError.exit_code
    assert cli("compact", store, "--identity", path, "--compression", "gzip").code == 0, "still encrypted"
    config("stores: []\n")
    live.etcdctl("put", "/config/02", "changed")
    ok("snapshot", "full", store, "--unencrypted")
    assert key_id in ok("show", store, next(iter(sealed_fulls(store)))).out


def sealed_fulls(store):
    return [f"sealed/snapshots/{path.name}" for path in (store / "sealed" / "snapshots").glob("full_*")]


def test_a_chain_of_zstd_is_folded_into_zstd_without_being_told(ok, live, tmp_path):
    store = tmp_path / "store"
    ok("snapshot", "full", store, "--compression", "zstd")
    live.etcdctl("put", "a", "b")
    ok("snapshot", "delta", store, "--compression", "zstd")
    key = ok("compact", store, "--output", "json").json["key"]
    assert key.startswith("sealed/snapshots/full_")
    assert key.endswith(".zst")


def test_an_import_into_a_store_that_wants_encryption_is_encrypted(
    ok, config, live, new_key, tmp_path, secrets
):
    path, recipient, key_id = new_key("one")
    live.etcdctl("snapshot", "save", tmp_path / "snapshot.db")
    configure(config, tmp_path / "store", recipient)
    shown = ok("import", tmp_path / "snapshot.db", "@main", "--output", "json")
    secrets.append(shown.out + shown.err)
    key = shown.json["key"]
    assert key.startswith("sealed/snapshots/full_")
    assert key.endswith(".zst.age")
    assert not (tmp_path / "store" / "v2").exists()
    assert f"opens with {key_id}" in ok("ls", "@main").out
    assert ok("get", "@main", "/config/07", "--identity", path).out.strip() == "value 7"


def test_identities_that_cannot_be_read_stop_nothing_that_needs_none(ok, config, ebr, tmp_path):
    config(f"stores:\n- {{name: main, url: 'file://{ebr()}', identities: {{file: /nowhere}}}}\n")
    result = ok("restore", "@main", "--data-dir", tmp_path / "data")
    assert "no identities are at hand" in result.err
