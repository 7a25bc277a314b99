"""The verbs that talk to a live etcd, against real ones and real stores."""

from __future__ import annotations

import shutil
import time

import pytest

from rootcellar.cli.verbs import put_back
from rootcellar.errors import (
    EtcdDeniedError,
    EtcdUnavailableError,
    IdentityError,
    RootcellarError,
    UsageError,
)


@pytest.fixture
def live(etcd, monkeypatch):
    """An etcd with twenty keys, which `ROOTCELLAR_ENDPOINTS` names."""
    member = etcd.start("3.6")
    for number in range(20):
        member.etcdctl("put", f"/config/{number:02}", f"value {number}")
    monkeypatch.setenv("ROOTCELLAR_ENDPOINTS", member.endpoint)
    return member


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def lose_and_restore(member, ok, store, *words):
    """Kill it, destroy its data, restore, start it again."""
    member.kill()
    shutil.rmtree(member.data_dir)
    shown = ok("restore", store, "--data-dir", member.data_dir, *words, "--output", "json").json
    member.start()
    return shown


def test_fulls_and_deltas_bring_back_what_was_lost(ok, live, store):
    full = ok("snapshot", "full", store, "--output", "json").json
    assert (full["kind"], full["full"]["last"], full["deltas"]) == ("Snapshot", 21, [])
    live.etcdctl("put", "/config/01", "changed")
    delta = ok("snapshot", "delta", store, "--output", "json").json
    assert (delta["full"], delta["revision"]) == (None, 22)
    before = live.hash_kv()
    live.etcdctl("del", "/config/", "--prefix")
    ok("snapshot", "delta", store)
    shown = lose_and_restore(live, ok, store, "--to-revision", 22)
    assert shown["hashKv"] == before.hash == live.hash_kv(22).hash
    after = ok("snapshot", "full", store).out
    assert "history has forked: this is timeline 2" in after
    assert "every revision from 21 to 23" in ok("ls", store, "--timeline", 1).out


def test_the_text_says_what_was_written_and_why(ok, live, store):
    first = ok("snapshot", "delta", store).out
    assert "a full is needed: there is no full yet" in first
    assert "up to revision 21" in first
    assert ok("snapshot", "delta", store).out == "nothing new behind revision 21\n"
    live.etcdctl("put", "/config/01", "changed")
    assert "revision 22" in ok("snapshot", "delta", store).out


def test_a_quiet_etcd_is_told_from_a_dead_backup(ok, live, store):
    ok("snapshot", "full", store)
    first = ok("ls", store, "--output", "json").json["window"]["aliveUntil"]
    ok("snapshot", "delta", store)
    second = ok("ls", store, "--output", "json").json["window"]["aliveUntil"]
    assert first < second
    assert "unchanged until" in ok("ls", store).out


@pytest.mark.parametrize(("how", "suffix"), [("gzip", ".gz"), ("zlib", ".zlib"), ("none", "")])
def test_objects_are_compressed_as_told(ok, live, store, how, suffix):
    shown = ok("snapshot", "full", store, "--compression", how, "--output", "json").json
    name = shown["full"]["key"]
    assert name.endswith(suffix)
    assert ("." in name) == bool(suffix)


def test_a_live_hash_is_recorded_when_asked_for(ok, live, store):
    shown = ok("snapshot", "full", store, "--live-hash", "full", "--output", "json").json
    assert shown["full"]["hashKv"] == live.hash_kv().hash
    (proof,) = ok("verify", store, "--output", "json").json["proofs"]
    assert {each["check"]: each["result"] for each in proof["findings"]}["compared"] == "passed"


def test_a_final_full_says_so_in_its_name(ok, live, store):
    assert ok("snapshot", "full", store, "--final", "--output", "json").json["full"]["key"].endswith(".final")


def test_another_cluster_s_prefix_is_refused_unless_taken_over(ok, cli, live, store, etcd):
    ok("snapshot", "full", store)
    other = etcd.start("3.6", "other")
    other.etcdctl("put", "a", "b")
    words = ("snapshot", "full", store, "--endpoints", other.endpoint)
    refused = cli(*words)
    assert refused.code == IdentityError.exit_code
    ok(*words, "--take-over", "moved house")


def test_status_tells_how_far_etcd_is_ahead(ok, live, store):
    ok("snapshot", "full", store)
    for _ in range(3):
        live.etcdctl("put", "x", "y")
    document = ok("status", store, "--output", "json").json
    assert (document["kind"], document["behind"]) == ("Status", 3)
    assert document["etcd"][0]["revision"] == 24
    assert document["store"]["window"]["last"] == 21
    shown = ok("status", store).out
    assert "3 revisions are in no backup yet" in shown
    assert "etcd 3.6." in shown


