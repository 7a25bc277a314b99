"""One line per event, for people and for machines: `time level event key=value ...`, or JSON.

No value under a name that speaks of a secret is ever written; the rest of the code does not put secrets into
events, this is for the day when somebody does.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

import structlog

from rootcellar.errors import RootcellarError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

FORMATS = ("text", "json")
_SECRET = ("password", "secret", "token", "authorization", "credential")


class Log(Protocol):
    """What a long-running process writes its log with: an event's name, then its values."""

    def info(self, event: str, **values: Any) -> Any: ...
    def warning(self, event: str, **values: Any) -> Any: ...
    def error(self, event: str, **values: Any) -> Any: ...


def make_log(form: str = "text", stream: TextIO | None = None, **always: Any) -> Log:
    """A log in one of FORMATS, to stderr unless told; `always` stands in every line."""
    first = ["time", "level", "event"]
    renderer = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.LogfmtRenderer(key_order=first, bool_as_flag=False)
    )
    log = structlog.wrap_logger(
        structlog.PrintLogger(stream or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            _plain,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )
    return cast("Log", log.bind(**always))


class _Notes(logging.Handler):
    """What is written by `logging`, as events of a log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        by = record.name.removeprefix("rootcellar.")
        write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        if record.levelno < logging.WARNING:
            write = self._log.info
        try:
            write("note", by=by, text=self.format(record))
        except Exception:  # noqa: BLE001  as every handler of `logging`
            self.handleError(record)


def carry_notes(log: Log, level: int = logging.INFO) -> None:
    """Have what libraries and small steps write by `logging` stand in this log, as events `note`.

    Below INFO only our own: botocore and urllib3 then tell of whole requests and answers, with the keys, the
    tokens and the backup that are in them.
    """
    logging.basicConfig(level=max(level, logging.INFO), format="%(message)s", handlers=[_Notes(log)])
    logging.getLogger("rootcellar").setLevel(level)


def told(error: BaseException) -> dict[str, str]:
    """An error as values of an event."""
    if isinstance(error, RootcellarError):
        values = {"error": error.message, "code": error.code}
        return values | ({"hint": error.hint} if error.hint else {})
    return {"error": f"{type(error).__name__}: {error}", "code": "internal"}


def _plain(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if any(part in name.lower() for part in _SECRET):
            event[name] = "***"
        elif isinstance(value, str):
            event[name] = " ".join(value.split())  # one line, whatever a server has said
        elif isinstance(value, float):
            event[name] = round(value, 3)
        elif not isinstance(value, int | None):
            event[name] = str(value)
    return event
