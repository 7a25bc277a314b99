"""`demo`: a real etcd, real backups, a disaster, a restore to the second before it, the proof.

What it prints are the real commands with their real output; they are carried out in this process.  What it
claims in the end comes from the two live etcds alone: the one that was lost, asked before, and the restored
one.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack, chdir
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rootcellar.backup.browse.live import LiveKeyspace
from rootcellar.cli import columns, flags
from rootcellar.cli.console import Console
from rootcellar.cli.dispatch import dispatch
from rootcellar.cli.document import Document
from rootcellar.errors import ProofError
from rootcellar.etcd import operations
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess, find_etcd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.cli.context import Context
    from rootcellar.etcd.process import EtcdBinary

ORDERS = 3000
_STORE, _DATA = "store", "etcd"
_BATCH = 100
_CORRUPTING = ((3, 5, 0), (3, 5, 2))
"""The first and the last etcd that may lose writes when it is killed."""


class State(NamedTuple):
    """What an etcd says of itself at a revision; `keys` in order with their values."""

    revision: int
    hash: int
    keys: tuple[tuple[bytes, bytes], ...]


class DemoReport(Document, frozen=True):
    """What was lost and what came back.  Times are in seconds."""

    etcd_version: str
    directory: str | None
    restored_to: datetime
    revision: int
    hash_kv_lost: int
    hash_kv_restored: int
    keys_lost: int
    keys_restored: int
    seconds_to_restore: float
    seconds_to_serve: float
    seconds_in_all: float
    passed: bool


def run(context: Context) -> int:
    """Play it, and tell whether it is true."""
    console, began = context.console, time.monotonic()
    binary = find_etcd(context.arguments.get(flags.ETCD))
    keep = context.arguments.has(flags.KEEP)
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="rootcellar-demo-"))
        if not keep:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        stack.enter_context(chdir(directory))  # so that the commands are short enough to be read
        play = _Play(console, binary, directory)
        try:
            report = play.perform(began, keep=keep)
        finally:
            if keep:
                console.note(f"everything is in {directory}")
    if not console.is_text:
        console.document(report)
    if not report.passed:
        raise ProofError(
            "the restored etcd is not what was lost",
            hint=f"try --keep and another etcd (--etcd) than {binary.version}, and report this",
        )
    return 0


class _Play:
    """The acts, in order."""

    def __init__(self, console: Console, binary: EtcdBinary, directory: Path) -> None:
        self._console = console
        self._binary = binary
        self._directory = directory
        self._act = 0

    def perform(self, began: float, *, keep: bool) -> DemoReport:
        moment, before = self._until_the_disaster()
        self._say("What is there to restore from?")
        self._rootcellar("ls", _STORE)
        self._say("Back to the moment before the script ran, without any etcd")
        started = time.monotonic()
        self._rootcellar("restore", _STORE, "--data-dir", _DATA, "--to-time", _rfc3339(moment))
        restored = time.monotonic()
        self._say("Start etcd on it, and ask it what it has")
        with self._etcd() as etcd, EtcdClient([etcd.client_url]) as client:
            etcd.wait_ready(client)
            serving = time.monotonic()
            after = state(client, before.revision)
            self._tell(f"etcd {self._binary.version} serves at {etcd.client_url}")
            self._say("Go on backing up: history has forked, and the store is told")
            self._rootcellar(
                "snapshot", "full", _STORE, "--live-hash", "full", "--endpoints", etcd.client_url
            )
        self._say("Was that luck? Prove the new backup: restore it to scratch, and start an etcd there")
        self._rootcellar("verify", _STORE, "--level", 5, "--etcd", self._binary.path)
        report = DemoReport(
            etcd_version=str(self._binary.version),
            directory=str(self._directory) if keep else None,
            restored_to=moment,
            revision=before.revision,
            hash_kv_lost=before.hash,
            hash_kv_restored=after.hash,
            keys_lost=len(before.keys),
            keys_restored=len(after.keys),
            seconds_to_restore=round(restored - started, 3),
            seconds_to_serve=round(serving - restored, 3),
            seconds_in_all=round(time.monotonic() - began, 3),
            passed=before == after,
        )
        self._report(report, is_same_data=before.keys == after.keys)
        return report

    def _until_the_disaster(self) -> tuple[datetime, State]:
        """Back up an etcd while it changes, and lose it; the moment to go back to, and its state then."""
        self._say(f"Start etcd {self._binary.version}")
        self._tell(f"$ cd {self._directory}")
        if _CORRUPTING[0] <= self._binary.version <= _CORRUPTING[1]:
            self._console.warn(
                f"etcd {self._binary.version} may lose writes when it is killed, as 3.5.0 to 3.5.2 all may: "
                "good enough for a demonstration, never for data"
            )
        with self._etcd() as etcd, EtcdClient([etcd.client_url]) as client:
            etcd.wait_ready(client)
            backup = ("--endpoints", etcd.client_url)
            self._say(f"A shop opens: {ORDERS:,} orders, and a full backup")
            _write(client, ((_order(number), b"new") for number in range(ORDERS)))
            self._rootcellar("snapshot", "full", _STORE, "--live-hash", "full", *backup)
            self._say("Business goes on: orders are paid, some are cancelled; a delta holds what changed")
            _write(client, ((_order(number), b"paid") for number in range(0, ORDERS, 2)))
            for number in range(0, ORDERS, 10):
                client.delete(_order(number))
            client.put(b"/shop/cart/42", b"three apples", lease=client.lease_grant(3600))
            self._rootcellar("snapshot", "delta", _STORE, *backup)
            before = state(client)
            moment = datetime.now(UTC)
            self._tell(
                f"It is {_rfc3339(moment)}. etcd has {len(before.keys):,} keys, revision {before.revision}, "
                f"HashKV {before.hash}"
            )
            self._say("Then a script goes wrong. The next delta dutifully holds that, too")
            client.delete(b"/shop/orders/", b"/shop/orders0")
            self._rootcellar("snapshot", "delta", _STORE, *backup)
            self._tell(f"{len(state(client).keys)} key is left")
            self._say("And the machine dies: etcd is killed, its disk is gone")
            etcd.kill()
            shutil.rmtree(self._directory / _DATA)
            self._tell(f"$ kill -9 {etcd.pid}; rm -rf {_DATA}")
        return moment, before

    def _etcd(self) -> EtcdProcess:
        return EtcdProcess(self._binary, self._directory / _DATA)

    def _say(self, text: str) -> None:
        self._act += 1
        if self._console.is_text:
            number = self._console.out.style(f"{self._act}.", "cyan")
            self._console.lines(["", f"{number} {self._console.out.style(text, 'bold')}"])
            self._console.finish()

    def _tell(self, text: str) -> None:
        if self._console.is_text:
            self._console.lines([text])

    def _rootcellar(self, *words: object) -> None:
        """Carry a command line out and show it.  A configuration that lies about has no say here."""
        given = [str(word) for word in words]
        if not self._console.is_text:
            silent = Console(io.StringIO(), sys.stderr, {}, quiet=True)
            dispatch([*given, "--config", os.devnull, "--quiet"], silent, {})
            return
        self._console.lines([self._console.out.style(f"$ rootcellar {shlex.join(given)}", "dim")])
        dispatch([*given, "--config", os.devnull], self._console, {})
        self._console.finish()

    def _report(self, report: DemoReport, *, is_same_data: bool) -> None:
        style = self._console.out.style
        hashes = f"{report.hash_kv_lost} before, {report.hash_kv_restored} after"
        keys = f"{report.keys_lost:,} before, {report.keys_restored:,} after"
        verdict = style("the same", "green") if report.passed else style("NOT the same", "red")
        recovery = report.seconds_to_restore + report.seconds_to_serve
        self._say("Recovery report")
        self._tell(f"  to restore   {columns.seconds(report.seconds_to_restore)}")
        self._tell(f"  to serve     {columns.seconds(report.seconds_to_serve)} more, until etcd answered")
        self._tell(f"  to recover   {columns.seconds(recovery)}")
        self._tell(f"  revision     {report.revision:,}")
        self._tell(f"  HashKV       {hashes}")
        self._tell(f"  keys         {keys}, {'equal' if is_same_data else 'different'} one by one")
        self._tell(
            f"  verdict      {verdict}; the whole demonstration took {columns.seconds(report.seconds_in_all)}"
        )


def _rfc3339(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _order(number: int) -> bytes:
    return b"/shop/orders/%05d" % number


def _write(client: EtcdClient, pairs: Iterator[tuple[bytes, bytes]]) -> None:
    batch = []
    for key, state in pairs:
        batch.append(operations.put(key, b'{"order": "%s", "state": "%s"}' % (key[-5:], state)))
        if len(batch) == _BATCH:
            client.txn(batch)
            batch = []
    if batch:
        client.txn(batch)


def state(client: EtcdClient, revision: int | None = None) -> State:
    """What an etcd has at a revision, its newest by default."""
    keyspace = LiveKeyspace(client, revision)
    hashed = client.hash_kv(keyspace.revision)
    return State(
        keyspace.revision, hashed.hash, tuple((each.key, each.record.value) for each in keyspace.live())
    )
