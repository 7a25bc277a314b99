"""Prunes carried out on real stores: what stays restores, whatever comes between."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.catalogue import documents, fence, keys, ledger, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.backup.catalogue.ledger import keep_proof
from rootcellar.backup.catalogue.ownership import Claim
from rootcellar.backup.catalogue.records import Check, Finding, Link, Proof, Result
from rootcellar.backup.prune.prune import ask, prune, survey
from rootcellar.backup.prune.retention import Gfs, LimitBased
from rootcellar.backup.prune.values import Rules, What
from rootcellar.errors import DeniedError, DoubtError, FencedError, LockedError
from rootcellar.etcd.answers import Alarm, AlarmKind
from rootcellar.stores import Retention
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.file import FileStore
from tests.backup import ebr_rules
from tests.backup.builders import moment
from tests.backup.capture_scene import Between, a_scene
from tests.backup.prune_scene import DELTAS, FULLS, KEEP_ONE, STEP, contents, fill, must_restore
from tests.stores.places import s3_store

_prefixes = itertools.count(1)
NOW = datetime.now(UTC)


@pytest.fixture
def filled(store, tmp_path):
    fill(store, tmp_path)
    return store


@pytest.fixture(params=["file", "s3"])
def anywhere(request, tmp_path):
    if request.param == "file":
        return FileStore(tmp_path / "store")
    return s3_store(request.getfixturevalue("bucket"), f"prune-{next(_prefixes)}")


def snapshots_of(store):
    return {each.name.name for each in read_catalogue(store).snapshots}


def full_at(store, revision):
    return next(each for each in read_catalogue(store).snapshots if each.is_full and each.last == revision)


def test_what_goes_is_gone_with_all_that_spoke_of_it_and_what_stays_restores(filled, tmp_path):
    whole = contents(filled)
    done = prune(filled, KEEP_ONE, writer="tests/1")
    assert len([each for each in done.deleted if each.snapshot is not None]) == 8
    assert contents(filled).items() <= whole.items()
    assert len(contents(filled)) == 4
    catalogue = read_catalogue(filled)
    assert (catalogue.lost, catalogue.damaged) == ((), ())
    assert len([*filled.list(keys.RECORDS)]) == 4
    assert {each.reason for each in catalogue.tombstones} == {"there are 1 newer", "its full goes"}
    assert {(each.by, each.epoch) for each in catalogue.tombstones} == {("tests/1", 1)}
    must_restore(filled, tmp_path, FULLS[-1], 190, 220)


def test_tombstones_go_when_they_are_old_and_nothing_is_lost_by_it(filled):
    prune(filled, KEEP_ONE, writer="tests/1")
    late = NOW + timedelta(days=8)
    done = prune(filled, KEEP_ONE, writer="tests/1", clock=lambda: late)
    assert {each.what for each in done.deleted} == {What.TOMBSTONE}
    assert [*filled.list(keys.TOMBSTONES)] == []
    assert read_catalogue(filled).lost == ()
    again = prune(filled, KEEP_ONE, writer="tests/1", clock=lambda: late)
    assert again.deleted == []


def test_with_the_callers_epoch_none_is_claimed(filled):
    epoch = fence.claim_epoch(filled, "agent/1", NOW)
    prune(filled, KEEP_ONE, writer="agent/1", epoch=epoch)
    assert len([*filled.list(keys.EPOCHS)]) == 1
    fence.check_epoch(filled, epoch)


class InItsTime(StoreDecorator):
    """A store whose own clock shows the third day of what was filled in; this machine is years ahead."""

    NOW = moment(2.5 * 86_400)

    def stat(self, key, **which):
        return replace(self.inner.stat(key, **which), modified=self.NOW)

    def list(self, prefix="", **where):
        return (replace(info, modified=self.NOW) for info in self.inner.list(prefix, **where))

    def put(self, key, chunks, **how):
        return replace(self.inner.put(key, chunks, **how), modified=self.NOW)


@pytest.mark.parametrize("is_agent", [True, False])
def test_ages_are_held_to_the_stores_clock_also_in_the_callers_epoch(filled, is_agent):
    """By this machine's clock everything is older than the week for which deltas are kept."""
    epoch = fence.claim_epoch(filled, "agent/1", NOW) if is_agent else None
    whole = contents(filled)
    rules = Rules(LimitBased(1), deltas=timedelta(days=7))
    prune(InItsTime(filled), rules, writer="agent/1", epoch=epoch)
    assert contents(filled) == whole
    assert [*filled.list(keys.TIMES)] == []
    done = prune(filled, rules, writer="agent/1", epoch=epoch)
    assert len([each for each in done.deleted if each.snapshot is not None]) == 8


