"""A process with a manager, for tests that kill it or have it stop for a while.

Its controller writes into the status of each thing who it is and how often it has written, without end.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from rootcellar.kube import kubeconfig
from rootcellar.kube.controller import Controller, Requeue, Watch
from rootcellar.kube.election import Terms
from rootcellar.kube.manager import Manager
from rootcellar.kube.reflector import Reflector
from rootcellar.kube.steps import Done
from rootcellar.kube.writes import Writer
from rootcellar.logs import make_log
from tests.kube.things import THINGS
from tests.stopped import stop_here

LEASE = "things.rootcellar.dev"
LONG = 3600
"""Seconds of a lease that no test waits for, and that no process is too slow to renew."""
NAP = 2
"""The turn in which a process stops: soon, as its lease may be short."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("namespace")
    parser.add_argument("identity")
    parser.add_argument("--hang", action="store_true", help="never come back from a thing that is named hang")
    parser.add_argument(
        "--doze", choices=["before", "after"], help="stop once, before or after asking to write"
    )
    parser.add_argument("--lease", type=int, default=LONG, help="seconds; it writes until one before")
    given = parser.parse_args()
    terms = Terms(
        given.namespace,
        LEASE,
        given.identity,
        lease=given.lease,
        renew=given.lease - 1,
        retry=0.3,
        look=0.3,
    )
    manager = Manager(
        kubeconfig.read([given.kubeconfig]),
        identity=given.identity,
        log=make_log("json"),
        terms=terms,
        grace=2 if given.hang else 60,
    )
    things = Reflector(manager.client, THINGS, namespace=given.namespace)
    turns = 0

    def doze(when):
        if given.doze == when and turns == NAP:
            stop_here()

    def may_write():
        doze("before")
        allowed = manager.may_write()
        doze("after")
        return allowed

    writer = Writer(manager.client, given.identity, may_write)

    def write(key):
        nonlocal turns
        if given.hang and key.name == "hang":
            threading.Event().wait()
        raw = things.cache.raw(key)
        if raw is None:
            return Done()
        turns += 1
        status = {"status": {"by": given.identity, "size": turns}}
        writer.patch(THINGS, key, status, raw, subresource="status", only_this=given.doze != "before")
        return Requeue(0.001)

    manager.add(Controller("things", write, [Watch(things)], workers=2))
    manager.stop_on_signals()
    manager.run()


if __name__ == "__main__":
    main()
