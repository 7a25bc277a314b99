from __future__ import annotations

from rootcellar.backup.capture.base import base_of, fingerprint_of
from rootcellar.backup.capture.outcome import Need
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.history import History, Snapshot
from rootcellar.backup.catalogue.records import Lease
from tests.backup.builders import delta, full, record


def base(*snapshots):
    ordered = sorted(snapshots, key=lambda each: each.name.order)
    return base_of(History(tuple(ordered)), 1)


def test_without_a_full_there_is_nothing_to_continue():
    assert base().need is Need.FIRST
    assert base(delta(2, 10)).need is Need.FIRST


def test_the_first_delta_starts_behind_the_name_of_its_full_and_ends_nowhere_inside_it():
    found = base(full(100, real=110, recorded=True))
    assert (found.start, found.held) == (101, 110)
    assert list(found.forbidden) == list(range(100, 110))


def test_the_next_delta_starts_behind_the_last():
    newest = delta(121, 150, recorded=True)
    found = base(full(100, real=110, recorded=True), delta(101, 120, recorded=True), newest)
    assert (found.start, found.held, found.ends) == (151, 150, newest)


def test_a_gap_in_the_store_is_not_built_upon():
    found = base(full(100, recorded=True), delta(101, 120), delta(131, 150))
    assert found.need is Need.GAP
    assert "revisions 121 to 130 are missing" in found.reason


def test_nothing_follows_a_final_full():
    name = full(100).name
    final = Snapshot(name.__class__(**{**_fields(name), "final": True}), name.key, 100)
    assert base(final).need is Need.FINAL


def _fields(name):
    return {field: getattr(name, field) for field in name.__slots__}


def test_a_full_does_not_tear_the_chain_before_it():
    newest = delta(51, 90)
    found = base(full(50, recorded=True), newest, full(100, real=110, recorded=True))
    assert found.torn == newest
    assert (found.start, found.held) == (101, 110)


def test_a_chain_that_ended_before_an_older_full_is_not_mended():
    found = base(full(50), delta(51, 60), full(70), full(100, recorded=True))
    assert found.torn is None


def test_a_delta_that_spans_the_full_and_ends_with_it_is_continued_without_repeating():
    found = base(full(50, recorded=True), full(100, real=110, recorded=True), delta(91, 110, recorded=True))
    assert found.torn is None
    assert (found.start, found.held) == (111, 110)


def test_leases_recorded_since_the_full_need_not_be_asked_for_again():
    first = delta(101, 120, leases=(Lease(7, 60), Lease(8, 60)))
    second = delta(121, 130, leases=(Lease(9, 60),))
    assert base(full(100, recorded=True), first, second).leases == {7, 8, 9}


def test_the_auth_revision_is_that_of_the_last_full():
    found = base(full(100, auth_revision=4), delta(101, 120, auth_revision=5))
    assert found.auth_revision == 4
    assert base(full(100)).auth_revision is None


def test_what_a_delta_ends_with_is_in_its_events_where_no_record_says_it(ebr_backup):
    last = ebr_backup.expected["last_revision"]
    newest = max(read_catalogue(ebr_backup.store).snapshots, key=lambda each: each.last)
    assert newest.last == last
    assert not newest.is_full
    found = fingerprint_of(ebr_backup.store, newest)
    assert len(found) == 64
    told = record(newest.name, last_change="c" * 64)
    assert fingerprint_of(ebr_backup.store, Snapshot(newest.name, newest.key, 1, 1, told)) == "c" * 64


def test_a_damaged_delta_and_an_unrecorded_full_tell_nothing(ebr_backup):
    snapshots = read_catalogue(ebr_backup.store).snapshots
    newest = max(snapshots, key=lambda each: each.last)
    path = ebr_backup.root / newest.key
    path.write_bytes(path.read_bytes()[:-9])
    assert fingerprint_of(ebr_backup.store, newest) is None
    assert fingerprint_of(ebr_backup.store, next(each for each in snapshots if each.is_full)) is None
    path.unlink()
    assert fingerprint_of(ebr_backup.store, newest) is None