def test_what_told_the_time_goes_with_the_next_prune_where_it_could_not_before(filled):
    class Retains(StoreDecorator):
        def delete_many(self, keys_):
            refused = [key for key in keys_ if key.startswith(keys.TIMES)]
            return dict.fromkeys(refused, LockedError("retained", hint="wait"))

    prune(Retains(filled), Rules(LimitBased(9)), writer="tests/1")
    assert len([*filled.list(keys.TIMES)]) == 1
    prune(filled, Rules(LimitBased(9)), writer="tests/1")
    assert [*filled.list(keys.TIMES)] == []


def test_a_superseded_prune_stops_before_it_deletes_anything(filled):
    epoch = fence.claim_epoch(filled, "agent/1", NOW)
    fence.claim_epoch(filled, "agent/2", NOW)
    whole = contents(filled, "")
    with pytest.raises(FencedError, match="superseded by epoch 2"):
        prune(filled, KEEP_ONE, writer="agent/1", epoch=epoch)
    assert contents(filled, "") == whole


def test_a_prune_that_is_superseded_on_the_way_stops_between_batches(filled):
    class Overtaken(StoreDecorator):
        def delete_many(self, keys_):
            failed = super().delete_many(keys_)
            if len([*self.inner.list(keys.EPOCHS)]) == 1:
                fence.claim_epoch(self.inner, "agent/2", NOW)
            return failed

    with pytest.raises(FencedError, match="superseded by epoch 2"):
        prune(Overtaken(filled), KEEP_ONE, writer="agent/1")
    left = snapshots_of(filled)
    assert len([name for name in left if name.startswith("Full")]) == 3, "the fulls came after the deltas"
    prune(filled, KEEP_ONE, writer="agent/2")
    assert len(snapshots_of(filled)) == 4


@pytest.mark.parametrize("kind", ["hold", "pin"])
def test_what_is_held_while_a_prune_is_under_way_stays(filled, tmp_path, kind):
    """Someone comes after the deltas' deletion and before that of the fulls."""
    old = full_at(filled, FULLS[0])

    class Held(StoreDecorator):
        done = False

        def delete_many(self, keys_):
            failed = super().delete_many(keys_)
            if not self.done:
                self.done = True
                if kind == "hold":
                    ledger.write_hold(self.inner, old, reason="an audit", by="anna", now=NOW)
                else:
                    ledger.write_pin(self.inner, old, by="restore", now=NOW, until=NOW + timedelta(hours=1))
            return failed

    done = prune(Held(filled), KEEP_ONE, writer="tests/1")
    assert old.name.name in snapshots_of(filled)
    assert len(snapshots_of(filled)) == 5
    assert sum(each.snapshot is not None for each in done.deleted) == 7
    must_restore(filled, tmp_path, FULLS[0], 220)


class Condemned(StoreDecorator):
    """A store that does something right behind the first tombstone, when nothing is deleted yet."""

    def __init__(self, inner, then):
        super().__init__(inner)
        self._then = then

    def put(self, key, chunks, **how):
        info = super().put(key, chunks, **how)
        if key.startswith(keys.TOMBSTONES) and self._then is not None:
            then, self._then = self._then, None
            then()
        return info


