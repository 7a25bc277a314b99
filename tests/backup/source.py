"""An etcd that is backed up as it lives: what captures do, in the few lines that a test needs."""

from __future__ import annotations

import time
from contextlib import closing

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import codecs, delta
from rootcellar.backup.objects.delta import Event, format_time
from rootcellar.mvcc.probe import SnapshotProbe


class Source:
    """Puts fulls and deltas of a live etcd into a store; deltas continue whatever was taken last."""

    def __init__(self, client, store, suffix=names.GZIP):
        self.client = client
        self.store = store
        self.suffix = suffix
        self.last = 1
        self._created = 1_790_000_000

    def full(self):
        """The revision the full really holds."""
        probe = SnapshotProbe()
        stream = self.client.snapshot()
        with closing(stream):
            payload = b"".join(stream)
        probe.feed(payload)
        facts = probe.result()
        self._put(names.full(facts.revision, self._second(), self.suffix), [payload])
        self.last = facts.revision
        return facts.revision

    def delta(self):
        """Everything since what was taken last, up to now; its last revision."""
        events = self.events(self.last + 1, self.client.header().revision)
        name = names.delta(self.last + 1, events[-1].mod_revision, self._second(), self.suffix)
        self._put(name, codecs.append_hash(delta.encode(events)))
        self.last = events[-1].mod_revision
        return self.last

    def events(self, first, last):
        """The history between two revisions, as a watch tells it."""
        found = []
        if first > last:
            return found
        with self.client.watch(first) as watch:
            for batch in watch:
                found += [_event(event) for event in batch.events]
                if batch.events and batch.last >= last:
                    break
        return found

    def _put(self, name, payload):
        self.store.put(name.key, codecs.compress(payload, self.suffix))

    def _second(self):
        self._created += 1
        return self._created


def _event(event):
    kv = event.kv
    record = (kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)
    return Event(event.type, *record, time=format_time(time.time_ns()))
