"""A TCP proxy on loopback that breaks connections where a test says so.

    with Proxy(server.port) as proxy:
        proxy.on(b"PUT /bucket/key", CutUp(100_000), times=2)

A rule waits for bytes that the client sends (a request line, a header); what it does counts from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCK = 1 << 16


@dataclass(frozen=True)
class CutUp:
    """Break the connection when so many bytes have gone from the client to the server."""

    after: int = 0


@dataclass(frozen=True)
class CutDown:
    """Break it when so many bytes of the answer have gone to the client.  With 0, the server has carried
    out the request and the client never hears of it.
    """

    after: int = 0


@dataclass(frozen=True)
class Freeze:
    """Pass so many bytes of the answer on, then none, and keep the connection open: a peer that vanished."""

    after: int = 0


@dataclass(frozen=True)
class Reset:
    """Refuse the request with a reset before the server sees it."""


@dataclass(frozen=True)
class Stall:
    """Swallow the request and keep silent."""


@dataclass(frozen=True)
class Answer:
    """Answer in the server's place; a function is given all that was seen so far."""

    data: bytes | Callable[[bytes], bytes]


def refusal(status, code, *, headers=b""):
    """An S3 error as an answer."""
    body = (
        f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>So said a test.</Message></Error>".encode()
    )
    head = f"HTTP/1.1 {status} Test\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
    return Answer(head.encode() + b"Connection: close\r\n" + headers + b"\r\n" + body)


@dataclass
class Rule:
    when: bytes
    fault: CutUp | CutDown | Freeze | Reset | Stall | Answer
    left: float


@dataclass
class Connection:
    client: socket.socket
    server: socket.socket
    up: float = float("inf")
    down: float = float("inf")
    kept: bool = False
    silent: bool = False
    closed: threading.Event = field(default_factory=threading.Event)

    def cut(self):
        """Reset both sides, as a dying machine in between does."""
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        self.closed.set()


def arrive(side):
    """Wait until all that was sent has come to the other machine: a reset takes back what has not."""
    deadline, unsent = time.monotonic() + 60, bytearray(4)
    while fcntl.ioctl(side, termios.TIOCOUTQ, unsent) == 0 and any(unsent):
        assert time.monotonic() < deadline, "the server does not read"
        time.sleep(0.001)


class Proxy:
    """Listens on `port`; forwards to `upstream`.  `seen` is all that clients have sent."""

    def __init__(self, upstream):
        self.upstream = upstream
        self.seen = bytearray()
        self.fired = 0
        self._rules = []
        self._flaky = None
        self._lock = threading.Lock()
        self._connections = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()
        for thread in self._threads:
            thread.join(30)

    def on(self, when, fault, times=1):
        with self._lock:
            self._rules.append(Rule(when, fault, times))

    def always(self, choose):
        """Ask `choose` for the fault of each request, or None."""
        self._flaky = choose

    def clear(self):
        with self._lock:
            self._rules.clear()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.upstream), timeout=30)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            connection = Connection(client, server)
            pumps = [
                threading.Thread(target=pump, args=(connection,), daemon=True)
                for pump in (self._up, self._down)
            ]
            closer = threading.Thread(target=self._close, args=(connection, pumps), daemon=True)
            with self._lock:
                self._connections.append(connection)
                self._threads += [*pumps, closer]
            for thread in (*pumps, closer):
                thread.start()

    def _close(self, connection, pumps):
        for pump in pumps:
            pump.join()
        connection.client.close()
        connection.server.close()

    def _up(self, connection):
        with contextlib.suppress(OSError):
            while block := connection.client.recv(_BLOCK):
                with self._lock:
                    self.seen += block
                fault = self._fault(block)
                if isinstance(fault, Reset):
                    break
                if isinstance(fault, Answer):
                    data = fault.data if isinstance(fault.data, bytes) else fault.data(bytes(self.seen))
                    connection.client.sendall(data)
                    connection.client.shutdown(socket.SHUT_WR)
                    while connection.client.recv(_BLOCK):
                        pass
                    break
                if isinstance(fault, CutUp):
                    connection.up = fault.after
                elif isinstance(fault, CutDown | Freeze):
                    connection.down, connection.kept = fault.after, isinstance(fault, Freeze)
                elif isinstance(fault, Stall):
                    connection.silent = True
                if connection.silent:
                    continue
                if len(block) >= connection.up:
                    connection.server.sendall(block[: int(connection.up)])
                    arrive(connection.server)
                    break
                connection.up -= len(block)
                connection.server.sendall(block)
        connection.cut()

    def _down(self, connection):
        with contextlib.suppress(OSError):
            while block := connection.server.recv(_BLOCK):
                interim = block.startswith(b"HTTP/1.1 100")
                if not interim and len(block) >= connection.down:
                    connection.client.sendall(block[: int(connection.down)])
                    if connection.kept:
                        connection.closed.wait()
                        return
                    # A reset would take away what the client has not read yet; the end of the stream does
                    # not.
                    connection.client.shutdown(socket.SHUT_WR)
                    connection.server.shutdown(socket.SHUT_RDWR)
                    return
                if not interim:
                    connection.down -= len(block)
                connection.client.sendall(block)
        connection.cut()

    def _fault(self, block):
        with self._lock:
            if self._flaky and block.startswith((b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")):
                fault = self._flaky(block)
                self.fired += fault is not None
                return fault
            for rule in self._rules:
                if rule.left > 0 and rule.when in block:
                    rule.left -= 1
                    self.fired += 1
                    return rule.fault
        return None
