"""The etcd container of the Gardener door: etcd-wrapper's part in the start protocol.

It has the sidecar make the data directory fit, fetches etcd's configuration from it, runs etcd, says whether
etcd answers, and notes how etcd ended, from which the next start learns how much to check.

What differs from etcd-wrapper: etcd is a child process, of whatever version is installed, not linked in.  The
note says "ended in good order" only once etcd has: there it is written when the signal arrives, also when no
etcd was running yet or when it is killed a moment later, and then a crash passes for a clean end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import urllib.error
import urllib.request
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from starlette.responses import Response
from starlette.routing import Route

from rootcellar.agent.serving import serving
from rootcellar.agent.validation import Mode
from rootcellar.errors import ConfigError, EtcdError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.connection import TlsFiles
from rootcellar.etcd.process import environment, tied
from rootcellar.wal.durable import sync_directory, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from rootcellar.etcd.process import EtcdBinary

GO_NAMES = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupt"}
"""What the note holds: the signal's name as Go has it."""

_POLL, _PROBE_EVERY, _PROBE_SECONDS = 1.0, 2.0, 5.0
_CONFIG_TRIES = 5
_LONGEST_PAUSE = 15.0
_ANSWER_SECONDS = 30.0
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WrapperOptions:
    """How the container is told to work.

    `sidecar` is the sidecar's base URL, `sidecar_ca` whom its certificate must come from.  `server_name`,
    `client_cert`, `client_key` and `client_port` are for asking our own etcd, `port` is ours.
    `ready_seconds` 0 waits for ever.  `note` is where the end of etcd is noted, `home` where its
    configuration is put.
    """

    etcd: EtcdBinary
    sidecar: str
    home: Path
    note: Path
    sidecar_ca: Path | None = None
    server_name: str = "localhost"
    client_cert: Path | None = None
    client_key: Path | None = None
    client_port: int = 2379
    port: int = 9095
    host: str = ""
    ready_seconds: float = 0


async def wrap(options: WrapperOptions) -> int:
    """Run one etcd from its initialization to its end; the exit code.  Raises ConfigError."""
    wrapper = _Wrapper(options)
    loop = asyncio.get_running_loop()
    for number in GO_NAMES:
        loop.add_signal_handler(number, wrapper.signalled, number)
    return await wrapper.run()


