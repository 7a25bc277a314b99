"""What is done before etcd starts, on real data directories, stores and clusters."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice

import pytest

from rootcellar.agent import initialization
from rootcellar.agent.initialization import initialize, store_facts
from rootcellar.agent.start_plan import Deed, StoreState
from rootcellar.agent.validation import Mode, Status, validate
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision
from rootcellar.backup.restore import place
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.backup.restore.restore import restore
from rootcellar.errors import (
    DamagedObjectError,
    NothingToRestoreError,
    StoreError,
    TargetError,
)
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.backoff import Backoff
from rootcellar.stores.credentials import FileCredentials
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.file import FileStore
from rootcellar.stores.url import open_store
from tests.agent.door_scene import (
    backed_up_member,
    break_pages,
    captured,
    closed_port,
    contents,
    database,
    home,
    lived,
    stillborn,
)
from tests.backup.killing import Killer

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


@pytest.fixture
def backed_up(etcd, store):
    return partial(backed_up_member, etcd, store)


def test_a_damaged_member_is_restored_and_its_data_kept(backed_up, store, etcd_line):
    member, hashed = backed_up(etcd_line)
    break_pages(database(member))
    damaged = contents(member.data_dir / "member")
    done = initialize(home(member, store=lambda: store), Mode.FULL)
    assert (done.plan.deed, done.found.status) == (Deed.RESTORE, Status.BOLT_CORRUPT)
    assert contents(done.quarantined) == damaged
    member.start()
    assert member.hash_kv() == hashed


def test_a_lost_volume_is_restored(backed_up, store):
    member, hashed = backed_up()
    shutil.rmtree(member.data_dir)
    done = initialize(home(member, store=lambda: store), Mode.FULL)
    assert (done.plan.deed, done.quarantined) == (Deed.RESTORE, None)
    member.start()
    assert member.hash_kv() == hashed


def test_a_member_without_its_log_is_restored_after_a_shallow_look_too(backed_up, store):
    member, hashed = backed_up()
    for segment in (member.data_dir / "member" / "wal").glob("*.wal"):
        segment.unlink()
    assert initialize(home(member, store=lambda: store), Mode.SANITY).plan.deed is Deed.RESTORE
    member.start()
    assert member.hash_kv() == hashed


def test_a_healthy_member_is_left_as_it_is(backed_up, store):
    member, _ = backed_up()
    before = contents(member.data_dir / "member")
    done = initialize(home(member, store=lambda: store), Mode.FULL)
    assert done.plan.deed is Deed.KEEP
    assert contents(member.data_dir / "member") == before


def test_a_second_start_finds_nothing_to_do(backed_up, store):
    member, _ = backed_up()
    shutil.rmtree(member.data_dir)
    there = home(member, store=lambda: store)
    assert initialize(there, Mode.FULL).plan.deed is Deed.RESTORE
    assert initialize(there, Mode.FULL).plan.deed is Deed.KEEP


def unreachable(port):
    url = f"s3://bucket/prefix?endpoint=http://127.0.0.1:{port}&region=us-east-1"
    return open_store(url, backoff=Backoff(attempts=1))


def test_a_healthy_member_starts_while_the_store_does_not_answer_and_this_is_said(backed_up):
    member, _ = backed_up()
    with closed_port() as port:
        done = initialize(home(member, store=lambda: unreachable(port)), Mode.FULL)
    assert done.plan.deed is Deed.KEEP
    (warning,) = done.warnings
    assert warning.startswith("the store cannot be read")


@pytest.fixture
def hasty(monkeypatch):
    """A start that waits half a second for a store's first answer."""
    monkeypatch.setattr(initialization, "_SILENT_SECONDS", 0.5)