def test_what_is_held_behind_its_tombstone_and_before_its_deletion_stays_whole(filled, tmp_path):
    old = full_at(filled, FULLS[0])
    reach = FULLS[0] + STEP * DELTAS

    def hold():
        ledger.write_hold(filled, old, reason="an audit", by="anna", now=NOW, through=reach)

    done = prune(Condemned(filled, hold), KEEP_ONE, writer="tests/1")
    assert sum(each.snapshot is not None for each in done.deleted) == 4
    must_restore(filled, tmp_path, FULLS[0], reach, 220)
    prune(filled, KEEP_ONE, writer="tests/1")
    assert len(snapshots_of(filled)) == 8


def test_a_prune_that_is_superseded_behind_its_tombstones_deletes_nothing(filled):
    whole = contents(filled)
    with pytest.raises(FencedError, match="superseded by epoch 2"):
        prune(
            Condemned(filled, lambda: fence.claim_epoch(filled, "agent/2", NOW)), KEEP_ONE, writer="agent/1"
        )
    assert contents(filled) == whole
    prune(filled, KEEP_ONE, writer="agent/2")
    assert len(snapshots_of(filled)) == 4


def test_a_claim_goes_with_its_delta(filled):
    deltas = [each for each in read_catalogue(filled).snapshots if not each.is_full]
    claims = {}
    for each in deltas:
        claim = Claim(
            start=each.name.start,
            epoch=each.record.epoch,
            timeline=1,
            key=each.key,
            stored_sha256=each.record.stored_sha256,
            created_at=NOW,
        )
        claims[each.key] = keys.claim(each.name.start, each.record.epoch)
        documents.put_once(filled, claims[each.key], claim)
    prune(filled, KEEP_ONE, writer="tests/1")
    left = [each.key for each in read_catalogue(filled).snapshots if not each.is_full]
    assert len(left) == DELTAS
    assert {info.key for info in filled.list(keys.CLAIMS)} == {claims[key] for key in left}


def test_nothing_is_written_where_there_is_doubt(filled):
    filled.put(keys.hold("1"), [b"{}"])
    epoch = fence.claim_epoch(filled, "agent/1", NOW)
    whole = contents(filled, "")
    with pytest.raises(DoubtError, match=r"holds/1.json cannot be believed"):
        prune(filled, KEEP_ONE, writer="agent/1", epoch=epoch)
    assert contents(filled, "") == whole


def test_what_cannot_be_deleted_keeps_what_it_builds_on(filled, tmp_path):
    stuck = names.delta(61, 80, full_at(filled, FULLS[0]).name.created + 7200).key

    class Stuck(StoreDecorator):
        def delete_many(self, keys_):
            wanted = list(keys_)
            failed = super().delete_many([key for key in wanted if key != stuck])
            return failed | {key: DeniedError(f"{key}: no") for key in wanted if key == stuck}

    done = prune(Stuck(filled), KEEP_ONE, writer="tests/1")
    assert list(done.failed) == [stuck]
    assert done.kept_for == {full_at(filled, FULLS[0]).key: stuck}
    assert read_catalogue(filled).lost == ()
    done = prune(filled, KEEP_ONE, writer="tests/1")
    assert (done.failed, done.kept_for) == ({}, {})
    assert len(snapshots_of(filled)) == 4


# Leftovers


