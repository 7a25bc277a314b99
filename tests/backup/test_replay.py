"""Deltas decoded beside the writer, by other processes, as they are decoded in place."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal

import pytest

from rootcellar.backup.catalogue import names
from rootcellar.backup.restore.replay import MANY_ROWS, Part, Replayers, StoredDelta, parts
from rootcellar.backup.restore.rows import Window
from rootcellar.errors import DamagedObjectError, RootcellarError
from tests.backup.histories import invent, rows_of, stored

PAGE = 4096


def chain(count, revisions=150):
    """Stored deltas that follow each other, as the plan hands them over."""
    events = invent(count * revisions, 3)
    for number in range(count):
        first = 2 + number * revisions
        part = [event for event in events if first <= event.mod_revision < first + revisions]
        suffix = [names.GZIP, names.NONE, names.ZLIB][number % 3]
        name = f"v2/delta-{number}"
        yield StoredDelta(name, suffix, first + revisions - 1, Window(first - 1)), stored(part, suffix)


def rows(found):
    """All rows of these parts, paged or not."""
    keys, values = [], []
    for part in found:
        if part.pages is None:
            keys += part.keys
            values += part.values
            continue
        run, at = part.pages, 0
        for index, pages in enumerate(run.pages.tolist()):
            begin, end = run.bounds[index], run.bounds[index + 1]
            image = run.image[at : at + pages * PAGE]
            for row in range(end - begin):
                fields = [int.from_bytes(image[16 + 16 * row + 4 * n :][:4], "little") for n in range(4)]
                key = 16 + 16 * row + fields[1]
                keys.append(bytes(image[key : key + fields[2]]))
                values.append(bytes(image[key + fields[2] : key + fields[2] + fields[3]]))
            at += pages * PAGE
    return dict(zip(keys, values, strict=True))


def test_other_processes_come_to_the_same_parts():
    here, there = in_place(chain(7)), by_workers(chain(7))
    assert rows(there) == rows(here) == rows_of(invent(7 * 150, 3))
    assert [part.name for part in there] == [part.name for part in here]
    assert [(part.first_revision, part.last_revision) for part in there] == [
        (part.first_revision, part.last_revision) for part in here
    ]
    assert {part.pages is None for part in here} == {False}


@pytest.mark.parametrize("revisions", [3, MANY_ROWS])
def test_few_rows_go_as_rows_and_many_as_pages(revisions):
    ((delta, data),) = chain(1, revisions)
    (part,) = parts(delta, [data], PAGE, {})
    assert (part.pages is None) == (revisions == 3)
    assert rows([part]) == rows_of(invent(revisions, 3))
    assert part.last_key == max(rows([part]))


def test_what_is_not_wanted_makes_no_part():
    ((delta, data),) = chain(1, 20)
    assert list(parts(StoredDelta(delta.name, delta.suffix, None, Window(21)), [data], PAGE, {})) == []


def in_place(deltas):
    return [part for delta, data in deltas for part in parts(delta, [data], PAGE, {})]


def by_workers(deltas):
    with Replayers(PAGE, {}) as workers:
        return list(workers.replay(deltas))


@pytest.mark.parametrize("replayed", [in_place, by_workers])
def test_damage_names_its_delta(replayed):
    deltas = list(chain(5))
    name, data = deltas[3][0].name, bytearray(deltas[3][1])
    data[len(data) // 2] ^= 0xFF
    deltas[3] = deltas[3][0], bytes(data)
    with pytest.raises(DamagedObjectError) as caught:
        replayed(deltas)
    assert caught.value.name == name
    assert name in caught.value.message


def test_a_last_revision_other_than_the_name_says_is_damage():
    ((delta, data),) = chain(1, 20)
    wrong = StoredDelta(delta.name, delta.suffix, delta.last + 1, delta.window)
    with pytest.raises(DamagedObjectError, match="as the name says"):
        list(parts(wrong, [data], PAGE, {}))


@pytest.mark.parametrize("when", ["before", "amid"])
def test_a_process_that_is_killed_is_told_and_does_not_hang(when):
    deltas = itertools.cycle(chain(3, 600))
    with Replayers(PAGE, {}) as workers:
        found = workers.replay(deltas)
        if when == "amid":
            assert isinstance(next(found), Part)
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(RootcellarError, match="a decoding process ended without an answer") as caught:
            list(found)
    assert "memory" in caught.value.hint


def test_leaving_early_ends_the_processes():
    with Replayers(PAGE, {}) as workers:
        next(workers.replay(itertools.cycle(chain(3, 600))))
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_an_error_of_the_source_is_raised_as_it_is():
    def source():
        yield next(chain(1))
        raise OSError(28, "no space left on device")

    with Replayers(PAGE, {}) as workers, pytest.raises(OSError, match="no space left"):
        list(workers.replay(source()))
