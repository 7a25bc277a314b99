"""Which point of a history a person means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import AtRevision, AtTime, Latest
from rootcellar.cli import flags
from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from rootcellar.backup.catalogue.chain import Target
    from rootcellar.cli.arguments import Arguments
    from rootcellar.cli.values import Point


def at(point: Point) -> Target:
    """A point as the engine knows it."""
    if point.revision is not None:
        return AtRevision(point.revision)
    return Latest() if point.moment is None else AtTime(point.moment)


def target(arguments: Arguments) -> Target:
    """Latest, --to-revision or --to-time.  Raises UsageError for both."""
    revision, moment = arguments.get(flags.TO_REVISION), arguments.get(flags.TO_TIME)
    if revision is not None and moment is not None:
        raise UsageError("--to-revision and --to-time exclude each other", hint="give one of them")
    if revision is not None:
        return AtRevision(revision)
    return Latest() if moment is None else AtTime(moment)
