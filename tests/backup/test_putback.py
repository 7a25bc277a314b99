import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.browse import putback
from rootcellar.backup.browse.browse import opened
from rootcellar.backup.browse.live import LiveKey, LiveKeyspace
from rootcellar.backup.browse.putback import Action, LeaseRule, disjoint, plan_put_back, put_back
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import EtcdError, EtcdUnavailableError, UsageError
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.history import KeyRange, Keyspace
from rootcellar.mvcc.record import KeyValue
from tests.mvcc.databases import snapshot_of

EVERYTHING = [KeyRange()]


@pytest.fixture
def client(etcd):
    with EtcdClient([etcd.start("3.6").endpoint]) as client:
        yield client


@pytest.fixture
def backup(client, tmp_path):
    """A backup of some keys at a known state; the etcd goes on."""
    for key in (b"/a/changed", b"/a/deleted", b"/a/same", b"/b/deleted"):
        client.put(key, b"then")
    with opened(snapshot_of(client, tmp_path / "db")) as backup:
        client.put(b"/a/changed", b"now")
        client.delete(b"/a/deleted")
        client.delete(b"/b/deleted")
        client.put(b"/a/extra", b"now")
        yield backup


def carried_out(client, backup, ranges, **options):
    """The outcomes of putting back, and what every key is afterwards."""
    plan = plan_put_back(backup.keyspace, LiveKeyspace(client), ranges, **options)
    outcomes = list(put_back(client, plan, lease_ttls=backup.lease_ttls))
    return outcomes, values(client)


def values(client):
    return {each.key: each.record.value for each in LiveKeyspace(client).live()}


def test_what_is_missing_comes_back_and_what_is_newer_stays(client, backup):
    plan = plan_put_back(backup.keyspace, LiveKeyspace(client), [KeyRange.prefix(b"/a/")])
    assert [(step.key, step.action) for step in plan.steps] == [(b"/a/deleted", Action.CREATE)]
    assert [(step.key, step.action) for step in plan.newer] == [(b"/a/changed", Action.NEWER)]
    assert (plan.same, plan.count(Action.CREATE), plan.size) == (1, 1, len(b"/a/deleted" + b"then"))
    (outcome,) = put_back(client, plan, lease_ttls={})
    assert outcome.written
    assert values(client) == {
        b"/a/changed": b"now",
        b"/a/deleted": b"then",
        b"/a/extra": b"now",
        b"/a/same": b"then",
    }


def test_a_plan_alone_writes_nothing(client, backup):
    before = client.header().revision
    plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING, overwrite_newer=True, delete_extra=True)
    assert client.header().revision == before


def test_newer_keys_are_overwritten_and_extra_ones_deleted_when_told(client, backup):
    outcomes, state = carried_out(client, backup, EVERYTHING, overwrite_newer=True, delete_extra=True)
    assert {outcome.step.key: outcome.step.action for outcome in outcomes} == {
        b"/a/changed": Action.OVERWRITE,
        b"/a/deleted": Action.CREATE,
        b"/a/extra": Action.DELETE,
        b"/b/deleted": Action.CREATE,
    }
    assert state == dict.fromkeys([b"/a/changed", b"/a/deleted", b"/a/same", b"/b/deleted"], b"then")


def test_doing_it_twice_finds_nothing_left_to_do(client, backup):
    carried_out(client, backup, EVERYTHING, overwrite_newer=True, delete_extra=True)
    again = plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING, delete_extra=True)
    assert (again.steps, again.newer, again.same) == ((), (), 4)


def test_single_keys_and_prefixes_may_be_named_together(client, backup):
    ranges = [KeyRange.single(b"/b/deleted"), KeyRange.prefix(b"/a/d"), KeyRange.single(b"/a/deleted")]
    outcomes, _ = carried_out(client, backup, ranges)
    assert [outcome.step.key for outcome in outcomes] == [b"/a/deleted", b"/b/deleted"]


def test_a_key_made_anew_since_is_newer_whatever_its_revision(client, backup):
    client.delete(b"/a/same")
    client.put(b"/a/same", b"another")
    plan = plan_put_back(backup.keyspace, LiveKeyspace(client), [KeyRange.single(b"/a/same")])
    assert [step.action for step in plan.newer] == [Action.NEWER]


def test_an_etcd_that_went_back_is_brought_forward(etcd, client, tmp_path):
    """A live etcd restored from an older backup has older keys of the same incarnation."""
    client.put(b"k", b"old")
    old = snapshot_of(client, tmp_path / "old.db")
    client.put(b"k", b"new")
    older = etcd.make("3.6")
    older.etcdutl("snapshot", "restore", old, "--data-dir", older.data_dir)
    older.start()
    with (
        opened(snapshot_of(client, tmp_path / "new.db")) as backup,
        EtcdClient([older.endpoint]) as restored,
    ):
        (outcome,), state = carried_out(restored, backup, EVERYTHING)
        assert (outcome.step.action, state) == (Action.OVERWRITE, {b"k": b"new"})


