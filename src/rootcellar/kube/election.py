"""Which of several processes works: whoever holds a Lease, as client-go's leader election does it.

The holder renews every `retry` seconds.  It may write until `renew` seconds after it *asked* for its last
renewal; others take over once they have seen the lease unchanged for `lease` seconds by their own clock.
What lies between the two is for requests that are under way.  Nobody's wall clock counts, and a holder that
was stopped for a while finds by its own clock that its time is over before it writes: it never leads again,
the process has to end.

The limit: a process that is stopped between `may_write()` and its request's first byte, and goes on
later, sends that request.  What it names a resource version in, the API server then refuses.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from rootcellar.errors import (
    ConfigError,
    FencedError,
    KubeConflictError,
    KubeError,
    KubeExistsError,
    KubeNotFoundError,
    RootcellarError,
)
from rootcellar.kube.kinds import Kind, Meta
from rootcellar.logs import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.kube.client import KubeClient
    from rootcellar.logs import Log


class _Spec(Struct, frozen=True, rename="camel", kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Lease(Struct, frozen=True, kw_only=True):
    metadata: Meta = field(default_factory=Meta)
    spec: _Spec = field(default_factory=_Spec)


_LEASES = Kind("coordination.k8s.io", "v1", "leases", _Lease)


def boottime() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Terms:
    """Of an election.  Seconds: when others may take over, when the holder stops unless it could renew,
    between two renewals, and between two looks of those that wait.  Raises ConfigError.
    """

    namespace: str
    name: str
    identity: str
    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0
    look: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.retry < self.renew < self.lease and self.look > 0 and self.lease >= 1):
            raise ConfigError(
                f"an election cannot have a lease of {self.lease:g} s, renewed within {self.renew:g} s "
                f"every {self.retry:g} s",
                hint="the lease is the longest and at least 1 s, a try the shortest",
            )


class Election:
    """One process's part in it.  `client` needs a timeout of less than `renew`.  `changed` is called in a
    thread of the election when this process begins to lead and when it has lost.
    """

    def __init__(
        self,
        client: KubeClient,
        terms: Terms,
        *,
        log: Log,
        changed: Callable[[], None],
        clock: Callable[[], float] = boottime,
    ) -> None:
        self._client, self._terms, self._log, self._changed, self._clock = client, terms, log, changed, clock
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)
        self._until = 0.0
        """Up to when we may write; 0 before we led."""
        self._version = ""
        """The resource version of our last renewal; empty when it is not known."""
        self._seen: tuple[str, float] = "", 0.0
        """The lease's resource version as others leave it, and since when it is that."""
        self._holder = ""
        self._told = ""
        self._is_lost = False

    @property
    def leads(self) -> bool:
        """Whether it is this process that works."""
        return bool(self._until) and not self._is_lost and self._clock() < self._until

    @property
    def is_lost(self) -> bool:
        """It led, and does so no more: for good."""
        return bool(self._until) and not self.leads

    def may_write(self) -> bool:
        """To be asked right before each write."""
        return self.leads

    @property
    def remaining(self) -> float:
        """Seconds until another process may begin to work."""
        return max(0.0, self._until + self._terms.lease - self._terms.renew - self._clock())

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._thread.ident is not None

    @property
    def is_dead(self) -> bool:
        """Whether its thread has ended."""
        return self.is_started and not self._thread.is_alive()

    def start(self) -> None:
        """Stand for election."""
        self._thread.start()

    def stop(self, *, release: bool) -> None:
        """Stand no more; with `release` the next one takes over at once.

        That is for after the last worker has let go of its key: a crash before it leaves the lease to expire,
        and nobody works until then; never do two.
        """
        self._ending.set()
        if self.is_started:
            self._thread.join(self._terms.renew)
        if not release or self._thread.is_alive() or not (self.leads and self._version):
            return
        try:
            self._write({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()})
        except RootcellarError as error:  # then it expires
            self._log.warning("lease-not-released", **told(error))
        else:
            self._log.info("lease-released", lease=self._terms.name)
        self._until, self._is_lost = min(self._until, self._clock()), True

    def _run(self) -> None:
        while not self._ending.is_set():
            led = self.leads
            try:
                self._try()
                self._told = ""
            except (KubeConflictError, KubeExistsError):  # another one was faster: look again
                self._version = ""
            except RootcellarError as error:
                values = told(error)
                if self._told != values["code"]:
                    self._log.warning("election-failed", lease=self._terms.name, **values)
                self._told = values["code"]
            if self.is_lost:
                self._is_lost = True
                self._changed()
                return
            if self.leads and not led:
                self._log.info("leads", lease=self._terms.name, identity=self._terms.identity)
                self._changed()
            self._ending.wait(self._pause())

    def _pause(self) -> float:
        if self.leads:
            return max(0.0, min(self._terms.retry, self._until - self._clock()))
        return self._terms.look * (0.75 + random.random() / 4)  # noqa: S311  so that they do not look in step

    def _try(self) -> None:
        """Renew, take over, or see that there is nothing to do.  Raises KubeError, ConfigError."""
        if self.leads and self._version:
            try:
                self._renew()
            except KubeConflictError:
                self._version = ""  # somebody wrote: look who
            except KubeError:
                self._version = ""  # it may have been written all the same: look before the next
                raise
            else:
                return
        terms = self._terms
        try:
            found = self._client.get(_LEASES, terms.name, terms.namespace)
        except KubeNotFoundError:
            asked = self._clock()
            body = {"metadata": {"name": terms.name}, "spec": {**self._held(), **_taken(0)}}
            self._hold(asked, self._client.create(_LEASES, body, terms.namespace))
            return
        holder, version = found.spec.holder_identity or "", found.metadata.resource_version
        if holder == terms.identity:
            self._version = version
            self._renew()
        elif self._until:
            self._is_lost = True
        elif not holder or self._is_over(version, found.spec.lease_duration_seconds or terms.lease):
            self._version = version
            self._renew(**_taken((found.spec.lease_transitions or 0) + 1))
        elif self._holder != holder:
            self._holder = holder
            self._log.info("waits", lease=terms.name, holder=holder)

    def _is_over(self, version: str, seconds: float) -> bool:
        if self._seen[0] != version:
            self._seen = version, self._clock()
        return self._clock() - self._seen[1] > seconds

    def _renew(self, **more: Any) -> None:
        asked = self._clock()
        self._hold(asked, self._write({**self._held(), **more}))

    def _hold(self, asked: float, lease: _Lease) -> None:
        # A renewal that was answered after our time had run out does not bring it back: workers have stopped.
        if self._until and self._clock() >= self._until:
            return
        self._version = lease.metadata.resource_version
        self._until = asked + self._terms.renew

    def _held(self) -> dict[str, Any]:
        seconds = max(1, round(self._terms.lease))
        return {
            "holderIdentity": self._terms.identity,
            "leaseDurationSeconds": seconds,
            "renewTime": _now(),
        }

    def _write(self, spec: dict[str, Any]) -> _Lease:
        terms = self._terms
        return self._client.merge_patch(
            _LEASES, terms.name, {"spec": spec}, terms.namespace, resource_version=self._version
        )


def fenced(identity: str) -> FencedError:
    """What a write is refused with."""
    return FencedError(
        f"{identity} does not lead any more: another process may have taken over",
        hint="this one has to end; its supervisor starts it again",
    )


def _taken(transitions: int) -> dict[str, Any]:
    return {"acquireTime": _now(), "leaseTransitions": transitions}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
