"""Histories made up without an etcd: events that could have happened, and the rows they come to."""

from __future__ import annotations

import random

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import codecs, delta
from rootcellar.backup.objects.delta import DELETE, PUT, Event, format_time
from rootcellar.mvcc.record import KeyValue, encode
from rootcellar.mvcc.revision import KEY_BUCKET, encode_row_key
from tests.mvcc.databases import write_database

SECOND = 10**9
BEGINNING = 1_790_000_000 * SECOND
REVISIONS_PER_DELTA = 40


def invent(count, seed, *, first=2, keys=20, value_size=50, prefix=b"key-"):
    """Events of `count` revisions from `first` on, a second apart, with versions as etcd counts them."""
    chance = random.Random(seed)
    lives = {}
    events = []
    for revision in range(first, first + count):
        time = format_time(BEGINNING + revision * SECOND)
        changed = chance.sample(range(keys), chance.choice([1, 1, 1, 2, 5]))
        for sub, number in enumerate(changed):
            key = b"%s%03d" % (prefix, number)
            created, version = lives.get(key, (revision, 0))
            if version and chance.random() < 0.25:
                del lives[key]
                events.append(Event(DELETE, key, b"", 0, revision, 0, 0, time, sub))
                continue
            lives[key] = created, version + 1
            value = chance.randbytes(chance.randint(0, value_size))
            lease = chance.choice([0, 0, 0, 5, 1 << 40])
            events.append(Event(PUT, key, value, created, revision, version + 1, lease, time, sub))
    return events


def rows_of(events):
    """What an etcd that lived through them would hold."""
    rows = {}
    for event in events:
        row = encode_row_key(event.mod_revision, event.sub, tombstone=event.type == DELETE)
        if event.type == DELETE:
            rows[row] = encode(KeyValue(event.key))
        else:
            record = (event.key, event.create_revision, event.mod_revision, event.version, event.value)
            rows[row] = encode(KeyValue(*record, event.lease))
    return rows


def upto(events, revision):
    return [event for event in events if event.mod_revision <= revision]


def compacted(events, revision):
    """The events that a compaction leaves: below it each key's last one, unless it is an older deletion."""
    newest = {event.key: event for event in events if event.mod_revision <= revision}
    return [
        event
        for event in events
        if event.mod_revision > revision
        or (newest[event.key] is event and (event.type == PUT or event.mod_revision == revision))
    ]


def database(path, events, **buckets):
    """A database file that holds these events."""
    named = {name.encode(): rows for name, rows in buckets.items()}
    return write_database(path, {KEY_BUCKET: rows_of(events), b"meta": {}, **named})


def stored(events, suffix=names.GZIP):
    """A delta object's bytes."""
    return b"".join(codecs.compress(codecs.append_hash(delta.encode(events)), suffix))
