"""Who looks on while the storm lasts: what agents claim, and whether the store holds it."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import recovery_window
from rootcellar.backup.catalogue.keys import CATALOGUE
from rootcellar.errors import RootcellarError, StoreError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.decorator import StoreDecorator
from tests.soak.storm import MEMBERS

_PAUSE = 1.0
_PATIENCE = 2.0
_HASH_EVERY = 10.0
_ENOUGH = 20
_MOMENTS = 300
_SECOND = timedelta(seconds=1)


class Remembering(StoreDecorator):
    """A store whose catalogue is fetched once: its objects are never written twice."""

    def __init__(self, inner):
        super().__init__(inner)
        self._seen = {}

    def get(self, key, **how):
        if not key.startswith(CATALOGUE) or how:
            return self.inner.get(key, **how)
        if key not in self._seen:
            self._seen[key] = b"".join(self.inner.get(key))
        return iter([self._seen[key]])


class Observer(AbstractContextManager["Observer"]):
    """Asks every agent, then looks into the store, past all lines.

    `violations` are sentences.  `points` are (seconds, revision) whenever the newest claim grew; `hashes` are
    HashKVs of the live cluster; `peak` is the largest memory of an agent in MiB, file mappings apart;
    `oldest` is the worst age of a leader's recovery point in seconds.  `held` are holds in force, with the
    keys that they keep.
    """

    def __init__(self, ground):
        self._ground = ground
        self._store = Remembering(ground.store)
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self.violations = []
        self.points = []
        self.hashes = []
        self.looks = Counter()
        self.claimed = 0
        self.peak = 0.0
        self.oldest = 0.0
        self.held = {}
        self.failure = None
        self._moments = []
        self.most = self._beat = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self._enough.set()
        self._thread.join()

    def longest_pause(self, began, ended):
        """Seconds without a newer recovery point."""
        moments = [began, *(at for at, _ in self.points if began <= at <= ended), ended]
        return max(after - before for before, after in pairwise(moments))

    def _run(self):
        hashed = 0.0
        with EtcdClient(self._ground.endpoints, timeout=3) as client:
            while not self._enough.wait(_PAUSE) and len(self.violations) < _ENOUGH:
                try:
                    self._look()
                    if time.monotonic() - hashed > _HASH_EVERY:
                        hashed = time.monotonic()
                        self._hash(client)
                except Exception as error:  # noqa: BLE001  it fails the test, not this thread alone
                    self.failure = error
                    return

    def _look(self):
        claims = {}
        for number in range(MEMBERS):
            self._measure(self._ground.ours[number].process)
            status = self._ground.status(number, timeout=_PATIENCE)
            if status is not None and status["recovery"]["last"] is not None:
                claims[number] = status["recovery"]["last"]
                moment = datetime.fromisoformat(status["recovery"]["at"])
                self._moments.append((moment, claims[number]))
                self.oldest = max(self.oldest, status["recovery"]["age"]) if status["leads"] else self.oldest
                self.looks["claims"] += 1
        self._moments = sorted(self._moments)[-_MOMENTS:]
        if not claims:
            return
        if (newest := max(claims.values())) > self.claimed:
            self.points.append((time.monotonic(), newest))
            self.claimed = newest
        held = self._held()
        try:
            catalogue = read_catalogue(self._store)
        except StoreError:
            self.looks["store away"] += 1
            return
        self.looks["catalogues"] += 1
        reach = recovery_window(catalogue, (), catalogue.newest_timeline).last or 0
        self.violations += [
            f"agent {number} claimed revision {claim}, and the store holds up to {reach}"
            for number, claim in claims.items()
            if claim > reach
        ]
        # A heartbeat may be younger than the listing beside it; the next look holds all that it spoke of.
        if self._beat > reach:
            self.violations.append(f"a heartbeat said {self._beat}, and the store holds {reach}")
        self._beat = catalogue.heartbeat.revision if catalogue.heartbeat is not None else 0
        self.violations += [f"damaged: {each.key}: {each.reason}" for each in catalogue.damaged]
        missing = held.intersection(self._held()) - {each.key for each in catalogue.snapshots}
        self.violations += [f"{key} was held, and is gone" for key in sorted(missing)]
        if self._ground.rules is not None:
            self._retained(catalogue)

    def _held(self):
        """Before and after the look: what was released meanwhile may be gone."""
        return {key for _, keys in [*self.held.values()] for key in keys}

    def _retained(self, catalogue):
        """Retention has let go of nothing that it was to keep."""
        buried = {each.key for each in catalogue.tombstones}
        fulls = [each for each in catalogue.snapshots if each.is_full and each.name.key not in buried]
        rules = self._ground.rules
        self.most = max(self.most, min(len(fulls), rules.minimum))
        if len(fulls) < self.most:
            self.violations.append(f"{len(fulls)} fulls are left of at least {self.most}")
        if rules.deltas is None:
            return
        # Whatever etcd had when the window began, it had acknowledged no more than the next recovery point.
        begin = datetime.now(UTC) - rules.deltas + _SECOND
        ranges = recovery_window(catalogue, (), catalogue.newest_timeline).ranges
        self.violations += [
            f"revision {point} was promised, and there are {ranges}"
            for point in sorted({revision for at, revision in self._moments if at >= begin})
            if not any(first <= point <= last for first, last in ranges)
        ]

    def _hash(self, client):
        try:
            self.hashes.append(client.hash_kv(client.header().revision, timeout=3))
        except RootcellarError:
            self.looks["unhashed"] += 1

    def _measure(self, process):
        if process.poll() not in (None, -signal.SIGKILL):
            self.violations.append(f"an agent ended by itself, with {process.returncode}")
        try:
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.peak = max(self.peak, int(line.split()[1]) / 1024)
        except OSError:
            return
