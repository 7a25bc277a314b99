"""Carrying out a storm: how each kind of fault strikes, and how it is taken back."""

from __future__ import annotations

import heapq
import itertools
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import chains
from rootcellar.backup.catalogue.ledger import release_hold, write_hold
from rootcellar.errors import RootcellarError
from tests.agent.agents import wait_until
from tests.soak.lines import Mode
from tests.soak.storm import MEMBERS, Fault, Kind

BEHIND = 60
"""Revisions that a compaction stays behind the recovery point, as Kubernetes' stays minutes behind."""
_FOR_EVER = 45.0
"""A hold that should last longer than so many seconds is never released."""
_TRIES = 1000


class Strikes:
    """Strikes when a fault is due, and mends when its time is over.

    `struck` counts what happened: a fault that finds its target gone already does not count.
    """

    def __init__(self, ground, observer):
        self.ground = ground
        self.observer = observer
        self.struck = Counter()
        self._errands = []

    def run(self, faults):
        """All of them, in their time."""
        began, order, pause = time.monotonic(), itertools.count(), threading.Event()
        pending = [(fault.at, next(order), False, fault) for fault in faults]
        while pending:
            at, _, is_over, fault = heapq.heappop(pending)
            pause.wait(max(0.0, began + at - time.monotonic()))
            if is_over:
                self._mend(fault)
            elif self._strike(fault):
                self.struck[fault.kind] += 1
                heapq.heappush(pending, (fault.at + fault.lasts, next(order), True, fault))
        for errand in self._errands:
            errand.join(60)

    def settle(self):
        """Take everything back, whatever was left, and wait until all servers answer."""
        ground = self.ground
        for number, other in itertools.permutations(range(MEMBERS), 2):
            for kind in Kind:
                self._mend(Fault(0, kind, number, other, 0))
        for member in ground.members:
            member.wait_healthy()
        if ground.weed is not None:
            ground.weed.wait_until(ground.weed.answers, "answering")
        for number in range(MEMBERS):
            wait_until(lambda number=number: ground.status(number) is not None, f"agent {number}", 120)

    def _strike(self, fault):
        strike, _ = _HOW[fault.kind]
        return strike(self, fault) is not False

    def _mend(self, fault):
        _, mend = _HOW[fault.kind]
        if mend is not None:
            mend(self, fault)

    # servers

    def _kill(self, server):
        if not server.running:
            return False
        server.kill()
        return True

    def kill_etcd(self, fault):
        return self._kill(self.ground.members[fault.member])

    def start_etcd(self, fault):
        member = self.ground.members[fault.member]
        if not member.running:
            member.start_soon()

    def pause_etcd(self, fault):
        return self.ground.signal_server(self.ground.members[fault.member], signal.SIGSTOP)

    def continue_etcd(self, fault):
        self.ground.signal_server(self.ground.members[fault.member], signal.SIGCONT)

    def kill_store(self, fault):
        return self._kill(self.ground.weed)

    def start_store(self, fault):
        weed = self.ground.weed
        if weed is not None and not weed.running:
            weed.launch(weed.command())

    def pause_store(self, fault):
        return self.ground.signal_server(self.ground.weed, signal.SIGSTOP)

    def continue_store(self, fault):
        if self.ground.weed is not None:
            self.ground.signal_server(self.ground.weed, signal.SIGCONT)

    # agents

    def kill_agent(self, fault):
        agent = self.ground.ours[fault.member]
        if agent.process.poll() is not None:
            return False
        agent.kill()
        return True

    def start_agent(self, fault):
        agent = self.ground.ours[fault.member]
        if agent.process.poll() is not None:
            agent.start()

    def pause_agent(self, fault):
        return self.ground.signal_agent(fault.member, signal.SIGSTOP)

    def continue_agent(self, fault):
        self.ground.signal_agent(fault.member, signal.SIGCONT)

    def reload(self, fault):
        # Before an agent has begun the signal would end it.
        return self.ground.status(fault.member, timeout=0.5) is not None and self.ground.signal_agent(
            fault.member, signal.SIGHUP
        )

    def full(self, fault):
        agent = self.ground.ours[fault.member]
        return self._errand(lambda: agent.doorway.ask("POST", "/snapshot/full", timeout=30))

    # disks

    def fill_disk(self, fault):
        self.ground.disk.fill()

    def free_disk(self, fault):
        if self.ground.disk is not None:
            self.ground.disk.free()

    def freeze_disk(self, fault):
        # Somebody writes at most moments: as `umount`, it is tried until it works.
        return any(self.ground.disk.read_only() for _ in range(_TRIES)) and self.ground.disk.is_mounted

    def thaw_disk(self, fault):
        if self.ground.disk is not None:
            self.ground.disk.writable()

    def unmount_disk(self, fault):
        return self.ground.disk.unmount()

    def mount_disk(self, fault):
        if self.ground.disk is not None:
            self.ground.disk.mount()

    # what a person does

    def hold(self, fault):
        return self._errand(lambda: self._hold(fault))

    def _hold(self, fault):
        store, number = self.ground.store, fault.member
        found = chains(read_catalogue(store), 1)
        if not found:
            return
        chain = found[-1 - number % len(found)]
        hold = write_hold(
            store, chain.full, reason="the storm", by="soak", now=datetime.now(UTC), through=chain.reach
        )
        # What was condemned before the hold goes, as `prune` says.
        condemned = {each.key for each in read_catalogue(store).tombstones}
        held = [each.key for each in (chain.full, *chain.deltas)]
        if condemned.isdisjoint(held):
            self.observer.held[fault] = hold, held

    def release(self, fault):
        found = self.observer.held.get(fault)
        if found is None or fault.lasts > _FOR_EVER:
            return
        del self.observer.held[fault]
        now = datetime.now(UTC)
        self._errand(lambda: release_hold(self.ground.store, found[0], reason="enough", by="soak", now=now))

    # lines

    def cut_member(self, fault):
        self.ground.isolate(fault.member, Mode.CUT)

    def hold_member(self, fault):
        self.ground.isolate(fault.member, Mode.HELD)

    def join_member(self, fault):
        self.ground.isolate(fault.member, Mode.OPEN)

    def cut_pair(self, fault):
        self.ground.part(fault.member, fault.other, Mode.CUT)

    def join_pair(self, fault):
        self.ground.part(fault.member, fault.other, Mode.OPEN)

    def cut_etcd(self, fault):
        self.ground.etcd_lines[fault.member].set(Mode.CUT)

    def hold_etcd(self, fault):
        self.ground.etcd_lines[fault.member].set(Mode.HELD)

    def join_etcd(self, fault):
        self.ground.etcd_lines[fault.member].set(Mode.OPEN)

    def break_store(self, fault):
        self.ground.store_lines[fault.member].set(_LINE[fault.kind])

    def join_store(self, fault):
        if self.ground.store_lines:
            self.ground.store_lines[fault.member].set(Mode.OPEN)

    # etcd's own doings

    def compact(self, fault):
        revision = self.observer.claimed - BEHIND
        return revision > 1 and self._errand(lambda: self.ground.client.compact(revision))

    def defragment(self, fault):
        client = self.ground.client.member(self.ground.endpoints[fault.member])
        return self._errand(lambda: client.defragment(timeout=20))

    def move_leader(self, fault):
        return self._errand(lambda: self.ground.move_leader(fault.member))

    def _errand(self, act):
        """What may take its time, or be refused, because of the other faults."""

        def body():
            with suppress(RootcellarError, OSError, AttributeError):
                act()

        errand = threading.Thread(target=body, daemon=True)
        errand.start()
        self._errands.append(errand)
        return True