def test_status_ends_with_the_code_of_what_does_not_answer(cli, ok, live, store):
    ok("snapshot", "full", store)
    live.kill()
    result = cli("status", store, "--timeout", "1s")
    assert result.code == EtcdUnavailableError.exit_code
    assert "revisions 21 to 21" in result.out


def test_diff_with_the_live_etcd(ok, live, store):
    ok("snapshot", "full", store)
    live.etcdctl("put", "/config/01", "changed")
    live.etcdctl("del", "/config/02")
    live.etcdctl("put", "/config/99", "new")
    assert ok("diff", store, "--live").out.splitlines() == [
        "~ /config/01 (value)",
        "- /config/02",
        "+ /config/99",
    ]


def test_put_back_writes_what_is_missing_and_leaves_what_is_newer(ok, cli, live, store):
    ok("snapshot", "full", store)
    live.etcdctl("del", "/config/01")
    live.etcdctl("put", "/config/02", "newer")
    words = ("put-back", store, "--prefix", "/config/")
    dry = ok(*words, "--dry-run")
    assert dry.out.splitlines()[:2] == ["+ /config/01", "! /config/02 is newer in etcd, and left alone"]
    assert live.etcdctl("get", "/config/01") == ""
    unasked = cli(*words)
    assert unasked.code == UsageError.exit_code
    assert live.etcdctl("get", "/config/01") == ""
    assert "1 key written" in ok(*words, "--yes").out
    assert live.etcdctl("get", "/config/01", "--print-value-only") == "value 1\n"
    assert live.etcdctl("get", "/config/02", "--print-value-only") == "newer\n"
    document = ok(*words, "--yes", "--overwrite-newer", "--output", "json").json
    assert [(each["key"], each["action"]) for each in document["keys"]] == [("/config/02", "overwrite")]
    assert live.etcdctl("get", "/config/02", "--print-value-only") == "value 2\n"


def test_put_back_of_one_key(ok, cli, live, store):
    ok("snapshot", "full", store)
    live.etcdctl("del", "/config/0", "--prefix")
    ok("put-back", store, "--only", "/config/03", "--yes")
    assert live.etcdctl("get", "/config/0", "--prefix", "--keys-only").split() == ["/config/03"]
    assert cli("put-back", store, "--yes").code == UsageError.exit_code


def test_put_back_asks_on_a_terminal(terminal, ok, live, store):
    ok("snapshot", "full", store)
    live.etcdctl("del", "/config/01")
    code, shown = terminal("put-back", store, "--prefix", "/config/", typed="n\n")
    assert code == UsageError.exit_code
    assert "write 1 key into the etcd at" in shown
    assert live.etcdctl("get", "/config/01") == ""
    assert terminal("put-back", store, "--prefix", "/config/", typed="y\n")[0] == 0
    assert live.etcdctl("get", "/config/01", "--print-value-only") == "value 1\n"


def test_progress_of_a_capture_is_shown_on_a_terminal(terminal, live, store):
    code, shown = terminal("snapshot", "full", store)
    assert code == 0, shown
    assert "Full-00000000-00000021" in shown


def test_a_user_and_a_password_come_from_flag_file_or_variable(ok, cli, live, store, tmp_path, monkeypatch):
    live.enable_auth("root", "secret")
    denied = cli("snapshot", "full", store)
    assert denied.code == EtcdDeniedError.exit_code
    missing = cli("snapshot", "full", store, "--user", "root")
    assert missing.code == UsageError.exit_code
    assert "no password is given" in missing.err
    (tmp_path / "password").write_text("secret\n")
    ok("snapshot", "full", store, "--user", "root", "--password-file", tmp_path / "password")
    monkeypatch.setenv("ROOTCELLAR_USER", "root")
    monkeypatch.setenv("ROOTCELLAR_PASSWORD", "secret")
    ok("snapshot", "delta", store)
    monkeypatch.setenv("ROOTCELLAR_PASSWORD", "wrong")
    wrong = cli("snapshot", "delta", store)
    assert wrong.code == EtcdDeniedError.exit_code
    assert "wrong" not in wrong.err.replace("wrong password", "")


