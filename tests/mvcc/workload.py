"""Random changes to a live etcd: everything that can become a row of its history."""

from __future__ import annotations

import random

from rootcellar.etcd import operations as op
from rootcellar.etcd.client import ALL_KEYS


class Workload:
    """What it does follows from the seed alone.  `prefix` begins every key; there are `keys` of them."""

    def __init__(self, client, seed, *, keys=30, prefix=b"", value_size=120):
        self.client = client
        self.random = random.Random(seed)
        self.keys = [b"%skey-%03d" % (prefix, number) for number in range(keys)]
        self.value_size = value_size
        self.leases = []
        self.compacted = 0

    def run(self, changes):
        for _ in range(changes):
            self.change()
        return self.client.header().revision

    def change(self):
        """One request; some change nothing, because the key they delete is not there."""
        kind = self.random.random()
        if kind < 0.5:
            self.client.put(*self._pair(), lease=self._lease())
        elif kind < 0.65:
            self.client.delete(self.random.choice(self.keys))
        elif kind < 0.7:
            self.client.delete(*self._range())
        elif kind < 0.96:
            self.client.txn(self._operations())
        elif kind < 0.98:
            self.grant()
        elif self.leases:
            self.client.lease_revoke(self.leases.pop(self.random.randrange(len(self.leases))))

    def grant(self):
        """A lease under an id that follows from the seed as well."""
        lease = self.random.randrange(1, 1 << 62)
        self.leases.append(self.client.lease_grant(self.random.randint(3000, 9000), lease=lease))

    def empty(self):
        """Delete every key there is."""
        self.client.delete(*ALL_KEYS)

    def compact(self, within=40):
        """Compact at the last revision or up to `within` before it, above the last compaction; where."""
        last = self.client.header().revision
        back = self.random.choice([0, 0, 1, self.random.randint(0, within)])
        self.compacted = max(self.compacted + 1, last - back)
        self.client.compact(self.compacted, physical=True)
        return self.compacted

    def _operations(self):
        """Puts and deletes of different keys: etcd refuses two changes that overlap."""
        chosen = self.random.sample(self.keys, min(self.random.randint(1, 6), len(self.keys)))
        return [
            op.delete(key) if self.random.random() < 0.35 else op.put(key, self._value(), lease=self._lease())
            for key in chosen
        ]

    def _pair(self):
        return self.random.choice(self.keys), self._value()

    def _value(self):
        return self.random.randbytes(self.random.choice([0, 1, self.random.randrange(self.value_size)]))

    def _range(self):
        begin = self.random.randrange(len(self.keys))
        return self.keys[begin], self.keys[min(begin + self.random.randint(1, 5), len(self.keys) - 1)]

    def _lease(self):
        return self.random.choice(self.leases) if self.leases and self.random.random() < 0.2 else 0
