"""Writers that write all the time and keep account of what etcd acknowledged."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from contextlib import AbstractContextManager

from rootcellar.errors import EtcdError
from rootcellar.etcd import operations as ops
from rootcellar.etcd.client import EtcdClient

KEYS = 30


class Writers(AbstractContextManager["Writers"]):
    """One thread per member, each with keys of its own, so that the order of a key's writes is known.

    `acknowledged` holds (revision, key, value); None for a deletion.  `unknown` holds, by key, the values of
    writes that etcd did not answer: they may have happened, at any later time.
    """

    def __init__(self, endpoints, seed, pause=0.03):
        self.acknowledged = []
        self.unknown = defaultdict(list)
        self._pause = pause
        self._enough = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(endpoint, random.Random(f"{seed}/{n}"), n))
            for n, endpoint in enumerate(endpoints)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self._enough.set()
        for thread in self._threads:
            thread.join()

    def _write(self, endpoint, chance, number):
        with EtcdClient([endpoint], timeout=3) as client:
            lease, count = 0, 0
            while not self._enough.wait(self._pause):
                count += 1
                key = b"w%d/%02d" % (number, chance.randrange(KEYS))
                value = b"%d/%d/" % (number, count) + chance.randbytes(chance.randrange(300))
                if chance.random() < 0.002:
                    value += bytes(700_000)
                is_deletion = chance.random() < 0.1
                try:
                    if lease == 0:
                        lease = client.lease_grant(36_000)
                    if is_deletion:
                        # With a key beside it, a deletion has a revision whether the key was there or not.
                        result = client.txn([ops.delete(key), ops.put(b"w%d/mark" % number, value)])
                        header = result.header
                        self._count(header.revision, b"w%d/mark" % number, value)
                    else:
                        header = client.put(key, value, lease=chance.choice([0, 0, 0, lease]))
                except EtcdError:
                    self.unknown[key].append(None if is_deletion else value)
                    if is_deletion:
                        self.unknown[b"w%d/mark" % number].append(value)
                else:
                    self._count(header.revision, key, None if is_deletion else value)

    def _count(self, revision, key, value):
        self.acknowledged.append((revision, key, value))

    def state(self, revision):
        """By key the newest (revision, value) that was acknowledged at or below a revision."""
        found = {}
        for at, key, value in self.acknowledged:
            if at <= revision and (key not in found or found[key][0] < at):
                found[key] = at, value
        return found