def test_deleting_everything_because_the_backup_has_nothing_there_is_refused(client, backup):
    client.put(b"/typo/x", b"")
    with pytest.raises(UsageError, match="has none of these keys") as caught:
        plan_put_back(backup.keyspace, LiveKeyspace(client), [KeyRange.prefix(b"/typo/")], delete_extra=True)
    assert "check the prefix" in caught.value.hint
    with pytest.raises(UsageError, match="no keys are named"):
        plan_put_back(backup.keyspace, LiveKeyspace(client), [])


def test_whoever_writes_between_plan_and_put_wins_and_is_reported(client, backup):
    plan = plan_put_back(
        backup.keyspace, LiveKeyspace(client), EVERYTHING, overwrite_newer=True, delete_extra=True
    )
    client.put(b"/a/changed", b"just now")
    client.put(b"/a/deleted", b"just now")
    client.put(b"/a/extra", b"just now")
    outcomes = {outcome.step.key: outcome.written for outcome in put_back(client, plan, lease_ttls={})}
    lost = [b"/a/changed", b"/a/deleted", b"/a/extra"]
    assert outcomes == dict.fromkeys(lost, False) | {b"/b/deleted": True}
    state = values(client)
    assert [state[key] for key in lost] == [b"just now"] * 3


def test_concurrent_writers_never_lose_a_write(etcd, etcd_line, tmp_path):
    member = etcd.start(etcd_line)
    names = [b"k%03d" % number for number in range(400)]
    with EtcdClient([member.endpoint]) as client:
        for name in names:
            client.put(name, b"backup")
        path = snapshot_of(client, tmp_path / "db")
        for name in names:
            client.put(name, b"changed")
        begun, stop = threading.Event(), threading.Event()

        def write():
            while not stop.is_set():
                for name in names[::7]:
                    client.put(name, b"writer")
                    begun.set()

        with opened(path) as backup:
            plan = plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING, overwrite_newer=True)
            writer = threading.Thread(target=write)
            writer.start()
            assert begun.wait(60)
            outcomes = list(put_back(client, plan, lease_ttls={}))
            stop.set()
            writer.join()
        with BoltFile(snapshot_of(client, tmp_path / "after")) as file:
            space = Keyspace(file)
            for outcome in outcomes:
                events = [(v.record.mod_revision, v.record.value) for v in space.history(outcome.step.key)]
                ours = [at for at, event in enumerate(events) if event == (outcome.revision, b"backup")]
                if outcome.written:
                    # Nothing came between what the plan saw and our write.
                    assert events[ours[0] - 1][0] == outcome.step.live_revision
                else:
                    assert not ours
                    assert events[-1][1] == b"writer"
    assert {outcome.written for outcome in outcomes} == {True, False}
    assert len(outcomes) == len(names)


def test_keys_of_one_lease_get_one_new_lease_of_its_ttl(client, tmp_path):
    old, other = client.lease_grant(600), client.lease_grant(900)
    for key, lease in ((b"a", old), (b"b", old), (b"c", other), (b"d", 0)):
        client.put(key, b"v", lease=lease)
    with opened(snapshot_of(client, tmp_path / "db")) as backup:
        client.lease_revoke(old)
        client.lease_revoke(other)
        client.delete(b"d")
        carried_out(client, backup, EVERYTHING)
        leases = {each.key: each.record.lease for each in LiveKeyspace(client).live()}
        assert leases[b"a"] == leases[b"b"] not in (old, 0)
        assert leases[b"d"] == 0
        granted = {lease: client.lease_ttl(lease).granted for lease in client.leases()}
        assert granted == {leases[b"a"]: 600, leases[b"c"]: 900}
        again = plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING)
        assert (again.steps, again.newer) == ((), ())


def test_without_leases_keys_stay_and_count_as_the_same_afterwards(client, tmp_path):
    lease = client.lease_grant(600)
    client.put(b"k", b"v", lease=lease)
    with opened(snapshot_of(client, tmp_path / "db")) as backup:
        client.lease_revoke(lease)
        (outcome,), _ = carried_out(client, backup, EVERYTHING, leases=LeaseRule.NONE)
        assert outcome.written
        assert client.leases() == ()
        again = plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING, leases=LeaseRule.NONE)
        assert again.same == 1


def test_a_lease_of_unknown_ttl_gets_the_default_and_an_unused_one_is_revoked(client, tmp_path):
    lease = client.lease_grant(600)
    client.put(b"k", b"v", lease=lease)
    with opened(snapshot_of(client, tmp_path / "db")) as backup:
        client.lease_revoke(lease)
        plan = plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING)
        client.put(b"k", b"somebody was faster")
        (outcome,) = put_back(client, plan, lease_ttls={})
        assert not outcome.written
        assert client.leases() == ()
        client.delete(b"k")
        plan = plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING)
        (outcome,) = put_back(client, plan, lease_ttls={})
        assert outcome.written
        (new,) = client.leases()
        assert client.lease_ttl(new).granted == putback.DEFAULT_LEASE_TTL