@pytest.mark.usefixtures("hasty")
def test_a_healthy_member_does_not_wait_for_a_store_that_takes_calls_and_says_nothing(backed_up, tmp_path):
    member, _ = backed_up()
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"accessKeyID": "a", "secretAccessKey": "b"}))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"s3://bucket/prefix?endpoint=http://127.0.0.1:{silent.getsockname()[1]}&region=us-east-1"
        opened = open_store(url, credentials=FileCredentials(keys))
        done = initialize(home(member, store=lambda: opened), Mode.FULL)
    assert done.plan.deed is Deed.KEEP
    assert done.warnings == ("the store cannot be read: no answer within 0.5 s",)


def test_a_healthy_member_starts_while_what_its_first_call_needs_of_the_credentials_is_missing(
    backed_up, tmp_path
):
    """As the token of a workload identity is, which a pod may get late."""
    member, _ = backed_up()
    account = tmp_path / "account.json"
    told = {
        "type": "external_account",
        "audience": "a",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "http://127.0.0.1:1/token",
        "credential_source": {"file": str(tmp_path / "late")},
    }
    account.write_text(json.dumps(told))
    opened = open_store("gs://bucket/prefix", credentials=FileCredentials(account))
    done = initialize(home(member, store=lambda: opened), Mode.FULL)
    assert done.plan.deed is Deed.KEEP
    (warning,) = done.warnings
    assert str(tmp_path / "late") in warning
    break_pages(database(member))
    with pytest.raises(StoreError, match="the store cannot be read: no token"):
        initialize(home(member, store=lambda: opened), Mode.FULL)


def test_a_damaged_member_waits_for_the_store_and_is_not_touched(backed_up):
    member, _ = backed_up()
    break_pages(database(member))
    before = contents(member.data_dir)
    with closed_port() as port, pytest.raises(StoreError, match="cannot be read"):
        initialize(home(member, store=lambda: unreachable(port)), Mode.FULL)
    assert contents(member.data_dir).items() >= before.items()


@pytest.mark.parametrize("with_store", [True, False], ids=["empty store", "no store"])
def test_damaged_data_without_any_backup_is_kept_in_quarantine(etcd, store, with_store):
    """Druid's D13 and 3.10: there it is deleted."""
    member = lived(etcd, "3.6")
    member.stop()
    break_pages(database(member))
    damaged = contents(member.data_dir / "member")
    done = initialize(home(member, store=(lambda: store) if with_store else None), Mode.FULL)
    assert done.plan.deed is Deed.START_EMPTY
    assert contents(done.quarantined) == damaged
    assert not (member.data_dir / "member").exists()
    member.start()
    assert member.hash_kv().revision == 1


class Slow(StoreDecorator):
    """Takes more time over a listing, once it has begun, than there is for a first answer: it is read to its
    end for healthy data too.
    """

    def __init__(self, inner, may_go_on):
        super().__init__(inner)
        self.may_go_on = may_go_on

    def list(self, prefix="", *, after=""):
        found = iter(self.inner.list(prefix, after=after))
        yield from islice(found, 1)
        assert self.may_go_on.wait(60)
        yield from found


@pytest.fixture
def answered(monkeypatch):
    """Set once a store has given its first answer within the time for it."""
    found, within = threading.Event(), initialization.within

    def watched(*how):
        store = within(*how)
        found.set()
        return store

    monkeypatch.setattr(initialization, "within", watched)
    return found


def test_a_database_older_than_the_store_is_restored_over(store, etcd, tmp_path, answered):
    member = lived(etcd, "3.6")
    member.stop()
    shutil.copytree(member.data_dir, tmp_path / "early")
    member.start()
    with EtcdClient([member.endpoint]) as client:
        captured(client, store)
    hashed = member.hash_kv()
    member.stop()
    shutil.rmtree(member.data_dir)
    shutil.copytree(tmp_path / "early", member.data_dir)
    done = initialize(home(member, store=lambda: Slow(store, answered)), Mode.SANITY)
    assert (done.plan.deed, done.found.status) == (Deed.RESTORE, Status.REVISION_BEHIND)
    member.start()
    assert member.hash_kv() == hashed


