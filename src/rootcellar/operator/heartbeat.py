"""The Lease by which gardenlet sees that an extension lives.

Its name is `gardener-extension-heartbeat`, in the extension's own namespace, and its holder the extension's
name (Gardener's docs/extensions/heartbeat.md).  It is renewed while this process may write, so it also tells
when several processes are there and none of them leads.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rootcellar.errors import KubeNotFoundError, RootcellarError
from rootcellar.kube.kinds import LEASES
from rootcellar.logs import told
from rootcellar.operator.shared.rights import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from rootcellar.kube.client import KubeClient
    from rootcellar.logs import Log

EVERY: Final = 30.0
"""Seconds between two renewals, as Gardener's extensions do it."""
HOLDER: Final = "rootcellar"
_LOOK_SECONDS: Final = 1.0


class Heartbeat:
    """Renews it from entering to leaving; what fails is logged, and tried again."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        may_write: Callable[[], bool],
        log: Log,
        *,
        every: float = EVERY,
    ) -> None:
        self._client, self._namespace, self._may_write, self._log = client, namespace, may_write, log
        self._every = every
        self._ending = threading.Event()
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()

    def _run(self) -> None:
        pause = 0.0
        while not self._ending.wait(pause):
            pause = _LOOK_SECONDS
            if not self._may_write():
                continue
            try:
                self._renew()
            except RootcellarError as error:
                values = told(error)
                if self._told != values["code"]:
                    self._log.warning("heartbeat-failed", lease=HEARTBEAT, **values)
                self._told = values["code"]
            else:
                self._told, pause = "", self._every

    def _renew(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": HOLDER,
            "leaseDurationSeconds": max(1, round(self._every)),
            "renewTime": now,
        }
        try:
            self._client.merge_patch(LEASES, HEARTBEAT, {"spec": spec}, self._namespace)
        except KubeNotFoundError:
            self._client.create(LEASES, {"metadata": {"name": HEARTBEAT}, "spec": spec}, self._namespace)
