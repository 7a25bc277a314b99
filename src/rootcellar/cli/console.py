"""What a person or a program gets to see: results on stdout, everything else on stderr.

Text is for people and may change.  JSON and YAML are an interface: one document with `apiVersion` and `kind`,
whose members are only ever added to.  Colours and progress are for terminals alone; `NO_COLOR` and `--quiet`
are heard.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rootcellar.errors import RootcellarError

API_VERSION = "rootcellar.dev/v1"
FORMATS = ("text", "json", "yaml")

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class ReaderGoneError(Exception):
    """Whoever read our output has closed it: there is nobody left to tell."""


class Stream:
    """stdout or stderr, with styles where it is a terminal that wants them."""

    def __init__(self, file: TextIO, environ: Mapping[str, str]) -> None:
        self.file = file
        self.is_terminal = file.isatty()
        self.styled = self.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    def style(self, text: str, *styles: str) -> str:
        """`text` with styles around it, or as it is."""
        if not self.styled or not styles or not text:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    def write(self, text: str) -> None:
        with _reader():
            self.file.write(text)

    def write_bytes(self, chunk: bytes) -> None:
        with _reader():
            self.file.flush()
            self.file.buffer.write(chunk)

    def flush(self) -> None:
        with _reader():
            self.file.flush()


@contextmanager
def _reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the terminal's encoding {error.encoding} has no {error.object[error.start]!r}",
            hint="set LC_ALL=C.UTF-8, or use --output json",
        ) from error


class Console:
    """How a verb talks."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        environ: Mapping[str, str],
        *,
        output: str = "text",
        quiet: bool = False,
    ) -> None:
        self.out = Stream(out, environ)
        self.err = Stream(err, environ)
        self.output = output
        self.quiet = quiet

    @property
    def is_text(self) -> bool:
        """Whether a person is to read the results."""
        return self.output == "text"

    @property
    def shows_progress(self) -> bool:
        return self.err.is_terminal and not self.quiet

    def lines(self, lines: Iterable[str]) -> None:
        """Results as text."""
        for line in lines:
            self.out.write(f"{line}\n")

    def document(self, document: Any) -> None:
        """A result as JSON or YAML: a msgspec Struct with a `kind`."""
        self.out.write(encode(document, self.output))

    def note(self, text: str) -> None:
        """Something beside the results that a person may want to know."""
        if not self.quiet:
            self.err.write(f"{text}\n")

    def warn(self, text: str) -> None:
        """Something that a person has to know; said even when quiet."""
        self.err.write(f"rootcellar: {self.err.style('warning:', 'yellow')} {text}\n")

    def error(self, error: RootcellarError, exit_code: int) -> None:
        """Why the verb failed, and what to do."""
        if not self.is_text:
            self.err.write(encode(_failure(error, exit_code), self.output))
            return
        self.err.write(f"{self.err.style('rootcellar:', 'red')} {error.message}\n")
        if error.hint:
            self.err.write(f"{self.err.style('hint:', 'cyan')} {error.hint}\n")

    def confirm(self, deed: str, *, yes: bool) -> None:
        """Ask before `deed`, which destroys.  Raises UsageError for a no, and where nobody can be asked."""
        if yes:
            return
        if not (sys.stdin.isatty() and self.err.is_terminal):
            raise UsageError(f"nobody is here to be asked: {deed}?", hint="say --yes if you mean it")
        self.err.write(f"{deed}? [y/N] ")
        self.err.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise UsageError("nothing was done", hint="answer y, or say --yes")

    def finish(self) -> None:
        """Hand on what is still buffered."""
        self.out.flush()
        self.err.flush()

    def abandon(self) -> None:
        """Nobody reads stdout any more: keep the interpreter from complaining about it at its end."""
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.file.fileno())


def _failure(error: RootcellarError, exit_code: int) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Error",
        "code": error.code,
        "exitCode": exit_code,
        "message": error.message,
        "hint": error.hint,
    }


def encode(document: Any, output: str) -> str:
    """JSON or YAML, with its line end."""
    import msgspec  # noqa: PLC0415 - help and a good many errors do without

    members = msgspec.to_builtins(document)
    # These two come first, whatever the document's own order, for people who look at it.
    builtins = {"apiVersion": API_VERSION, "kind": members["kind"], **members}
    if output == "yaml":
        import yaml  # noqa: PLC0415 - half of the time that a small verb takes

        return yaml.safe_dump(builtins, sort_keys=False, allow_unicode=True, width=100)
    return msgspec.json.format(msgspec.json.encode(builtins), indent=2).decode() + "\n"