def test_everything_about_etcd_may_stand_in_the_configuration(ok, etcd, authority, store, config, tmp_path):
    member = etcd.start("3.6", tls=authority)
    member.etcdctl("put", "a", "b")
    client = authority.client()
    config(
        f"stores:\n- {{name: main, url: 'file://{store}'}}\n"
        f"etcd:\n  endpoints: ['{member.endpoint}']\n"
        f"  tls: {{ca: {authority.ca}, cert: {client.certificate}, key: {client.key}}}\n"
    )
    assert ok("snapshot", "full", "--output", "json").json["full"]["last"] == 2
    assert ok("status", "--output", "json").json["behind"] == 0
    assert ok("config", "check").code == 0


def test_certificates_come_from_flags(ok, cli, etcd, authority, store):
    member = etcd.start("3.6", tls=authority)
    member.etcdctl("put", "a", "b")
    client = authority.client()
    words = ("snapshot", "full", store, "--endpoints", member.endpoint)
    ok(*words, "--cacert", authority.ca, "--cert", client.certificate, "--key", client.key)
    assert cli(*words, "--timeout", "3s").code == EtcdUnavailableError.exit_code


def test_without_endpoints_they_are_asked_for(cli, store):
    result = cli("snapshot", "full", store)
    assert result.code == UsageError.exit_code
    assert "--endpoints URLS (or ROOTCELLAR_ENDPOINTS)" in result.err


def test_an_etcd_that_does_not_answer_is_told(cli, store):
    result = cli("snapshot", "full", store, "--endpoints", "http://127.0.0.1:1", "--timeout", "1s")
    assert result.code == EtcdUnavailableError.exit_code
    assert "hint: " in result.err


def test_all_of_it_works_through_s3(ok, live, bucket, tmp_path, config):
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "accessKeyID").write_text(f"{bucket.access_key}\n")
    (keys / "secretAccessKey").write_text(f"{bucket.secret_key}\n")
    url = f"s3://{bucket.name}/prod/etcd-main?endpoint={bucket.endpoint}&region={bucket.region}"
    config(
        f"stores:\n- name: main\n  url: {url}\n"
        f"  credentials: {{dir: {keys}}}\n  limits: {{upload: 100MiB/s}}\n"
    )
    ok("snapshot", "full", "@main")
    live.etcdctl("put", "/config/01", "changed")
    ok("snapshot", "delta")
    before = live.hash_kv()
    ok("verify", "@main")
    assert ok("check", "@main").out.startswith("ROOTCELLAR OK")
    assert len(ok("keys", "@main").out.splitlines()) == 20
    plan = tmp_path / "plan.json"
    ok("restore", "@main", "--dry-run", "-o", plan)
    assert bucket.secret_key not in plan.read_text()
    live.kill()
    shutil.rmtree(live.data_dir)
    # The plan names the store by its URL; its keys come from the configured store of that URL.
    ok("restore", "--plan", plan, "--data-dir", live.data_dir)
    live.start()
    assert live.hash_kv(22).hash == before.hash
    again = ok("ls", url, "--credentials", f"dir:{keys}", "--output", "json").json
    assert again["window"]["last"] == 22


def test_keys_that_somebody_else_writes_meanwhile_are_told(ok, cli, live, store, monkeypatch):
    """The plan is made, then, before it is carried out, another writes: the guard holds, and it is told."""
    ok("snapshot", "full", store)
    live.etcdctl("del", "/config/01")
    carry_out = put_back.carry_out

    def late(*arguments):
        live.etcdctl("put", "/config/01", "theirs")
        return carry_out(*arguments)

    monkeypatch.setattr(put_back, "carry_out", late)
    result = cli("put-back", store, "--prefix", "/config/", "--yes")
    assert result.code == RootcellarError.exit_code
    assert "1 key left as they are: somebody wrote them in between" in result.err
    assert live.etcdctl("get", "/config/01", "--print-value-only") == "theirs\n"


def test_to_time_means_when_it_was_received(ok, live, store):
    ok("snapshot", "full", store)
    live.etcdctl("put", "/config/01", "good")
    ok("snapshot", "delta", store)
    moment = time.time_ns()
    live.etcdctl("put", "/config/01", "bad")
    ok("snapshot", "delta", store)
    at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(moment // 10**9))}.{moment % 10**9:09}Z"
    assert ok("get", store, "/config/01", "--at", at).out == "good"
    assert ok("get", store, "/config/01").out == "bad"
    shown = lose_and_restore(live, ok, store, "--to-time", at)
    assert shown["revision"] == 22
    assert live.etcdctl("get", "/config/01", "--print-value-only") == "good\n"
