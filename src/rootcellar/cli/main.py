"""Where a command line begins and ends: what stops a verb becomes words and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from rootcellar.cli import flags
from rootcellar.cli.console import Console, ReaderGoneError
from rootcellar.cli.dispatch import dispatch
from rootcellar.errors import RootcellarError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

INTERNAL: Final = 1
INTERRUPTED: Final = 128 + signal.SIGINT
READER_GONE: Final = 128 + signal.SIGPIPE
TERMINATED: Final = 128 + signal.SIGTERM


class _TerminatedError(BaseException):
    """SIGTERM: unwinds like Ctrl-C, so that what was begun is cleaned up."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    out, err = (stream or _nowhere() for stream in (sys.stdout, sys.stderr))
    console = Console(out, err, os.environ, output=_wished_output(given))
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = dispatch(given, console)
        console.finish()
    except RootcellarError as error:
        code = error.exit_code
        _explain(console, error, given)
    except KeyboardInterrupt:
        code = INTERRUPTED
        console.err.write("\nrootcellar: interrupted\n")
    except _TerminatedError:
        code = TERMINATED
    except ReaderGoneError:
        code = READER_GONE
        console.abandon()
    except Exception as error:  # noqa: BLE001 - the last place where anything can be told
        code = INTERNAL
        _explain(console, _unforeseen(error), given, error)
    finally:
        signal.signal(signal.SIGTERM, previous)
    return code


def _nowhere() -> TextIO:
    """Where to write when a parent gave us no stdout or no stderr."""
    return Path(os.devnull).open("w")


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _TerminatedError


def _wished_output(given: Sequence[str]) -> str:
    """The format that even a command line which cannot be read most likely asks for."""
    wished = os.environ.get(flags.OUTPUT.variable, "text")
    for word, following in zip(given, [*given[1:], ""], strict=False):
        if word.startswith(f"{flags.OUTPUT.flag}="):
            wished = word.partition("=")[2]
        elif word == flags.OUTPUT.flag:
            wished = following
    return wished if wished in flags.OUTPUT.choices else "text"


def _unforeseen(error: Exception) -> RootcellarError:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        told = RootcellarError(f"{where}{error.strerror[:1].lower()}{error.strerror[1:]}")
    else:
        told = RootcellarError(
            f"internal error: {type(error).__name__}: {error}",
            hint=f"a mistake in rootcellar: run it again with {flags.DEBUG.flag}, and report what it says",
        )
    return told


def _explain(
    console: Console, told: RootcellarError, given: Sequence[str], error: Exception | None = None
) -> None:
    if flags.DEBUG.flag in given:
        import traceback  # noqa: PLC0415 - for this alone

        console.err.write("".join(traceback.format_exception(error or told)))
    try:
        console.finish()
    except ReaderGoneError:
        console.abandon()
    console.error(told, INTERNAL if error else told.exit_code)