def test_a_member_killed_before_it_committed_is_not_taken_for_behind(etcd, store):
    """The reference starts an etcd on the live data to find out; the log's end tells as much."""
    member = lived(etcd, "3.6")
    with EtcdClient([member.endpoint]) as client:
        last = captured(client, store)
        client.put(b"newest", b"v")
    member.kill()
    done = initialize(home(member, store=lambda: store), Mode.FULL)
    assert done.plan.deed is Deed.KEEP, done.found
    member.start()
    assert member.hash_kv().revision == last + 1


def test_a_restore_to_an_older_point_is_not_undone_by_the_next_start(backed_up, store):
    member, _ = backed_up()
    there = home(member, store=lambda: store)
    members = (f"m1={member.peer_url}",)
    wish = Wish(AtRevision(45), secrets.token_hex(8), members, announce=True, bump_revision=0)
    restore(
        plan_restore(read_catalogue(store), store.url, wish), store, {"m1": member.data_dir}, replace=True
    )
    done = initialize(there, Mode.FULL)
    assert done.plan.deed is Deed.KEEP, done.found
    member.start()
    assert member.hash_kv().revision == 45


def test_deltas_without_a_full_are_no_empty_store(etcd, store):
    """The reference dies of a nil pointer there, or starts empty."""
    member = lived(etcd, "3.6")
    with EtcdClient([member.endpoint]) as client:
        captured(client, store)
    member.stop()
    (full,) = (info.key for info in store.list() if "Full-" in info.key)
    store.delete(full)
    assert store_facts(store).state is StoreState.BROKEN
    shutil.rmtree(member.data_dir)
    with pytest.raises(NothingToRestoreError, match="no backup can be restored"):
        initialize(home(member, store=lambda: store), Mode.FULL)
    assert not (member.data_dir / "member").exists()


def test_a_damaged_backup_is_not_guessed_around(backed_up, store, tmp_path):
    member, _ = backed_up()
    (delta,) = (info.key for info in store.list() if "Incr-" in info.key)
    path = tmp_path / "store" / delta
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-40] + b"\0" * 40)
    break_pages(database(member))
    with pytest.raises(DamagedObjectError) as caught:
        initialize(home(member, store=lambda: store), Mode.FULL)
    assert delta in caught.value.message
    assert "--to-revision" in caught.value.hint
    assert database(member).exists()


def test_what_was_restored_and_went_bad_is_restored_again(backed_up, store):
    member, hashed = backed_up()
    there = home(member, store=lambda: store)
    shutil.rmtree(member.data_dir)
    initialize(there, Mode.FULL)
    break_pages(database(member))
    assert initialize(there, Mode.FULL).plan.deed is Deed.RESTORE
    member.start()
    assert member.hash_kv() == hashed


def test_a_volume_of_another_namespace_is_not_touched(backed_up, store):
    member, _ = backed_up()
    first = home(member, store=lambda: store, namespace="shoot--a")
    initialize(first, Mode.SANITY)
    break_pages(database(member))
    before = contents(member.data_dir)
    with pytest.raises(TargetError, match="shoot--a"):
        initialize(replace(first, namespace="shoot--b"), Mode.FULL)
    assert contents(member.data_dir).items() >= before.items()


def test_a_running_etcd_is_not_touched(etcd, store):
    member = lived(etcd, "3.6")
    with pytest.raises(TargetError, match="an etcd is running"):
        initialize(home(member, store=lambda: store), Mode.FULL)
    assert member.hash_kv().revision == 41


