"""Free ports that stay ours, however many test runs share the machine.

Asking the kernel for a free port and closing it again leaves a gap in which another process gets the same
one.  Here each process reserves a block of ports by a name in the abstract socket namespace, which the kernel
frees when the process ends, and goes round in its block.  All blocks lie below the range that outgoing
connections take theirs from.
"""

from __future__ import annotations

import atexit
import random
import socket
from functools import cache

_RANGE = range(12_000, 32_000)
# A port comes round again after this many others: long after its server took it, or went away.
_BLOCK = 250


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on and no other process is given."""
    block = _block()
    for _ in range(_BLOCK):
        if _silent(port := block.next()):
            return port
    raise OSError("no free port on loopback")


class _Block:
    """`_BLOCK` ports from `first` on, handed out in turn."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._given = 0

    def next(self) -> int:
        self._given += 1
        return self._first + self._given % _BLOCK


@cache
def _block() -> _Block:
    blocks = _RANGE[::_BLOCK]
    for first in random.sample(blocks, len(blocks)):
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0rootcellar-testbed-ports-{first}")
        except OSError:
            mark.close()
        else:
            atexit.register(mark.close)
            return _Block(first)
    raise OSError("every block of ports on loopback is taken by another test run")


def _silent(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
