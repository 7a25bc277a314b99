"""TCP between this process and a network namespace, without a link that the machine would see.

A socket belongs to the network namespace of the thread that made it, whoever uses it afterwards.  So one
thread enters the other namespace and makes sockets there, and pairs of threads carry bytes from one side to
the other.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_CLONE_NEWNET = 0x40000000
_CHUNK = 1 << 16
Address = tuple[str, int]


class Wire:
    """Doors between loopback here and the network namespace of a process."""

    def __init__(self, pid: int) -> None:
        self._inside = ThreadPoolExecutor(1, "testbed-wire", initializer=_enter, initargs=(pid,))
        self._doors: list[socket.socket] = []

    def out(self, there: Address) -> int:
        """A port of loopback here that leads to an address inside."""
        door = socket.create_server(("127.0.0.1", 0))
        self._open(door, lambda: self._inside.submit(socket.create_connection, there, 10).result())
        return int(door.getsockname()[1])

    def into(self, port: int, address: str) -> int:
        """A port of `address` inside that leads to a port of loopback here."""
        door = self._inside.submit(socket.create_server, (address, 0)).result()
        self._open(door, lambda: socket.create_connection(("127.0.0.1", port), 10))
        return int(door.getsockname()[1])

    def _open(self, door: socket.socket, connect: Callable[[], socket.socket]) -> None:
        self._doors.append(door)
        threading.Thread(target=_serve, args=(door, connect), name="testbed-wire-door", daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more."""
        for door in self._doors:
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()
        self._inside.shutdown(wait=False)


def _enter(pid: int) -> None:
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter the network of the cluster")
    finally:
        os.close(namespace)


def _serve(door: socket.socket, connect: Callable[[], socket.socket]) -> None:
    while True:
        try:
            near, _ = door.accept()
        except OSError:
            return  # closed
        threading.Thread(target=_join, args=(near, connect), name="testbed-wire", daemon=True).start()


def _join(near: socket.socket, connect: Callable[[], socket.socket]) -> None:
    try:
        far = connect()
    except OSError:
        near.close()
        return
    far.settimeout(None)
    back = threading.Thread(target=_carry, args=(far, near), name="testbed-wire", daemon=True)
    back.start()
    _carry(near, far)
    back.join()
    near.close()
    far.close()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    # One side has said all it had to; the other may go on.
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
