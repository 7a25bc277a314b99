"""A catalogue that is read again costs what is new in it."""

from __future__ import annotations

from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.ledger import write_hold, write_record, write_tombstone
from rootcellar.backup.catalogue.memory import Memory, RememberingStore
from rootcellar.stores.file import FileStore
from rootcellar.stores.meter import Meter, MeteredStore
from tests.backup import builders


def gets(meter):
    found = meter.read().verbs.get("get")
    return found.calls if found is not None else 0


def filled(store, *revisions):
    made = [builders.full(revision, at=revision, recorded=True) for revision in revisions]
    for each in made:
        store.put(each.key, [bytes(100)])
        write_record(store, each.record)
    return made


def test_a_record_is_read_once_and_a_listing_each_time(tmp_path):
    store, meter = FileStore(tmp_path), Meter()
    first, *_ = filled(store, *range(2, 22))
    remembering = RememberingStore(MeteredStore(store, meter), Memory())
    whole = read_catalogue(remembering)
    assert (len(whole.snapshots), gets(meter)) == (20, 20)
    assert read_catalogue(remembering) == whole
    assert gets(meter) == 20

    filled(store, 30)
    store.delete(first.key)
    write_tombstone(store, first, reason="old", by="anna", epoch=1, now=builders.moment(0))
    store.delete(keys.record(first.name))
    changed = read_catalogue(remembering)
    assert changed == read_catalogue(store)
    assert (len(changed.snapshots), gets(meter)) == (20, 22)


def test_what_is_few_is_always_read_from_the_store(tmp_path):
    store, meter = FileStore(tmp_path), Meter()
    (full,) = filled(store, 2)
    write_hold(store, full, reason="an audit", by="anna", now=builders.moment(0))
    remembering = RememberingStore(MeteredStore(store, meter), Memory())
    for _ in range(3):
        assert len(read_catalogue(remembering).holds) == 1
    assert gets(meter) == 1 + 3
    assert b"".join(remembering.get(full.key, start=10, end=20)) == bytes(10)


def test_a_memory_keeps_to_its_size_and_what_was_asked_for_last():
    memory = Memory(limit=100)
    for number in range(10):
        memory.keep(f"key {number}", bytes(30))
        memory.recall("key 0")
    assert [number for number in range(10) if memory.recall(f"key {number}")] == [0, 8, 9]
    memory.keep("key 0", bytes(90))
    assert [number for number in range(10) if memory.recall(f"key {number}")] == [0]


def test_what_was_read_half_is_not_remembered(tmp_path):
    store, meter = FileStore(tmp_path), Meter()
    (full,) = filled(store, 2)
    key = keys.record(full.name)
    remembering = RememberingStore(MeteredStore(store, meter), Memory())
    stream = remembering.get(key)
    next(stream)
    stream.close()
    assert b"".join(remembering.get(key)) == b"".join(store.get(key))
    assert gets(meter) == 2
