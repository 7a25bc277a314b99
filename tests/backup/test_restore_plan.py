from __future__ import annotations

import json

import msgspec
import pytest

from rootcellar.backup.restore.plan import (
    ExpectedHash,
    PlannedObject,
    RestorePlan,
    planned_members,
    read_plan,
    write_plan,
)
from rootcellar.errors import UsageError
from rootcellar.mvcc.membership import cluster_id, member_id


def plan(**changes):
    cluster, members = planned_members(["a=http://h1:2380", "b=http://h2:2380"], "token")
    whole = RestorePlan(
        store="file:///backups",
        full=PlannedObject("v2/Full-1", 10, ".gz", 5),
        deltas=(PlannedObject("v2/Incr-1", 10, "", 9, payload_size=70, sha256="ab"),),
        token="token",
        cluster_id=cluster,
        members=members,
        lease_ttls={7: 600, 1 << 62: 30},
        expected=ExpectedHash(1, 2, -1),
        warnings=("something",),
    )
    return msgspec.structs.replace(whole, **changes)


def test_a_plan_comes_back_from_its_file(tmp_path):
    write_plan(plan(), tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan()
    assert json.loads((tmp_path / "plan.json").read_text())["apiVersion"] == "rootcellar.dev/v1"


def test_the_digest_tells_plans_apart_and_survives_the_file(tmp_path):
    write_plan(plan(), tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json").digest == plan().digest
    changes = [
        {"token": "other"},
        {"upto": 7},
        {"moment": 7},
        {"compact_revision": 4},
        {"lease_ttls": {7: 601}},
        {"deltas": ()},
    ]
    assert len({plan().digest, *(plan(**change).digest for change in changes)}) == 1 + len(changes)
    turned = dict(reversed(plan().lease_ttls.items()))
    assert plan(lease_ttls=turned).digest == plan().digest


def test_members_have_the_ids_that_etcd_gives_them():
    cluster, members = planned_members(["b=http://h2:2380", "a=http://h1:2380"], "token")
    ids = {"a": member_id(["http://h1:2380"], "token"), "b": member_id(["http://h2:2380"], "token")}
    assert {member.name: int(member.id, 16) for member in members} == ids
    assert int(cluster, 16) == cluster_id(ids.values())
    assert members[0].member().peer_urls in {("http://h1:2380",), ("http://h2:2380",)}


def test_a_member_is_chosen_by_name_or_by_being_alone():
    assert plan().member("b").name == "b"
    with pytest.raises(UsageError, match="several members") as caught:
        plan().member(None)
    assert "a, b" in caught.value.hint or "b, a" in caught.value.hint
    with pytest.raises(UsageError, match="no member c"):
        plan().member("c")
    alone = plan(members=plan().members[:1])
    assert alone.member(None) == alone.members[0]


def edited(path, **changes):
    write_plan(plan(), path)
    document = json.loads(path.read_text())
    document.update(changes)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"clusterId": "xyz"},
        {"clusterId": ""},
        {"clusterId": "0"},
        {"clusterId": "1" * 17},
        {"members": []},
        {"members": [{"name": "a", "peerUrls": [], "id": "none"}]},
        {"quota": -1},
        {"bumpRevision": -5},
        {"deltas": None},
        {"leaseTtls": {"seven": 1}},
        {"upto": "seven"},
    ],
)
def test_a_plan_that_was_edited_to_nonsense_is_refused(tmp_path, changes):
    with pytest.raises(UsageError, match="is no restore plan") as caught:
        read_plan(edited(tmp_path / "plan.json", **changes))
    assert "-o wrote" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{}", "[]", "\xff", "[" * 100_000, '{"x":' * 50_000])
def test_what_is_no_plan_is_refused(tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match="is no restore plan"):
        read_plan(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("changes", [{"apiVersion": "rootcellar.dev/v9"}, {"kind": "Sandwich"}])
def test_a_plan_of_another_kind_is_refused(tmp_path, changes):
    with pytest.raises(UsageError, match="is a ") as caught:
        read_plan(edited(tmp_path / "plan.json", **changes))
    assert "matching rootcellar" in caught.value.hint