def test_large_values_and_many_keys_stay_below_etcds_limits(client, tmp_path):
    wanted = {b"m%04d" % number: b"x" * (number % 5) for number in range(300)}
    wanted |= {b"l%d" % number: b"y" * 400_000 for number in range(6)} | {b"xl": b"z" * 1_400_000}
    for key, value in wanted.items():
        client.put(key, value)
    with opened(snapshot_of(client, tmp_path / "db")) as backup:
        client.delete(*KeyRange().for_etcd())
        outcomes, state = carried_out(client, backup, EVERYTHING)
        assert state == wanted
        sizes = Counter(outcome.revision for outcome in outcomes)
        assert max(sizes.values()) == putback.BATCH_OPERATIONS


def test_a_value_the_live_etcd_takes_not_is_told_and_the_rest_is_reported(etcd, tmp_path):
    roomy, tight = (
        etcd.start("3.6", "roomy", flags=["--max-request-bytes=8000000"]),
        etcd.start("3.6", "tight"),
    )
    with EtcdClient([roomy.endpoint]) as source, EtcdClient([tight.endpoint]) as client:
        source.put(b"a", b"fits")
        source.put(b"b", b"x" * 1_800_000)
        with opened(snapshot_of(source, tmp_path / "db")) as backup:
            plan = plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING)
            done = []
            with pytest.raises(EtcdError, match="request is too large") as caught:
                done.extend(iter(put_back(client, plan, lease_ttls={})))
            assert "--max-request-bytes" in caught.value.hint
            assert values(client) == {b"a": b"fits"}


def test_an_etcd_that_stops_midway_leaves_whole_batches(etcd, tmp_path):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint], timeout=3) as client:
        for number in range(300):
            client.put(b"k%03d" % number, b"v")
        with opened(snapshot_of(client, tmp_path / "db")) as backup:
            client.delete(*KeyRange().for_etcd())
            plan = plan_put_back(backup.keyspace, LiveKeyspace(client), EVERYTHING)
            outcomes = put_back(client, plan, lease_ttls={})
            done = [next(outcomes).step.key for _ in range(putback.BATCH_OPERATIONS)]
            member.kill()
            with pytest.raises(EtcdUnavailableError):
                list(outcomes)
            member.start()
            # A fresh client: the old one waits a while before it tries a dead endpoint again.
            with EtcdClient([member.endpoint]) as fresh:
                assert sorted(values(fresh)) == done
                again = plan_put_back(backup.keyspace, LiveKeyspace(fresh), EVERYTHING)
                assert (again.same, len(again.steps)) == (128, 172)


ranges = st.builds(KeyRange, st.binary(max_size=2), st.one_of(st.none(), st.binary(max_size=2))).filter(
    lambda each: each.end is None or each.start < each.end
)


@given(st.lists(ranges, max_size=5), st.binary(max_size=3))
def test_disjoint_ranges_hold_the_same_keys_once(given_ranges, key):
    found = disjoint(given_ranges)
    assert sum(key in each for each in found) == any(key in each for each in given_ranges)
    assert [each.start for each in found] == sorted(each.start for each in found)


keys = st.lists(
    st.builds(
        KeyValue,
        key=st.sampled_from([b"a", b"b", b"c"]),
        create_revision=st.integers(1, 2),
        mod_revision=st.integers(2, 4),
        version=st.just(1),
        value=st.sampled_from([b"", b"x"]),
        lease=st.integers(0, 1),
    ),
    unique_by=lambda kv: kv.key,
)


@given(keys, keys, st.booleans(), st.booleans(), st.sampled_from(LeaseRule))
def test_a_plan_never_touches_what_it_was_not_told_to(backup, live, overwrite, delete, rule):
    def ordered(records):
        return iter([LiveKey(kv.key, kv) for kv in sorted(records)])

    state = {kv.key: kv for kv in live}
    wanted = {kv.key: kv for kv in backup}
    for step in putback.steps(
        ordered(backup), ordered(live), overwrite_newer=overwrite, delete_extra=delete, leases=rule
    ):
        there, ours = state.get(step.key), wanted.get(step.key)
        assert step.live_revision == (there.mod_revision if there else 0)
        if step.action is Action.DELETE:
            assert delete
            assert ours is None
        elif step.action is Action.CREATE:
            assert there is None
        elif step.action is Action.OVERWRITE and not overwrite:
            assert there.mod_revision <= ours.mod_revision
            assert there.create_revision == ours.create_revision
        elif step.action is Action.SAME:
            assert there.value == ours.value
        assert step.lease == (ours.lease if ours and rule is LeaseRule.RENEW else 0)