def test_what_keeps_failing_does_not_eat_what_it_failed_on(etcd):
    member = lived(etcd, "3.6")
    member.stop()
    there = home(member)
    for hour in range(2):
        break_pages(database(member))
        initialize(there, Mode.FULL, now=lambda hour=hour: NOW + timedelta(hours=hour))
        member.start()
        member.stop()
    break_pages(database(member))
    with pytest.raises(TargetError, match="2 times within a day"):
        initialize(there, Mode.FULL, now=lambda: NOW + timedelta(hours=3))
    assert database(member).exists()
    initialize(there, Mode.FULL, now=lambda: NOW + timedelta(days=3))
    assert len(place.quarantines(member.data_dir)) == 2


@pytest.mark.parametrize("unborn", [False, True], ids=["nothing", "a database of no member"])
def test_a_directory_without_a_member_is_restored_and_pushes_no_quarantine_out(
    backed_up, store, etcd, unborn
):
    member, hashed = backed_up()
    now = datetime.now(UTC)
    for hours in (2, 1):
        with place.locked(member.data_dir):
            kept = place.set_aside(member.data_dir, now - timedelta(hours=hours))
        shutil.copytree(kept, member.data_dir / "member")
    shutil.rmtree(member.data_dir / "member")
    if unborn:
        shutil.copytree(stillborn(etcd, "3.6").data_dir / "member", member.data_dir / "member")
    kept = place.quarantines(member.data_dir)
    assert initialize(home(member, store=lambda: store), Mode.FULL).plan.deed is Deed.RESTORE
    assert place.quarantines(member.data_dir) == kept
    assert len(kept) == 2
    member.start()
    assert member.hash_kv() == hashed


def test_what_became_a_member_while_the_store_was_asked_is_not_deleted(backed_up, store, tmp_path):
    member, _ = backed_up()
    (member.data_dir / "member").rename(tmp_path / "member")

    def slow():
        (tmp_path / "member").rename(member.data_dir / "member")
        return store

    with pytest.raises(TargetError, match="written to meanwhile"):
        initialize(home(member, store=slow), Mode.FULL)
    assert database(member).exists()


# killed anywhere


def start(data_dir, root, peer_url):
    """One initialization, in a process that may be killed."""
    there = Killable(data_dir, peer_url)
    initialize(home(there, store=lambda: FileStore(root)), Mode.FULL)


class Killable:
    def __init__(self, data_dir, peer_url):
        self.data_dir, self.name, self.initial_cluster = data_dir, "m1", f"m1={peer_url}"


@pytest.mark.parametrize("holds", [True, False], ids=["restore", "start empty"])
def test_killed_anywhere_the_old_data_is_there_and_the_next_start_ends_it(backed_up, store, tmp_path, holds):
    member, _ = backed_up()
    break_pages(database(member))
    damaged = contents(member.data_dir / "member")
    root = tmp_path / ("store" if holds else "empty")
    deaths = 0
    with Killer() as killer:
        for at in range(1000):
            data_dir = tmp_path / f"data-{at}" / "etcd"
            shutil.copytree(member.data_dir, data_dir)
            killed = killer.run(start, data_dir, root, member.peer_url, at=at)
            deaths += killed
            start(data_dir, root, member.peer_url)
            found = validate(data_dir, Mode.FULL)
            assert found.valid if holds else found.blank, (at, found)
            kept = [contents(path) for _, path in place.quarantines(data_dir)]
            assert kept == [damaged], at
            shutil.rmtree(data_dir.parent)
            if not killed:
                break
    assert deaths > (30 if holds else 5)


def test_killed_while_it_clears_away_what_never_was_a_member_the_next_start_ends_it(etcd, tmp_path):
    left = stillborn(etcd, "3.6")
    deaths = 0
    with Killer() as killer:
        for at in range(1000):
            data_dir = tmp_path / f"data-{at}" / "etcd"
            shutil.copytree(left.data_dir, data_dir)
            killed = killer.run(start, data_dir, tmp_path / "empty", left.peer_url, at=at)
            deaths += killed
            start(data_dir, tmp_path / "empty", left.peer_url)
            assert [path.name for path in data_dir.iterdir()] == [place.LOCK], at
            if not killed:
                break
    assert deaths > 3
