"""A full and its deltas made into one file: every way of cutting a chain comes to the same history."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import pytest

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import codecs, delta
from rootcellar.backup.objects.delta import Event, format_time
from rootcellar.backup.restore import database
from rootcellar.backup.restore.database import Applied, Piece, apply_deltas, write_full
from rootcellar.backup.restore.replay import StoredDelta
from rootcellar.backup.restore.rows import Window
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import ChainError, DamagedObjectError, RecordError
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.mvcc.meta import encode_compaction
from rootcellar.mvcc.revision import KEY_BUCKET
from tests.backup.histories import BEGINNING, SECOND, compacted, invent, rows_of, stored, upto
from tests.backup.histories import database as database_of
from tests.backup.killing import Killer

EVENTS = invent(300, 7)
LAST = EVENTS[-1].mod_revision
FULL = 100


@dataclass
class Chain:
    """Deltas as a plan hands them over; `reads` counts how often each was fetched."""

    pieces: list[Piece]
    reads: list[str]


def chain(*ranges, upto=None, moment=None, events=EVENTS, suffix=names.GZIP):
    """Deltas of these ranges of revisions (both ends included)."""
    pieces, reads = [], []
    for number, (first, last) in enumerate(ranges):
        data = stored([event for event in events if first <= event.mod_revision <= last], suffix)
        name = f"v2/delta-{number}"

        def read(name=name, data=data):
            reads.append(name)
            return [data]

        pieces.append(Piece(StoredDelta(name, suffix, last, Window(0, upto, moment)), len(data), read))
    return Chain(pieces, reads)


def applied(path, deltas, compact_revision=-1):
    with Transaction(path) as transaction:
        outcome = apply_deltas(
            transaction, deltas.pieces, compact_revision=compact_revision, progress=lambda *_: None
        )
        transaction.commit(both_metas=True)
    with BoltFile(path) as file:
        check(file)
    return outcome


def rows(path):
    with BoltFile(path) as file:
        return dict(file.bucket(KEY_BUCKET).items())


@pytest.fixture
def full(tmp_path):
    return database_of(tmp_path / "db", upto(EVENTS, FULL))


@pytest.fixture
def way(request, monkeypatch):
    """Small chains are decoded in place, large ones by other processes (which take long to start)."""
    if request.param == "by workers":
        monkeypatch.setattr(database, "IN_PLACE_BYTES", 0)


both_ways = pytest.mark.parametrize("way", ["in place", "by workers"], indirect=True)


CUTS = {
    "end to end": [(101, 150), (151, 200), (201, LAST)],
    "overlapping": [(101, 150), (120, 200), (190, LAST)],
    "below the full": [(50, 90), (91, 100), (80, 140), (141, LAST)],
    "one within the other": [(101, 200), (120, 180), (201, LAST)],
    "twice": [(101, 200), (101, 200), (201, LAST), (201, LAST)],
    "single revisions": [(number, number) for number in range(101, LAST + 1)],
    "all in one": [(2, LAST)],
}


@both_ways
@pytest.mark.parametrize("cuts", CUTS)
def test_however_a_chain_is_cut_it_comes_to_the_same_history(full, cuts, way):
    outcome = applied(full, chain(*CUTS[cuts]))
    assert rows(full) == rows_of(EVENTS)
    assert (outcome.revision, outcome.reached_end) == (LAST, True)
    assert outcome.events == len(EVENTS) - len(upto(EVENTS, FULL))
    assert outcome.leases == {event.lease for event in EVENTS if event.mod_revision > FULL} - {0}
    assert outcome.last_time == EVENTS[-1].time


def test_a_delta_that_adds_nothing_is_not_even_fetched(full):
    deltas = chain((50, 90), (80, 100), (101, 200), (150, 190), (201, LAST))
    applied(full, deltas)
    assert deltas.reads == ["v2/delta-2", "v2/delta-4"]


@pytest.mark.parametrize("wanted", [101, 149, 150, 151, 200, 222, LAST])
def test_a_chain_can_end_at_any_revision(full, wanted):
    outcome = applied(full, chain(*CUTS["end to end"], upto=wanted))
    assert rows(full) == rows_of(upto(EVENTS, wanted))
    assert outcome.revision == wanted


@pytest.mark.parametrize("wanted", [99, 100, 101, 150, 151, 222, LAST, LAST + 50])
def test_a_chain_can_end_at_any_moment(full, wanted):
    outcome = applied(full, chain(*CUTS["end to end"], moment=BEGINNING + wanted * SECOND))
    reached = min(max(wanted, FULL), LAST)
    assert rows(full) == rows_of(upto(EVENTS, reached))
    assert (outcome.revision, outcome.reached_end) == (reached, reached == LAST)


@both_ways
def test_an_end_by_time_is_not_taken_for_a_gap(full, way):
    """The first delta ends early, the second begins behind its end: nothing is missing."""
    outcome = applied(full, chain((101, 200), (201, LAST), moment=BEGINNING + 150 * SECOND))
    assert (outcome.revision, outcome.reached_end) == (150, False)


@pytest.mark.parametrize("missing", [(101, 101), (101, 130), (180, 200), (160, 160)])
def test_a_gap_is_told_by_the_delta_behind_it(full, missing):
    first, last = missing
    before = [(101, first - 1)] if first > 101 else []
    with pytest.raises(ChainError) as caught:
        applied(full, chain(*before, (last + 1, LAST)))
    assert caught.value.message.startswith(f"v2/delta-{len(before)}: begins at revision {last + 1}")
    assert f"--to-revision {first - 1}" in caught.value.hint


def test_a_full_that_holds_more_than_its_name_says_is_continued_from_there(tmp_path):
    path = database_of(tmp_path / "db", upto(EVENTS, 130))
    outcome = applied(path, chain((101, 120), (121, 200), (201, LAST)))
    assert rows(path) == rows_of(EVENTS)
    assert outcome.events == len(EVENTS) - len(upto(EVENTS, 130))


@both_ways
def test_an_empty_full_can_be_continued(tmp_path, way):
    path = database_of(tmp_path / "db", [])
    applied(path, chain((2, LAST)))
    assert rows(path) == rows_of(EVENTS)


def test_a_full_that_was_raised_is_continued_behind_its_raise(tmp_path):
    """Its etcd went on at a revision far above its last row."""
    raised = 5000
    meta = {
        b"finishedCompactRev": encode_compaction(raised),
        b"scheduledCompactRev": encode_compaction(raised),
    }
    path = database_of(tmp_path / "db", upto(EVENTS, FULL), meta=meta)
    later = invent(20, 1, first=raised + 1)
    outcome = applied(path, chain((raised + 1, raised + 20), events=later))
    assert outcome.revision == raised + 20
    assert rows(path) == rows_of([*upto(EVENTS, FULL), *later])


COMPACTIONS = [2, 50, 99, 100, 101, 102, 149, 150, 151, 160, 200, 201, LAST - 1, LAST]


@pytest.mark.parametrize("compaction", COMPACTIONS)
@pytest.mark.parametrize("cuts", ["end to end", "overlapping"])
def test_what_a_compaction_supersedes_is_left_out(full, compaction, cuts):
    superseded(full, compaction, cuts)


@pytest.mark.parametrize("way", ["by workers"], indirect=True)
@pytest.mark.parametrize("compaction", [101, 200, LAST])
def test_other_processes_know_what_a_compaction_supersedes(full, compaction, way):
    superseded(full, compaction, "end to end")


def superseded(full, compaction, cuts):
    outcome = applied(full, chain(*CUTS[cuts]), compaction)

    assert outcome.compact_revision == compaction
    assert (outcome.revision, outcome.events) == (LAST, len(EVENTS) - len(upto(EVENTS, FULL)))
    expected = rows_of(compacted(EVENTS, compaction))
    found = rows(full)
    assert expected.items() <= found.items() <= rows_of(EVENTS).items()
    touched = {event.key for event in EVENTS if FULL < event.mod_revision <= compaction}
    left = [event for event in EVENTS if event.key not in touched] if compaction > FULL else EVENTS
    assert found.items() - expected.items() <= rows_of(upto(left, max(compaction, FULL))).items()
    with BoltFile(full) as file:
        superseding = hash_kv(file, compact_revision=compaction)
    whole = database_of(full.with_name("whole"), EVENTS)
    with BoltFile(whole) as file:
        assert hash_kv(file, compact_revision=compaction) == superseding


@pytest.mark.parametrize("end", [101, 150, 151, 170, 189])
@pytest.mark.parametrize("bound", ["moment", "upto"])
def test_a_compaction_behind_the_end_of_a_restore_is_left_alone(full, end, bound):
    bounds = {"moment": BEGINNING + end * SECOND} if bound == "moment" else {"upto": end}
    outcome = applied(full, chain(*CUTS["end to end"], **bounds), 190)
    assert (outcome.revision, outcome.compact_revision) == (end, -1)
    assert rows(full) == rows_of(upto(EVENTS, end))


def test_a_compaction_that_the_full_has_behind_it_is_no_news(tmp_path):
    meta = {b"finishedCompactRev": encode_compaction(90), b"scheduledCompactRev": encode_compaction(90)}
    path = database_of(tmp_path / "db", upto(EVENTS, FULL), meta=meta)
    assert applied(path, chain((101, LAST)), 80).compact_revision == -1


def test_every_byte_of_a_delta_matters(full):
    """Whatever single byte is changed, the delta is named, or the rows are the same."""
    events = [event for event in EVENTS if 101 <= event.mod_revision <= 103]
    for suffix in (names.NONE, names.GZIP):
        whole = stored(events, suffix)
        original = full.read_bytes()
        for at in range(len(whole)):
            data = bytearray(whole)
            data[at] ^= 0x20
            piece = Piece(
                StoredDelta("v2/delta", suffix, 103, Window(0)), len(data), lambda data=data: [bytes(data)]
            )
            path = full.with_name("copy")
            path.write_bytes(original)
            try:
                applied(path, Chain([piece], []))
            except DamagedObjectError as error:
                assert error.name == "v2/delta"  # noqa: PT017  some bytes of a gzip header mean nothing
            else:
                assert suffix == names.GZIP
                assert rows(path) == rows_of(upto(EVENTS, 103))


def replay_a_long_chain(path):
    """A hundred thousand events of 1 KB, in a process that has not needed much memory yet."""
    database.IN_PLACE_BYTES = 1 << 40
    database_of(path, [])
    value, time = bytes(1000), format_time(BEGINNING)
    pieces = []
    for number in range(20):
        first = 2 + number * 5000

        def read(first=first):
            events = (
                Event(0, b"key-%05d" % (at % 500), value, at, at, 1, 0, time, 0)
                for at in range(first, first + 5000)
            )
            return codecs.compress(codecs.append_hash(delta.encode(events)), names.GZIP)

        pieces.append(Piece(StoredDelta(f"v2/{number}", names.GZIP, first + 4999, Window(0)), 1, read))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Transaction(path) as transaction:
        outcome = apply_deltas(transaction, pieces, compact_revision=-1, progress=lambda *_: None)
        transaction.commit()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert outcome.events == 100_000
    assert path.stat().st_size > 100 << 20
    assert 0 < grown < 48 << 20


def test_memory_does_not_grow_with_the_chain(tmp_path):
    with Killer() as process:
        process.run(replay_a_long_chain, tmp_path / "db")


# the full


def full_object(payload, suffix):
    return b"".join(codecs.compress(codecs.append_hash([payload]), suffix))


@pytest.mark.parametrize("suffix", [names.NONE, names.GZIP, names.ZLIB])
@pytest.mark.parametrize("chunk", [100, 1 << 20])
def test_a_full_is_written_as_it_was_and_without_its_hash(tmp_path, full, suffix, chunk):
    payload = full.read_bytes()
    data = full_object(payload, suffix)
    chunks = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    done = []
    write_full(
        tmp_path / "out",
        chunks,
        name="v2/full",
        suffix=suffix,
        has_tail=True,
        progress=lambda phase, more: done.append((phase, more)),
    )
    assert (tmp_path / "out").read_bytes() == payload
    assert {phase for phase, _ in done} == {"full"}
    assert sum(more for _, more in done) == len(payload)


@pytest.mark.parametrize("tail", [True, False])
def test_a_bare_file_tells_by_its_size_whether_a_hash_follows(tmp_path, full, tail):
    payload = full.read_bytes()
    data = b"".join(codecs.append_hash([payload])) if tail else payload
    write_full(
        tmp_path / "out", [data], name="a.db", suffix=names.NONE, has_tail=None, progress=lambda *_: None
    )
    assert (tmp_path / "out").read_bytes() == payload


@pytest.mark.parametrize("has_tail", [True, None])
def test_a_full_whose_hash_does_not_hold_is_damaged(tmp_path, full, has_tail):
    data = bytearray(b"".join(codecs.append_hash([full.read_bytes()])))
    data[5000] ^= 1
    with pytest.raises(DamagedObjectError, match="v2/full: sha256"):
        write_full(
            tmp_path / "out",
            [bytes(data)],
            name="v2/full",
            suffix=names.NONE,
            has_tail=has_tail,
            progress=lambda *_: None,
        )


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "out").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        write_full(tmp_path / "out", [b""], name="f", suffix="", has_tail=True, progress=lambda *_: None)
    assert (tmp_path / "out").read_bytes() == b"precious"


def test_what_a_chain_starts_from_must_be_readable(tmp_path):
    path = database_of(tmp_path / "db", [], meta={b"finishedCompactRev": b"?"})
    with pytest.raises(RecordError):
        applied(path, chain((2, 10)))


def test_an_outcome_begins_where_the_full_ends(full):
    assert applied(full, chain()) == Applied(revision=FULL)