def test_what_has_served_is_swept(filled):
    for number in range(12):
        fence.claim_epoch(filled, f"agent/{number}", NOW)
    epoch = fence.claim_epoch(filled, "agent/12", NOW)
    old, new = full_at(filled, FULLS[0]), full_at(filled, FULLS[2])
    held = ledger.write_hold(filled, old, reason="x", by="anna", now=NOW)
    ledger.release_hold(filled, held, reason="done", by="anna", now=NOW)
    ledger.write_pin(filled, old, by="a", now=NOW, until=NOW - timedelta(hours=1))
    kept_hold = ledger.write_hold(filled, new, reason="y", by="anna", now=NOW)
    ledger.release_hold(filled, kept_hold, reason="done", by="anna", now=NOW)
    fence.claim_slot(filled, epoch, names.delta(41, 60, 5), "a" * 64, 1, NOW)
    fence.claim_slot(filled, epoch, names.delta(221, 240, 5), "a" * 64, 1, NOW)
    for late in (0, 60):
        filled.put(
            keys.heartbeat(NOW + timedelta(seconds=late), 1),
            [documents.seal(fence.Heartbeat(time=NOW, revision=220, timeline=1, epoch=1, agent="a"))],
        )
    for each, check in ((old, Check.HASH), (new, Check.HASH)):
        finding = (Finding(check, Result.PASSED),)
        found = Proof(
            objects=(Link(each.name.key, each.record.stored_sha256),),
            revision=each.last,
            findings=finding,
            started_at=NOW,
            finished_at=NOW,
            by="verify",
        )
        keep_proof(filled, found)
    filled.put("v2/Incr-00000007-00000009-1700000000.gz", [b"an orphan"])
    filled.put("v2/Full-00000000-00000009-1700000000.gz.sha256", [b"a sidecar"])
    filled.put("v2/Full-00000000-00000009-1700000000.lz9", [b"of the future"])
    filled.put("v2/Full-00000000-00000008-1700000000.gz/0000000001", [b"a part"])
    filled.put("notes/readme.txt", [b"of a person"])
    filled.put("catalogue/other/x.json", [b"of a newer rootcellar"])
    early = prune(filled, KEEP_ONE, writer="tests/1")
    reported = {each.key for each in (*early.plan.snapshots, *early.plan.leftovers) if each.keep}
    assert {
        "v2/Incr-00000007-00000009-1700000000.gz",
        "v2/Full-00000000-00000009-1700000000.gz.sha256",
        "v2/Full-00000000-00000008-1700000000.gz/0000000001",
    } <= reported
    assert len([*filled.list(keys.CLAIMS)]) == 2
    prune(filled, KEEP_ONE, writer="tests/1", clock=lambda: NOW + timedelta(days=8))
    assert len([*filled.list(keys.EPOCHS)]) == 8
    assert [info.key for info in filled.list(keys.CLAIMS)] == [keys.claim(221, epoch.number)]
    assert len([*filled.list(keys.HEARTBEATS)]) == 1
    assert [info.key for info in filled.list(keys.HOLDS)] == [keys.hold(kept_hold.nonce)]
    assert [info.key for info in filled.list(keys.RELEASES)] == [keys.release(kept_hold.nonce)]
    assert [*filled.list(keys.PINS)] == []
    assert [info.key.split("/")[2] for info in filled.list(keys.PROOFS)] == [keys.stem(new.name)]
    rest = {info.key for info in filled.list()}
    assert {"notes/readme.txt", "catalogue/other/x.json"} <= rest
    assert "v2/Full-00000000-00000009-1700000000.lz9" in rest
    assert "v2/Full-00000000-00000009-1700000000.gz.sha256" not in rest
    assert "v2/Full-00000000-00000008-1700000000.gz/0000000001" not in rest
    assert "v2/Incr-00000007-00000009-1700000000.gz" not in rest


def test_the_record_of_what_is_lost_stays_while_something_older_does(filled):
    lost = full_at(filled, FULLS[1])
    filled.delete(lost.key)
    both = Rules(LimitBased(2))
    late = NOW + timedelta(days=30)
    done = prune(filled, both, writer="tests/1", clock=lambda: late)
    (told,) = [each for each in done.plan.leftovers if each.what is What.LOST]
    assert (told.keep, told.reason) == (True, f"the record of {lost.key}, which is gone")
    done = prune(filled, KEEP_ONE, writer="tests/1", clock=lambda: late)
    assert [each.key for each in done.deleted if each.what is What.LOST] == [keys.record(lost.name)]
    assert read_catalogue(filled).lost == ()


def test_an_unfinished_upload_goes_after_its_grace(bucket, tmp_path):
    store = s3_store(bucket, f"prune-{next(_prefixes)}")
    fill(store, tmp_path)
    key = f"{store.url.partition('?')[0].removeprefix(f's3://{bucket.name}/')}/v2/dead"
    bucket.client().create_multipart_upload(Bucket=bucket.name, Key=key)
    assert prune(store, KEEP_ONE, writer="tests/1").uploads == 0
    assert prune(store, Rules(LimitBased(1), grace=timedelta(0)), writer="tests/1").uploads == 1


