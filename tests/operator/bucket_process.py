"""A process whose children serve BackupBuckets, each until it kills itself behind one of its writes.

It reads numbers from its input.  For each it forks a child that sends itself SIGKILL right behind so many
writes, to Kubernetes or to the store; behind none at 0, where it ends when there is nothing to do.  Then it
says how the child ended, and which write was the last.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from rootcellar.kube import kubeconfig
from rootcellar.kube.manager import Manager
from rootcellar.kube.writes import Writer
from rootcellar.logs import make_log
from rootcellar.operator.backupbucket.controller import add_bucket_controller
from rootcellar.operator.backupbucket.run import BucketSettings
from rootcellar.stores.admin.local import LocalAdmin
from rootcellar.stores.admin.s3.admin import S3Admin

_DEEDS = ("create", "claim", "harden", "release", "delete_objects", "empty", "delete_bucket")


class Counted:
    """Counts what was written, and ends the process behind the last that it may write."""

    def __init__(self, limit, told):
        self.limit, self.told, self.count = limit, told, 0
        self._lock = threading.Lock()

    def after(self, name):
        with self._lock:
            self.count += 1
            if self.count == self.limit:
                os.write(self.told, name.encode())
                os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, cls, name, did=lambda _result: True):
        plain = getattr(cls, name)

        def counted(*arguments, **named):
            result = plain(*arguments, **named)
            if did(result):
                self.after(f"{cls.__name__}.{name}")
            return result

        setattr(cls, name, counted)


def serve(given, limit, told):
    counted = Counted(limit, told)
    for name in ("patch", "delete"):
        counted.wrap(Writer, name, bool)
    counted.wrap(Writer, "create")
    for cls in (S3Admin, LocalAdmin):
        for name in _DEEDS:
            counted.wrap(cls, name)
    log = make_log("json", given.log.open("a"))
    manager = Manager(kubeconfig.read([given.kubeconfig]), identity=f"child-{os.getpid()}", log=log)
    settings = BucketSettings(
        types={"S3", "local"},
        classes={given.class_},
        owner="a cluster",
        directory=given.directory,
        tokens=given.directory,
    )
    controller = add_bucket_controller(manager, settings, log=log)
    threading.Thread(target=_stop_at_rest, args=(manager, controller), daemon=True).start()
    manager.run()


def _stop_at_rest(manager, controller):
    """Once every watch is synced; whatever failed is tried again first."""
    pause = threading.Event()
    quiet = 0
    while quiet < 20:
        is_synced = all(watch.reflector.wait_synced(0) for watch in controller.watches)
        queue = controller.queue
        idle = is_synced and not queue.depth and not queue.running
        quiet = quiet + 1 if idle else 0
        pause.wait(0.05)
    manager.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("class_")
    parser.add_argument("directory", type=Path)
    parser.add_argument("log", type=Path)
    given = parser.parse_args()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                serve(given, int(line), write)
            finally:
                os._exit(0)
        os.close(write)
        _, status = os.waitpid(child, 0)
        with os.fdopen(read, "rb") as pipe:
            last = pipe.read().decode()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)} {last or '-'}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
