"""A cache that follows the API server: a list, then a watch from there on, for as long as it runs.

Nothing is lost where a watch breaks: it goes on after the last version that was taken, and where that cannot
be trusted there is a new list, whose difference to the cache is told like any change, deletions included.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from rootcellar.errors import KubeError, KubeGoneError, KubeUnavailableError, RootcellarError
from rootcellar.kube.cache import Cache, header, version
from rootcellar.kube.client import PAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rootcellar.kube.cache import Change
    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.kinds import Key, Kind
    from rootcellar.kube.watch import Event, Watch

T = TypeVar("T")

_STOP_SECONDS = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds, but for `page`, the objects of one.  The server ends a watch after once to twice `window`, we
    end one that is silent for `grace` longer.  Pauses go from `first` to `longest`, each between half and
    the whole of its length.
    """

    window: float = 60.0
    grace: float = 10.0
    first: float = 0.2
    longest: float = 30.0
    page: int = PAGE

    @property
    def silence(self) -> float:
        """The longest that is right: of a kind in which nothing happens."""
        return 2 * self.window + self.grace


@dataclass(slots=True)
class Tally:
    """What a reflector has done so far: lists that were whole, watches that began, events, bookmarks, and how
    often something went wrong.
    """

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    failures: int = 0


class Reflector(Generic[T]):
    """One kind, of one namespace or of all, in one thread of its own."""

    def __init__(
        self,
        client: KubeClient,
        kind: Kind[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.kind = kind
        self.cache: Cache[T] = Cache(kind, indexes)
        self.tally = Tally()
        self.fault: BaseException | None = None
        """Why it does not follow now; None while it does."""
        self._client, self._namespace = client, namespace
        self._selectors = {"labels": labels, "fields": fields}
        self._pace = pace or Pace()
        self._listeners: list[Callable[[Change], None]] = []
        self._stopped, self._synced = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._version = ""
        self._is_doubtful = False
        self._page = self._pace.page
        self._failures = 0
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind.plural}", daemon=True)

    def listen(self, heard: Callable[[Change], None]) -> None:
        """Have `heard` called, in the reflector's thread, with every change after the cache has it.  Before
        `start`.  It should only note something down; what it raises is logged, and lost.
        """
        if self._thread.ident is not None:
            raise RuntimeError("a listener that comes after the start has missed changes")
        self._listeners.append(heard)

    def start(self) -> None:
        self._thread.start()

    def stop(self, wait: float = _STOP_SECONDS) -> None:
        """End the watch, and wait for the thread's end, after which no listener is called any more.  One
        that hangs in a request is left to its own timeout: then no listener is called either.
        """
        self._stopped.set()
        with self._lock:
            watch = self._watch
        if watch is not None:
            watch.close()
        if self._thread.ident is not None:
            self._thread.join(wait)

    def is_alive(self) -> bool:
        """Whether the thread runs, even if only to its end."""
        return self._thread.is_alive()

    def wait_synced(self, timeout: float) -> bool:
        """Whether a first list is whole, within so many seconds."""
        return self._synced.wait(timeout)

    def silence(self) -> float:
        """Seconds since the API server last said anything: an event, a bookmark, a page of a list."""
        return time.monotonic() - self._heard

    def is_current(self) -> bool:
        """Whether there was a first list, and the API server has been heard since as often as it must."""
        return self._synced.is_set() and self.silence() <= self._pace.silence

    @property
    def resource_version(self) -> str:
        """Up to where everything has been taken; "" where a list is due."""
        return self._version

    # the thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow()
            except RootcellarError as error:
                self._failed(error)
                _log.warning("%s: %s", self.kind.plural, error)
            except Exception as error:  # noqa: BLE001  of ours, perhaps with a change half told: list anew
                self._version = ""
                self._failed(error)
                _log.exception("%s: an error of our own", self.kind.plural)
            self._stopped.wait(self._pause())

    def _failed(self, error: BaseException) -> None:
        self.fault = error
        self.tally.failures += 1
        self._failures += 1

    def _pause(self) -> float:
        """Before the next watch too: one that a server always ends at once must not become a hot loop."""
        length = min(self._pace.longest, self._pace.first * 2.0 ** min(self._failures, 30))
        return length * (0.5 + random.random() / 2)  # noqa: S311  not a secret

    def _follow(self) -> None:
        if self._is_doubtful:
            self._ask_where()
        if not self._version:
            self._list()
        try:
            self._watched()
        except KubeGoneError:
            self._version = ""
            raise

    def _ask_where(self) -> None:
        """Whether the API server's history is still the one that we follow.

        A watch from a version that lies ahead, because etcd was restored to before it, is silent; as it is
        where nothing happens, for a bookmark that brings no newer version is not sent.
        """
        page = self._client.list_page(self.kind, self._namespace, **self._selectors, page=1)
        self._said()
        self._is_doubtful = False
        if _is_older(page.resource_version, self._version):
            self._version = ""

    def _list(self) -> None:
        """All objects, page by page, each told as it comes; then what is no more."""
        seen: set[Key] = set()
        more = ""
        while True:
            try:
                page = self._client.list_page(
                    self.kind, self._namespace, **self._selectors, page=self._page, more=more
                )
            except KubeGoneError:
                # The pages are of a moment that etcd has forgotten meanwhile: the next list is in one.
                self._page = 0
                raise
            if self._stopped.is_set():
                return
            self._said()
            for raw in page.items:
                found, changes = self.cache.put(raw)
                seen.add(found.key)
                self._tell(changes)
            if not (more := page.more):
                break
        self._tell(self.cache.keep_only(seen))
        self._version, self._page = page.resource_version, self._pace.page
        self.tally.lists += 1
        self.fault = None
        self._synced.set()

    def _watched(self) -> None:
        """One watch from where we are, to its end."""
        if self._stopped.is_set():
            return
        pace = self._pace
        seconds = pace.window * (1 + random.random())  # noqa: S311  not a secret
        began, self._is_doubtful = time.monotonic(), True
        watch = self._client.watch(
            self.kind,
            self._namespace,
            resource_version=self._version,
            **self._selectors,
            seconds=int(seconds),
            idle=seconds + pace.grace,
        )
        with watch:
            with self._lock:
                self._watch = watch
            if self._stopped.is_set():  # stop() may have looked for a watch before there was one
                return
            self.tally.watches += 1
            self.fault = None
            try:
                for event in watch:
                    self._is_doubtful = False
                    self._take(event)
                    self._failures = 0
            finally:
                with self._lock:
                    self._watch = None
        if self._is_doubtful and not self._stopped.is_set():
            if (lasted := time.monotonic() - began) < pace.window / 2:
                raise KubeUnavailableError(
                    f"the watch of {self.kind.plural} ended after {lasted:.1f} s without a word"
                )
            self._failures = 0

    def _take(self, event: Event) -> None:
        self._said()
        if event.type == "BOOKMARK":
            self.tally.bookmarks += 1
            self._advance(version(event.object))
            return
        self.tally.events += 1
        if event.type in ("ADDED", "MODIFIED"):
            found, changes = self.cache.put(event.object)
        elif event.type == "DELETED":
            found = header(event.object)
            changes = self.cache.drop(found.key)
        else:
            raise KubeError(f"{self.kind.plural}: a watch sent an event of the unknown type {event.type!r}")
        self._tell(changes)
        self._advance(found.resource_version)

    def _advance(self, reached: str) -> None:
        """The next watch begins after this version: so it is noted when everything up to it has been told."""
        if _is_older(reached, self._version):
            raise KubeGoneError(
                f"{self.kind.plural}: version {reached} came after {self._version}: etcd was set back",
                operation="watch",
            )
        self._version = reached

    def _said(self) -> None:
        self._heard = time.monotonic()

    def _tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            for heard in self._listeners:
                try:
                    heard(change)
                except Exception:  # noqa: BLE001  what one gets wrong must not take it from others
                    _log.exception("%s %s: a listener failed", self.kind.plural, change.key)


def _is_older(one: str, other: str) -> bool:
    """Versions are revisions of etcd.  Of one that is no number, as a server of another make may have it,
    nothing is known.
    """
    return one.isdigit() and other.isdigit() and int(one) < int(other)