def test_the_claim_of_a_killed_fold_stays_while_its_full_waits_for_a_record_and_goes_when_old(filled):
    def fold_claim(nonce, name):
        claim = Claim(start=0, epoch=1, timeline=1, key=name.key, stored_sha256="a" * 64, created_at=NOW)
        key = keys.claim(0, 1).removesuffix(".json") + f"_{nonce}.json"
        documents.put_once(filled, key, claim)
        return key

    waiting = names.full(220, full_at(filled, FULLS[2]).name.created + 90_000)
    filled.put(waiting.key, filled.get(full_at(filled, FULLS[2]).key))
    kept = fold_claim("00", waiting)
    never_came = fold_claim("01", names.full(220, 5))
    unreadable = keys.claim(0, 1).removesuffix(".json") + "_02.json"
    filled.put(unreadable, [b"{}"])
    prune(filled, KEEP_ONE, writer="tests/1", clock=lambda: NOW + timedelta(days=6))
    assert {info.key for info in filled.list(keys.CLAIMS)} == {kept, never_came, unreadable}

    prune(filled, KEEP_ONE, writer="tests/1", clock=lambda: NOW + timedelta(days=8))

    assert {info.key for info in filled.list(keys.CLAIMS)} == {kept, unreadable}
    assert waiting.key in {each.key for each in read_catalogue(filled).unrecorded}


# Object lock


def test_what_the_store_retains_stays_with_what_it_builds_on_and_is_told(locked_bucket, tmp_path):
    store = s3_store(locked_bucket, f"prune-{next(_prefixes)}")
    fill(store, tmp_path)
    fulls = [full_at(store, revision) for revision in FULLS]
    held = names.delta(61, 80, fulls[0].name.created + 7200).key
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    store.set_retention(held, Retention(legal_hold=True))
    store.set_retention(fulls[1].key, Retention(until))
    done = prune(store, KEEP_ONE, writer="tests/1")
    assert done.locked == {
        held: "a legal hold of the store",
        fulls[1].key: f"retained until {until:%Y-%m-%d %H:%M} UTC",
    }
    older = names.delta(41, 60, fulls[0].name.created + 3600).key
    assert done.kept_for == {older: held, fulls[0].key: held}
    assert done.failed == {}
    stays = {held, older, fulls[0].key, fulls[1].key}
    catalogue = read_catalogue(store)
    assert stays <= {each.key for each in catalogue.snapshots}
    assert not stays & {each.key for each in catalogue.tombstones}, "no tombstone beside what stays"
    must_restore(store, tmp_path, 80, FULLS[1], 220)
    store.set_retention(held, Retention())
    done = prune(store, KEEP_ONE, writer="tests/1")
    assert list(done.locked) == [fulls[1].key]
    assert len(snapshots_of(store)) == 5


def test_a_lock_that_comes_between_is_told_too(filled):
    class Locked(StoreDecorator):
        def delete_many(self, keys_):
            wanted = list(keys_)
            return {key: LockedError(f"{key}: a hold forbids it") for key in wanted if "/Full" in key} | (
                super().delete_many([key for key in wanted if "/Full" not in key])
            )

    done = prune(Locked(filled), KEEP_ONE, writer="tests/1")
    assert sorted(done.locked) == sorted(full_at(filled, revision).key for revision in FULLS[:2])
    assert done.failed == {}


class Unaskable(StoreDecorator):
    """Credentials that may delete, but not read what is retained."""

    def retention(self, key, *, version=None):
        raise DeniedError(f"{key}: not allowed to read its retention")


