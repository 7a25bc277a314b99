"""TCP lines on loopback that a test cuts, holds, slows, or answers on; one thread carries all of them.

A line stands before one server.  Between etcd members it knows who calls (their requests say so in
`X-Server-From`), so that the way between two members can be cut and the others stay.
"""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import AbstractContextManager, suppress
from enum import Enum, auto

from testbed.ports import free_port

_BLOCK = 1 << 16
_PACE = 0.02
_SLOW_SECONDS = 0.15
_SLOW_RATE = 2e6
_REQUEST = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) /")
_WRITING = re.compile(rb"(PUT|POST|DELETE) /")
_FROM = re.compile(rb"\r\nX-Server-From: *([0-9a-f]+)", re.IGNORECASE)
_REFUSAL = (
    b"HTTP/1.1 %d Soak\r\nContent-Type: application/xml\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
)


class Mode(Enum):
    """What becomes of the bytes."""

    OPEN = auto()
    CUT = auto()
    """Connections are reset, new ones too."""
    HELD = auto()
    """Nothing passes, nothing is lost: all of it comes late."""
    SLOW = auto()
    DEAF = auto()
    """Requests are carried out, and their answers lost."""
    REFUSED_500 = 500
    REFUSED_503 = 503


class _Connection:
    def __init__(self, streams):
        self.streams = streams
        self.source = None
        self.is_deaf = False

    def abort(self):
        for stream in self.streams:
            stream.transport.abort()


class Line:
    """From `port` to `upstream`."""

    def __init__(self, loop, upstream):
        self.upstream = upstream
        self.port = free_port()
        self._loop = loop
        self._modes = {}
        self._left = None
        self._stopped = threading.Event()
        self._connections = set()

    def set(self, mode, source=None):
        """For all who call, or for one."""
        self._loop.call_soon_threadsafe(self._set, mode, source)

    def stop_at(self, number):
        """Hold the line at the `number`-th writing request from now, before the server sees it.

        The event that tells.  `set(Mode.OPEN)` lets that request go on.
        """
        self._stopped = threading.Event()
        self._left = number
        return self._stopped

    def _set(self, mode, source):
        self._left = None
        self._modes[source] = mode
        if mode is Mode.CUT:
            for each in list(self._connections):
                if self._mode(each) is Mode.CUT:
                    each.abort()

    def _mode(self, connection):
        whole = self._modes.get(None, Mode.OPEN)
        return whole if whole is not Mode.OPEN else self._modes.get(connection.source, Mode.OPEN)

    async def serve(self):
        return await asyncio.start_server(self._carry, "127.0.0.1", self.port, limit=_BLOCK)

    async def _carry(self, reader, writer):
        connection = _Connection([writer])
        try:
            onward, upward = await asyncio.open_connection("127.0.0.1", self.upstream, limit=_BLOCK)
        except OSError:
            writer.transport.abort()
            return
        connection.streams.append(upward)
        self._connections.add(connection)
        ways = [
            asyncio.create_task(self._way(reader, upward, connection, self._asked)),
            asyncio.create_task(self._way(onward, writer, connection, self._answered)),
        ]
        with suppress(asyncio.CancelledError):  # the end of all lines
            await asyncio.wait(ways)
        self._connections.discard(connection)
        connection.abort()

    async def _way(self, reader, writer, connection, pass_on):
        with suppress(OSError):
            while block := await reader.read(_BLOCK):
                if not await pass_on(block, connection, writer):
                    break
        connection.abort()

    async def _asked(self, block, connection, upward):
        if connection.source is None and (found := _FROM.search(block)):
            connection.source = found[1].decode()
        is_request = _REQUEST.match(block) is not None
        if self._left is not None and _WRITING.match(block):
            self._left -= 1
            if self._left == 0:
                self._left = None
                self._modes[None] = Mode.HELD
                self._stopped.set()
        mode = await self._open(block, connection)
        if mode is Mode.CUT:
            return False
        if is_request and mode in (Mode.REFUSED_500, Mode.REFUSED_503):
            body = b"<Error><Code>%s</Code></Error>" % (
                b"InternalError" if mode is Mode.REFUSED_500 else b"SlowDown"
            )
            connection.streams[0].write(_REFUSAL % (mode.value, len(body), body))
            await connection.streams[0].drain()
            return False
        connection.is_deaf = connection.is_deaf or (is_request and mode is Mode.DEAF)
        return await self._write(block, upward)

    async def _answered(self, block, connection, downward):
        mode = await self._open(block, connection)
        if mode is Mode.CUT:
            return False
        if connection.is_deaf and not block.startswith(b"HTTP/1.1 100"):
            return False
        return await self._write(block, downward)

    async def _open(self, block, connection):
        """The mode, once it lets anything pass."""
        while (mode := self._mode(connection)) is Mode.HELD:  # noqa: ASYNC110  many lines may change at once
            await asyncio.sleep(_PACE)
        if mode is Mode.SLOW:
            await asyncio.sleep(_SLOW_SECONDS + len(block) / _SLOW_RATE)
        return mode

    @staticmethod
    async def _write(block, stream):
        stream.write(block)
        await stream.drain()
        return True


class Lines(AbstractContextManager["Lines"]):
    """All lines of a test; leaving it cuts them."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lines", daemon=True)
        self._thread.start()
        self._lines = []

    def line(self, upstream):
        line = Line(self._loop, upstream)
        server = asyncio.run_coroutine_threadsafe(line.serve(), self._loop).result(30)
        self._lines.append((line, server))
        return line

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _end(self):
        for line, server in self._lines:
            server.close()
            for connection in list(line._connections):  # noqa: SLF001  its own
                connection.abort()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
