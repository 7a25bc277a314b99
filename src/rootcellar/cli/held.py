"""A hold as it is shown."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  msgspec reads the annotations at run time
from typing import TYPE_CHECKING, Self

from rootcellar.cli.document import Document, Part

if TYPE_CHECKING:
    from rootcellar.backup.catalogue.records import Hold


class HeldPart(Part, frozen=True):
    """What is held.  `through` is the revision up to which deltas are kept too, None for the full alone."""

    id: str
    key: str
    through: int | None
    reason: str
    by: str
    created_at: datetime

    @classmethod
    def of(cls, hold: Hold) -> Self:
        """The same hold, shown."""
        return cls(
            id=hold.nonce,
            key=hold.key,
            through=hold.through,
            reason=hold.reason,
            by=hold.by,
            created_at=hold.created_at,
        )


class Held(Document, HeldPart, frozen=True):
    """A hold that was added or released."""