def test_credentials_that_may_not_ask_for_retention_say_so_and_the_store_s_own_word_holds(filled):
    class Locked(Unaskable):
        def delete_many(self, keys_):
            wanted = list(keys_)
            held = {key for key in wanted if "/Incr-00000061" in key}
            return {key: LockedError(f"{key}: a hold forbids it") for key in held} | (
                super().delete_many([key for key in wanted if key not in held])
            )

    old = full_at(filled, FULLS[0])
    held = names.delta(61, 80, old.name.created + 7200).key

    done = prune(Locked(filled), KEEP_ONE, writer="tests/1")

    assert done.unasked is not None
    assert done.unasked.endswith("not allowed to read its retention")
    assert (list(done.locked), done.kept_for, done.failed) == ([held], {old.key: held}, {})
    assert {old.key, held} <= {each.key for each in read_catalogue(filled).snapshots}


def test_with_nothing_locked_they_prune_as_any_other(anywhere, tmp_path):
    fill(anywhere, tmp_path)
    done = prune(Unaskable(anywhere), KEEP_ONE, writer="tests/1")
    assert done.unasked is not None
    assert (len(snapshots_of(anywhere)), done.locked, done.failed) == (4, {}, {})
    must_restore(anywhere, tmp_path, FULLS[-1], 220)
    assert prune(anywhere, KEEP_ONE, writer="tests/1").unasked is None


# Real captures


def test_real_captures_are_pruned_and_every_full_that_stays_restores(etcd, anywhere):
    with a_scene(etcd, "3.6", anywhere) as scene:
        points = []
        for _ in range(4):
            scene.write(10)
            record = scene.full()
            for _ in range(2):
                scene.write(5)
                scene.capture()
            points.append((record, scene.client.header().revision))
        oldest = next(
            each for each in read_catalogue(anywhere).snapshots if each.name.key == points[0][0].key
        )
        through = points[0][1]
        ledger.write_hold(anywhere, oldest, reason="a release", by="anna", now=NOW, through=through)
        done = prune(
            anywhere,
            Rules(LimitBased(2), deltas=timedelta(0)),
            writer="tests/1",
            live=ask(scene.client),
            clock=lambda: datetime.now(UTC) + timedelta(minutes=1),
        )
        assert done.failed == {}
        catalogue = read_catalogue(anywhere)
        assert (catalogue.lost, catalogue.damaged) == ((), ())
        fulls = [each.last for each in catalogue.snapshots if each.is_full]
        assert fulls == [record.last_revision for record, _ in (points[0], *points[2:])]
        assert len(catalogue.snapshots) - len(fulls) == 4, "those of the held and of the newest chain"
        assert ebr_rules.check_prefix(anywhere) == []
        assert plan_chain(catalogue, Latest()).reach == points[-1][1]
        for revision in (points[0][0].last_revision, through, points[2][0].last_revision, points[3][1]):
            scene.must_equal(scene.restored(revision), revision)
        scene.write(5)
        assert scene.capture().full is None, "the chain goes on"
        again = prune(anywhere, Rules(LimitBased(2), deltas=timedelta(0)), writer="tests/1")
        assert [each for each in again.deleted if each.snapshot is not None] == []


def test_a_corrupt_alarm_stops_a_prune(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        scene.write(3)
        scene.full()
        scene.full()
        assert not ask(scene.client).corrupt
        alarmed = Between(scene.client, alarms=lambda client: (Alarm(1, AlarmKind.CORRUPT),))
        before = contents(store)
        with pytest.raises(DoubtError, match="CORRUPT"):
            prune(store, KEEP_ONE, writer="tests/1", live=ask(alarmed))
        assert contents(store) == before


def test_a_survey_ages_by_the_store(filled):
    ground = survey(filled)
    assert {info.key for info in ground.listing} == {info.key for info in filled.list()}
    assert len(ground.catalogue.snapshots) == 12


def test_years_of_backups_come_down_to_what_the_generations_keep(store, tmp_path):
    """Names alone: EBR's prefixes have no records, and thousands of objects."""
    start = 1_700_000_000
    for day in range(400):
        store.put(names.full(10 * day + 10, start + 86_400 * day).key, [b"x"])
    rules = Rules(Gfs(daily=7, weekly=4, monthly=12, yearly=2))
    prune(store, rules, writer="tests/1", clock=lambda: moment(86_400 * 400))
    assert 19 <= len(snapshots_of(store)) <= 22
