"""One capture from the outside: a short session.

First a session is opened (`capture.opening`: whose prefix this is, which of its histories is alive, who may
write), then come deltas, or a full, or deltas and then the full that they ask for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rootcellar.backup.capture.outcome import Capture, Deltas
from rootcellar.backup.capture.publisher import utc_now
from rootcellar.backup.capture.session import CaptureOptions, Session
from rootcellar.errors import ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rootcellar.backup.catalogue.ownership import Epoch
    from rootcellar.backup.restore.database import Progress
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store

__all__ = ["CaptureOptions", "capture"]


def capture(
    client: EtcdClient,
    store: Store,
    *,
    full: bool,
    writer: str,
    epoch: Epoch | None = None,
    options: CaptureOptions | None = None,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress = lambda _phase, _more: None,
) -> Capture:
    """Take a full, or deltas up to now and a full where these cannot go on or ask for one.

    `epoch` is the caller's if it writes here for longer; else a new one is claimed, which fences whoever
    wrote before.  Raises IdentityError, FencedError, EtcdError and below, StoreErrors.
    """
    wanted = options or CaptureOptions()

    def once(*, full: bool) -> Capture:
        with Session(
            client,
            store,
            writer=writer,
            epoch=epoch,
            options=replace(wanted, compares_hash=full),
            clock=clock,
            progress=progress,
        ) as session:
            done = Deltas((), 0) if full else session.collect()
            written = session.full() if full or done.need is not None else None
            return Capture(done.written, written, done.need, session.timeline, session.abandoned)

    try:
        return once(full=full)
    except ForkedError:
        # Restored while we were at it: what was written is of the old timeline, and a second look sees it.
        return once(full=True)
