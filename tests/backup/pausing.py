"""A writer that stands still on purpose: `python -m tests.backup.pausing ENDPOINT STORE STEP` takes a full.

It stops itself (SIGSTOP) once at the step, and again when the full has come to the store.  Its database
always ends behind the revision in its name, because it writes to etcd between the two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager

from rootcellar.backup.capture.session import Session
from rootcellar.errors import FencedError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.file import FileStore
from tests.backup.capture_scene import Between
from tests.stopped import stop_here

MORE = 4
"""Revisions between the one in a full's name and its last."""
STEPS = (
    "named",
    "streams",
    *(f"{when} {what}" for what in ("claim", "object", "record", "removal") for when in ("before", "after")),
    "within object",
)
FENCED = 3
"""How it ends when another has taken over."""


class PausedWriter(AbstractContextManager["PausedWriter"]):
    """The process, which has come to its first stop.  Killed at the end, if it is there still."""

    def __init__(self, endpoint, directory, step):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.backup.pausing", endpoint, directory, step],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._stopped()

    def _stopped(self):
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._process.returncode = os.waitstatus_to_exitcode(status)
        return os.WIFSTOPPED(status)

    def go_on(self):
        """To the next stop, or to the end; its exit code then."""
        self._process.send_signal(signal.SIGCONT)
        return None if self._stopped() else self._process.returncode

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait(30)


class _Stopping(StoreDecorator):
    def __init__(self, inner, step):
        super().__init__(inner)
        self._step = step

    def _pass(self, moment):
        if moment in (self._step, "after object"):
            self._step = None if moment == self._step else self._step
            stop_here()

    def put(self, key, chunks, *, condition=None):
        what = "object" if key.startswith("v2/") else key.split("/")[1].removesuffix("s")
        self._pass(f"before {what}")
        info = self.inner.put(key, self._halfway(chunks, what), condition=condition)
        self._pass(f"after {what}")
        return info

    def _halfway(self, chunks, what):
        for chunk in chunks:
            yield chunk
            self._pass(f"within {what}")
            what = None

    def delete(self, key, **how):
        self._pass("before removal")
        self.inner.delete(key, **how)
        self._pass("after removal")


def _main(endpoint, directory, step):
    def snapshot(client):
        for number in range(MORE):
            client.put(b"between", b"%d" % number)
        if step == "named":
            stop_here()
        stream = client.snapshot()
        if step == "streams":
            stop_here()
        return stream

    with EtcdClient([endpoint]) as client:
        store = _Stopping(FileStore(directory), step)
        with Session(Between(client, snapshot=snapshot), store, writer="paused/1") as session:
            try:
                session.full()
            except FencedError:
                return FENCED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
