"""What tests of sessions share: a thread that collects, stores that hold up or lose an answer, the proof."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

from rootcellar.backup.capture.cut import DeltaLimits
from rootcellar.backup.capture.session import CaptureOptions, Session
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.errors import RootcellarError, TransientError
from rootcellar.stores.decorator import StoreDecorator
from tests.backup import ebr_rules
from tests.backup.capture_scene import WRITER


def opened(scene, *, store=None, limits=None, **options):
    chosen = CaptureOptions(limits=limits or DeltaLimits(age=1e9))
    return Session(scene.client, store or scene.store, writer=WRITER, options=chosen, **options)


class Collecting(AbstractContextManager["Collecting"]):
    """A thread that collects until told to stop, in periods of so many seconds."""

    def __init__(self, session, every=0.2):
        self.session = session
        self.every = every
        self.error = None
        self.periods = 0
        self.needs = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            while not self._enough.is_set():
                done = self.session.collect(time.monotonic() + self.every)
                if done.need is not None:
                    self.needs.append(done.need.need)
                self.periods += 1
            self.session.collect()
        except RootcellarError as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def more(self, periods):
        target = self.periods + periods
        wait_until(lambda: self.periods >= target or self.error is not None)
        assert self.error is None

    def end(self):
        self._enough.set()
        self.session.cut()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def __exit__(self, kind, *_):
        self.end()
        if kind is None and self.error is not None:
            raise self.error


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "waited for too long"
        pause.wait(0.02)


def proven(scene, *more):
    """What is stored agrees, EBR can restore it, and it restores to etcd's own state."""
    catalogue = read_catalogue(scene.store)
    assert (catalogue.damaged, catalogue.lost) == ((), ())
    assert ebr_rules.check_prefix(scene.store) == []
    last = plan_chain(catalogue, Latest()).reach
    scene.must_equal(scene.restored(), last, *more)
    return last


def deltas(store):
    return sorted(
        (each.record for each in read_catalogue(store).snapshots if not each.is_full and each.record),
        key=lambda record: record.start,
    )


def publisher_of(session):
    return session._publisher  # noqa: SLF001  what a session writes with, to write otherwise


def forget_peak():
    """Have the kernel measure `peak` anew, so that what the process needed before hides nothing."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def peak():
    """The most resident memory in bytes that this process has had since `forget_peak`."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


class Gated(StoreDecorator):
    """A store whose puts of snapshots can be held, or fail."""

    def __init__(self, inner):
        super().__init__(inner)
        self.open = threading.Event()
        self.open.set()
        self.held = threading.Event()
        self.failures = []
        self.puts = []

    def put(self, key, chunks, *, condition=None):
        if key.startswith("v2/"):
            self.puts.append(key)
            if self.failures:
                raise self.failures.pop(0)
            if not self.open.is_set():
                self.held.set()
                assert self.open.wait(60)
        return self.inner.put(key, chunks, condition=condition)


class LostAnswer(StoreDecorator):
    """A store that does what it is told, and once fails to say so."""

    def __init__(self, inner, prefix):
        super().__init__(inner)
        self.prefix = prefix

    def put(self, key, chunks, *, condition=None):
        info = self.inner.put(key, chunks, condition=condition)
        if self.prefix is not None and key.startswith(self.prefix):
            self.prefix = None
            raise TransientError("the answer was lost")
        return info


class PausedBehindClaim(StoreDecorator):
    """A store whose caller is paused right behind its claim."""

    def __init__(self, inner, claimed, going_on):
        super().__init__(inner)
        self.claimed = claimed
        self.going_on = going_on

    def put(self, key, chunks, *, condition=None):
        info = self.inner.put(key, chunks, condition=condition)
        if key.startswith("catalogue/claims/"):
            self.claimed.set()
            assert self.going_on.wait(60)
        return info