class _Wrapper:
    def __init__(self, options: WrapperOptions) -> None:
        self._options = options
        self._context = _context(options)
        self._asked_to_end: asyncio.Event = asyncio.Event()
        self._signal: signal.Signals | None = None
        self._etcd: asyncio.subprocess.Process | None = None
        self._ready = False

    def signalled(self, number: signal.Signals) -> None:
        """The first signal ends etcd in good order, the second ends everything."""
        if self._signal is not None:
            _log.error("a second signal: ending at once")
            if self._etcd is not None:
                with suppress(ProcessLookupError):
                    self._etcd.kill()
            os._exit(1)
        self._signal = number
        self._asked_to_end.set()

    async def run(self) -> int:
        if not await self._unless_ended(self._initialize()):
            return 0
        text = await self._unless_ended(self._configuration())
        if text is None:
            return 0
        path = self._write_configuration(text)
        values = _parsed(text)
        _log.info(
            "etcd %s starts as %s of %s (%s cluster)",
            self._options.etcd.version,
            values.get("name"),
            values.get("initial-cluster"),
            values.get("initial-cluster-state"),
        )
        os.umask(0o077)
        _close_modes(Path(str(values.get("data-dir") or "default.etcd")))
        # A crash from here on finds no note, and the next start checks everything.
        self._options.note.unlink(missing_ok=True)
        sync_directory(self._options.note.parent)
        return await self._serve(path, values)

    async def _unless_ended(self, work: Any) -> Any:
        """What the work comes to, None when a signal comes first."""
        task = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(self._asked_to_end.wait())
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if task.done():
            return task.result()
        task.cancel()
        return None

    async def _initialize(self) -> bool:
        """Poll the sidecar until the data directory is fit."""
        mode, why = _mode(self._options.note)
        began, pause = asyncio.get_running_loop().time(), _POLL
        told: set[str] = set()
        while True:
            seconds, now = _POLL, ""
            try:
                status = await asyncio.to_thread(self._get, "/initialization/status")
                if status == "Successful":
                    took = asyncio.get_running_loop().time() - began
                    _log.info("the sidecar has made the data directory fit; that took %.0f s", took)
                    return True
                if status == "New":
                    await asyncio.to_thread(self._get, f"/initialization/start?mode={mode.value}")
                    now = f"the sidecar was asked to make the data directory fit ({mode.value} look: {why})"
                if status == "Failed":
                    now = "Failed: the data directory is not fit, and the sidecar's log says why; asked again"
                    seconds, pause = pause, min(2 * pause, _LONGEST_PAUSE)
            except OSError as error:
                reason = getattr(error, "reason", error)
                now = f"the sidecar does not answer at {self._options.sidecar}: {reason}"
            if now and now not in told:  # each turn of a failure is in the sidecar's log
                _log.info("%s", now)
                told.add(now)
            await asyncio.sleep(seconds)

    async def _configuration(self) -> str:
        for tries_left in reversed(range(_CONFIG_TRIES)):
            try:
                return await asyncio.to_thread(self._get, "/config")
            except OSError as error:
                if not tries_left:
                    raise ConfigError(
                        f"the sidecar gives no etcd configuration: {error}", hint="its log says why"
                    ) from error
            await asyncio.sleep(_POLL)
        raise AssertionError

    def _get(self, path: str) -> str:
        url = f"{self._options.sidecar}{path}"
        with urllib.request.urlopen(  # noqa: S310  http(s), from our own options
            url, timeout=_ANSWER_SECONDS, context=self._context
        ) as answer:
            return bytes(answer.read()).decode()

    def _write_configuration(self, text: str) -> Path:
        path = self._options.home / "etcd.conf.yaml"
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        return path

    async def _serve(self, path: Path, values: dict[str, Any]) -> int:
        tls = _tls(values)
        routes = [
            Route("/readyz", self._readyz, methods=list(_METHODS)),
            Route("/stop", self._stop, methods=list(_METHODS)),
        ]
        async with AsyncExitStack() as stack:
            cert, key = (Path(tls["cert-file"]), Path(tls["key-file"])) if tls else (None, None)
            server = serving(routes, self._options.host, self._options.port, cert=cert, key=key)
            await stack.enter_async_context(server)
            self._etcd = await asyncio.create_subprocess_exec(
                *tied([str(self._options.etcd.path), "--config-file", str(path)]),
                env=environment(),
                start_new_session=True,  # a terminal's interrupt is for us: we hand it on
            )
            probe = asyncio.ensure_future(self._probe(partial(self._client, tls)))
            try:
                return await self._outlive(self._etcd)
            finally:
                self._ready = False
                probe.cancel()

    async def _outlive(self, etcd: asyncio.subprocess.Process) -> int:
        """Wait for etcd's end, or bring it about; note a good one."""
        ended = asyncio.ensure_future(etcd.wait())
        asked = asyncio.ensure_future(self._asked_to_end.wait())
        await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if ended.done():
            _log.error("etcd ended by itself with code %s", ended.result())
            return ended.result() if ended.result() > 0 else 1
        self._ready = False
        number = self._signal or signal.SIGTERM
        with suppress(ProcessLookupError):
            etcd.send_signal(number)
        code = await ended
        if code not in (0, -number):
            _log.error("asked to end, etcd ended with code %s", code)
            return code if code > 0 else 1
        # A crash before this line loses only the note: the next start checks everything.
        write_file(self._options.note, GO_NAMES[number].encode())
        sync_directory(self._options.note.parent)
        return 0

    async def _probe(self, open_client: Callable[[], EtcdClient]) -> None:
        """Keep asking etcd for something that a quorum has to confirm; it runs, whether we can ask or not."""
        began, late, told = asyncio.get_running_loop().time(), False, ""
        client: EtcdClient | None = None
        with ExitStack() as stack:
            while True:
                try:
                    client = client or stack.enter_context(open_client())
                    await asyncio.to_thread(client.header, timeout=_PROBE_SECONDS)
                    self._tell(ready=not self._asked_to_end.is_set())
                except EtcdError as error:  # also where it answers, if not to us: there may be users
                    self._tell(ready=False, why=error.message)
                except ConfigError as error:
                    if error.message != told:
                        _log.error("etcd cannot be asked: %s; tried again", error.message)
                        told = error.message
                waited = asyncio.get_running_loop().time() - began
                if not (self._ready or late) and waited > self._options.ready_seconds > 0:
                    late = True
                    _log.error("etcd is not ready after %.0f s", waited)
                await asyncio.sleep(_PROBE_EVERY)

    def _tell(self, *, ready: bool, why: str = "") -> None:
        if ready and not self._ready:
            _log.info("etcd is ready: a quorum answers")
        if self._ready and not ready and not self._asked_to_end.is_set():
            _log.warning("etcd is not ready any more: %s", why)
        self._ready = ready

    def _client(self, tls: dict[str, str] | None) -> EtcdClient:
        options = self._options
        scheme = "https" if tls else "http"
        files = (
            TlsFiles(Path(tls["trusted-ca-file"]), options.client_cert, options.client_key) if tls else None
        )
        return EtcdClient([f"{scheme}://{options.server_name}:{options.client_port}"], tls=files)

    async def _readyz(self, _request: Request) -> Response:
        return Response(b"", 200 if self._ready else 503)

    async def _stop(self, request: Request) -> Response:
        if request.method == "POST":
            _log.info("asked to stop")
            self._asked_to_end.set()
        return Response(b"", 200)


def _mode(note: Path) -> tuple[Mode, str]:
    """How much is to be checked, by how etcd last ended; and how that was."""
    try:
        said = note.read_text(errors="replace")
    except OSError:
        return Mode.FULL, f"no {note} says that etcd ended in good order"
    if any(name in said for name in GO_NAMES.values()):
        return Mode.SANITY, f"etcd ended in good order ({said.strip()})"
    return Mode.FULL, f"{note} does not say that etcd ended in good order"


def _context(options: WrapperOptions) -> ssl.SSLContext | None:
    if not options.sidecar.startswith("https://"):
        return None
    try:
        return ssl.create_default_context(cafile=options.sidecar_ca)
    except OSError as error:
        raise ConfigError(
            f"{options.sidecar_ca} cannot be used to trust the sidecar: {error}",
            hint="give its certificate authority in --backup-restore-ca-cert-bundle-path",
        ) from error


def _parsed(text: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the sidecar's etcd configuration is no YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError("the sidecar's etcd configuration holds no settings")
    return values


def _tls(values: dict[str, Any]) -> dict[str, str] | None:
    """The files that etcd serves its clients with, None when it speaks plain HTTP."""
    found = values.get("client-transport-security")
    wanted = ("cert-file", "key-file", "trusted-ca-file")
    if not isinstance(found, dict) or not all(found.get(name) for name in wanted):
        return None
    return {name: str(found[name]) for name in wanted}


def _close_modes(data_dir: Path) -> None:
    """What an older version left readable for others is theirs no longer."""
    member = data_dir / "member"
    for path in (member, *member.rglob("*")) if member.is_dir() else ():
        with suppress(PermissionError):
            path.chmod(0o700 if path.is_dir() else 0o600)
