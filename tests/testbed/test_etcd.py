import json
import os
import subprocess
import urllib.error
import urllib.request

import pytest

from testbed.etcd import start_together
from testbed.server import ServerError


def test_a_member_answers_once_it_is_started(etcd, etcd_line):
    member = etcd.start(etcd_line)
    member.etcdctl("put", "greeting", "hello")
    assert member.etcdctl("get", "greeting", "--print-value-only") == "hello\n"


def test_a_member_keeps_its_data_when_killed_and_started_again(etcd, etcd_line):
    member = etcd.start(etcd_line)
    member.etcdctl("put", "greeting", "hello")
    before = member.hash_kv()
    member.kill()
    member.start()
    assert member.hash_kv() == before


def test_a_member_starts_on_an_existing_data_directory(etcd):
    first = etcd.start("3.6")
    first.etcdctl("put", "greeting", "hello")
    before = first.hash_kv()
    first.stop()
    assert etcd.start("3.6", data_dir=first.data_dir).hash_kv() == before


def test_three_members_elect_one_leader(etcd, etcd_line):
    members = etcd.start_cluster(etcd_line)
    statuses = [member.etcdctl_json("endpoint", "status")[0]["Status"] for member in members]
    (leader,) = {status["leader"] for status in statuses}
    assert leader in {status["header"]["member_id"] for status in statuses}
    members[0].etcdctl("put", "greeting", "hello")
    assert members[2].etcdctl("get", "greeting", "--print-value-only") == "hello\n"


def test_a_cluster_answers_with_one_of_three_members_dead(etcd):
    members = etcd.start_cluster("3.7")
    members[0].kill()
    members[1].wait_healthy()
    members[1].etcdctl("put", "greeting", "hello")
    assert members[2].etcdctl("get", "greeting", "--print-value-only") == "hello\n"


def test_hash_kv_tells_revisions_apart_and_compaction(etcd, etcd_line):
    member = etcd.start(etcd_line)
    for number in range(5):
        member.etcdctl("put", "key", str(number))
    assert member.hash_kv(4) != member.hash_kv(5)
    assert member.hash_kv().revision == 6
    member.etcdctl("compact", "4", "--physical")
    assert member.hash_kv(6).compact_revision == 4


def test_a_snapshot_restores_with_the_lines_own_tool(etcd, etcd_line, tmp_path):
    member = etcd.start(etcd_line)
    member.etcdctl("put", "greeting", "hello")
    member.etcdctl("snapshot", "save", tmp_path / "snapshot.db")
    restored = etcd.make(etcd_line)
    restored.etcdutl("snapshot", "restore", tmp_path / "snapshot.db", "--data-dir", restored.data_dir)
    restored.start()
    assert restored.hash_kv().hash == member.hash_kv().hash


def test_auth_is_on_for_everybody_but_the_user_it_knows(etcd, etcd_line):
    member = etcd.start(etcd_line)
    member.enable_auth("root", "secret")
    member.etcdctl("put", "greeting", "hello")
    stranger = [member.programs.etcdctl, "--endpoints", member.endpoint, "put", "greeting", "bye"]
    refused = subprocess.run(
        stranger, env=os.environ | {"ETCDCTL_API": "3"}, capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0
    assert "user name is empty" in refused.stderr


def test_tls_serves_clients_with_a_certificate_and_no_others(etcd, etcd_line, authority):
    member = etcd.start(etcd_line, tls=authority)
    assert member.endpoint.startswith("https://")
    member.etcdctl("put", "greeting", "hello")
    known = authority.context(authority.client())
    with urllib.request.urlopen(f"{member.endpoint}/version", context=known) as answer:
        assert json.load(answer)["etcdserver"] == member.version
    with pytest.raises((urllib.error.URLError, OSError), match=r"certificate required|alert|reset"):
        urllib.request.urlopen(f"{member.endpoint}/version", context=authority.context())


def test_a_cluster_can_be_started_member_by_member(etcd):
    members = etcd.make_cluster("3.5")
    members[0].start_soon()
    members[0].wait_until(lambda: "ready to serve" not in members[0].last_words(), "waiting for a majority")
    start_together(members[1:])
    members[0].wait_healthy()


def test_an_etcd_that_exits_at_once_is_an_error_with_its_last_words(etcd):
    with pytest.raises(ServerError, match="exited with 2 before it was healthy") as caught:
        etcd.start("3.6", flags=["--no-such-flag"])
    assert "flag provided but not defined: -no-such-flag" in str(caught.value)


def test_a_failing_etcdctl_says_why(etcd):
    member = etcd.start("3.6")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        member.etcdctl("lease", "revoke", "1")
    assert any("requested lease not found" in note for note in caught.value.__notes__)
