"""Deltas turned into leaf pages beside the process that writes them.

Decoding JSON and packing rows is all interpreter work, so it runs in up to two worker processes that take the
deltas in turn; finished pages come back through pipes, which hold only so much, and are written in chain
order. A worker gets stored bytes and sends pages: it opens no store and no file.  Small chains are done in
place, as a process takes longer to start than they take to decode.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rootcellar.backup.objects import codecs, delta
from rootcellar.backup.restore.rows import RowBlock, Window, blocks
from rootcellar.bolt import leaves
from rootcellar.errors import DamagedObjectError, RootcellarError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from rootcellar.bolt.leaves import Leaves

WORKERS = 2
BLOCK_ROWS = 1 << 14
BLOCK_BYTES = 4 << 20
MANY_ROWS = 256
IN_PLACE_BYTES = 32 << 20
"""Chains whose deltas are together smaller than this, as stored, are replayed without workers."""


@dataclass(frozen=True, slots=True)
class StoredDelta:
    """One delta of a chain: its name (for errors), the suffix that says how it is compressed, and what is
    wanted of it.
    """

    name: str
    suffix: str
    last: int | None
    window: Window


@dataclass(frozen=True, slots=True)
class Part:
    """A run of rows that follow those of the part before: as pages, or, when few, as rows."""

    name: str
    pages: Leaves | None
    keys: list[bytes]
    values: list[bytes]
    last_key: bytes
    leases: set[int]
    first_revision: int
    last_revision: int
    last_time: str
    events: int


def parts(
    stored: StoredDelta, chunks: Iterable[bytes], page_size: int, newest: Mapping[bytes, int]
) -> Iterator[Part]:
    """Decode one delta.  Raises DamagedObjectError, at the latest at the end: believe nothing before."""
    payload = codecs.HashTail(codecs.decompress(chunks, stored.suffix, name=stored.name), name=stored.name)
    stream = iter(payload)
    gathered: list[RowBlock] = []
    rows, size = 0, 0
    for block in blocks(delta.decode(stream, name=stored.name, last=stored.last), stored.window, newest):
        gathered.append(block)
        rows += len(block.keys)
        size += sum(map(len, block.values))
        if rows >= BLOCK_ROWS or size >= BLOCK_BYTES:
            yield _part(stored.name, gathered, page_size)
            gathered, rows, size = [], 0, 0
    for _ in stream:  # what lies behind the window is not wanted, but the object's hash has to hold
        pass
    if gathered:
        yield _part(stored.name, gathered, page_size)


def _part(name: str, gathered: list[RowBlock], page_size: int) -> Part:
    keys = [key for block in gathered for key in block.keys]
    values = [value for block in gathered for value in block.values]
    # Too few rows to fill pages go as they are: the writer joins them with those that follow.
    pages = leaves.build(keys, values, page_size) if len(keys) >= MANY_ROWS else None
    return Part(
        name=name,
        pages=pages,
        keys=keys if pages is None else [],
        values=values if pages is None else [],
        last_key=keys[-1] if keys else b"",
        leases={lease for block in gathered for lease in block.leases},
        first_revision=gathered[0].first_revision,
        last_revision=gathered[-1].last_revision,
        last_time=gathered[-1].last_time,
        events=sum(block.events for block in gathered),
    )


class Replayers(contextlib.AbstractContextManager["Replayers"]):
    """Worker processes that decode deltas in turn."""

    def __init__(self, page_size: int, newest: Mapping[bytes, int], workers: int = WORKERS) -> None:
        self._arguments = (page_size, newest)
        self._count = workers
        self._workers: list[tuple[BaseProcess, Connection]] = []

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        with contextlib.ExitStack() as stack:
            stack.callback(self._stop)
            for _ in range(self._count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
                self._workers.append((process, ours))
                with theirs:
                    process.start()
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        for process, connection in self._workers:
            connection.close()
            if process.pid is not None:
                process.kill()  # it holds nothing that would have to be put in order
                process.join()

    def replay(self, deltas: Iterable[tuple[StoredDelta, bytes]]) -> Iterator[Part]:
        """The parts of all deltas in order.  Raises what decoding raised.

        Each worker has one delta at hand; the next one's bytes are taken from `deltas` when it is free.
        """
        source = iter(deltas)
        order: list[Connection] = []

        def hand_out(connection: Connection) -> None:
            for stored, data in source:
                with _answering():
                    # `send` would leave a buffer in its traceback that Python 3.13 cannot collect quietly.
                    connection.send_bytes(pickle.dumps(stored))
                    connection.send_bytes(data)
                order.append(connection)
                return

        for _, connection in self._workers:
            hand_out(connection)
        while order:
            connection = order.pop(0)
            while isinstance(answer := _received(connection), Part):
                yield answer
            if answer is not None:
                raise answer
            hand_out(connection)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise RootcellarError(
            "a decoding process ended without an answer", hint="was it killed for its memory?"
        ) from error


def _received(connection: Connection) -> Part | RootcellarError | None:
    with _answering():
        answer: Part | RootcellarError | None = connection.recv()
    return answer


def _serve(connection: Connection, page_size: int, newest: Mapping[bytes, int]) -> None:
    """What a worker does until its pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's interrupt is for the parent, which ends us
    with contextlib.suppress(EOFError, OSError):
        while True:
            stored: StoredDelta = connection.recv()
            data = connection.recv_bytes()
            answer: RootcellarError | None = None
            try:
                for part in parts(stored, [data], page_size, newest):
                    connection.send(part)
            except RootcellarError as error:
                answer = error
            except OSError:
                return
            except Exception as error:  # noqa: BLE001  # told to the parent, which names the object
                answer = DamagedObjectError(stored.name, f"cannot be decoded ({error!r})")
            connection.send(answer)
