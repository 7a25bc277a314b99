"""A process that serves BackupEntries, and kills itself before its Nth write.

Right before each write, to the API server and to a store, the manager is asked whether it may: so N counts
all of them.  Without N it works until it is told to stop.
"""

from __future__ import annotations

import argparse
import os
import signal
from datetime import timedelta
from pathlib import Path

from rootcellar.kube import kubeconfig
from rootcellar.kube.manager import Manager
from rootcellar.logs import make_log
from rootcellar.operator.backupentry.controller import add_entry_controller
from rootcellar.operator.backupentry.run import EntrySettings


class Mortal(Manager):
    """Dies before one of its writes."""

    turns = 0
    dies_at = 0

    def may_write(self):
        self.turns += 1
        if self.turns == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().may_write()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("class_")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--dies-at", type=int, default=0)
    given = parser.parse_args()
    log = make_log("json")
    manager = Mortal(kubeconfig.read([given.kubeconfig]), identity=str(os.getpid()), log=log)
    manager.dies_at = given.dies_at
    settings = EntrySettings(
        types={"S3", "local"},
        classes={given.class_},
        directory=given.directory,
        tokens=given.directory,
        host_path="/buckets",
        grace=timedelta(0),
        looks=None,
    )
    add_entry_controller(manager, settings, log=log, workers=1)
    manager.stop_on_signals()
    manager.run()


if __name__ == "__main__":
    main()