_LINE = {
    Kind.CUT_STORE: Mode.CUT,
    Kind.HOLD_STORE: Mode.HELD,
    Kind.SLOW_STORE: Mode.SLOW,
    Kind.DEAF_STORE: Mode.DEAF,
    Kind.STORE_500: Mode.REFUSED_500,
    Kind.STORE_503: Mode.REFUSED_503,
}
_HOW = {
    Kind.KILL_ETCD: (Strikes.kill_etcd, Strikes.start_etcd),
    Kind.PAUSE_ETCD: (Strikes.pause_etcd, Strikes.continue_etcd),
    Kind.DEFRAGMENT: (Strikes.defragment, None),
    Kind.COMPACT: (Strikes.compact, None),
    Kind.MOVE_LEADER: (Strikes.move_leader, None),
    Kind.CUT_MEMBER: (Strikes.cut_member, Strikes.join_member),
    Kind.HOLD_MEMBER: (Strikes.hold_member, Strikes.join_member),
    Kind.CUT_PAIR: (Strikes.cut_pair, Strikes.join_pair),
    Kind.CUT_ETCD: (Strikes.cut_etcd, Strikes.join_etcd),
    Kind.HOLD_ETCD: (Strikes.hold_etcd, Strikes.join_etcd),
    Kind.KILL_AGENT: (Strikes.kill_agent, Strikes.start_agent),
    Kind.PAUSE_AGENT: (Strikes.pause_agent, Strikes.continue_agent),
    Kind.PAUSE_AGENT_LONG: (Strikes.pause_agent, Strikes.continue_agent),
    Kind.FULL: (Strikes.full, None),
    Kind.RELOAD: (Strikes.reload, None),
    Kind.KILL_STORE: (Strikes.kill_store, Strikes.start_store),
    Kind.PAUSE_STORE: (Strikes.pause_store, Strikes.continue_store),
    Kind.DISK_FULL: (Strikes.fill_disk, Strikes.free_disk),
    Kind.DISK_READ_ONLY: (Strikes.freeze_disk, Strikes.thaw_disk),
    Kind.DISK_GONE: (Strikes.unmount_disk, Strikes.mount_disk),
    Kind.HOLD: (Strikes.hold, Strikes.release),
    **dict.fromkeys(_LINE, (Strikes.break_store, Strikes.join_store)),
}
