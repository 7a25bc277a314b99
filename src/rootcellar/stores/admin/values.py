"""What is known of a bucket, what is wanted of it, and what came of asking."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.errors import RootcellarError, StoreError


class Unknown(Enum):
    """What a server cannot, or will not, say."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class Aspect(StrEnum):
    """What can be asked for of a bucket, one by one."""

    VERSIONING = "versioning"
    IMMUTABILITY = "immutability"
    PUBLIC_ACCESS = "public access"
    ENCRYPTION = "encryption at rest"
    TRANSPORT = "encryption on the way"
    LEFTOVERS = "aborted uploads"


class Outcome(StrEnum):
    """What `create` found: nobody's name, or a bucket of this account."""

    CREATED = "created"
    ADOPTED = "adopted"


@dataclass(frozen=True, slots=True)
class Immutability:
    """For how long whatever is put into the bucket cannot be deleted.  `locked`: nobody, not even the
    account's owner, can shorten or lift it any more (S3's compliance mode; a locked policy elsewhere).
    """

    period: timedelta
    locked: bool = False

    @property
    def days(self) -> int:
        """Whole days, rounded up: never shorter than what was asked for."""
        return -(-self.period // timedelta(days=1))

    def __str__(self) -> str:
        return f"{self.period.total_seconds() / 86400:g} days, {'locked' if self.locked else 'not locked'}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Who uses the bucket, since when, and whether the bucket was made for it.  `owner` is any text that
    tells this owner from all others, for ever: a cluster's UID and the name of the object in it.
    """

    owner: str
    created: bool
    since: datetime


@dataclass(frozen=True, slots=True)
class BucketWish:
    """What is wanted.  What is False or None is not asked for, and left as it is found.

    `region` is where the bucket must lie.  `weaken` allows an immutability that is not locked to be
    shortened, loosened or (with `immutability` None) removed; without it, such a wish is refused.
    """

    region: str | None = None
    immutability: Immutability | None = None
    versioning: bool = False
    public_access_blocked: bool = True
    encrypted: bool = True
    encrypted_transport: bool = True
    uploads_aborted_after: timedelta | None = timedelta(days=7)
    weaken: bool = False


@dataclass(frozen=True, slots=True)
class BucketState:
    """What was found.  `immutability` is None where nothing is kept by default.  `unsaid` tells for each
    UNKNOWN why; an aspect that this kind of store has no word for is in neither and UNKNOWN.
    """

    name: str
    region: str | Unknown = UNKNOWN
    claims: tuple[Claim, ...] | Unknown = UNKNOWN
    versioning: bool | Unknown = UNKNOWN
    immutability: Immutability | Unknown | None = UNKNOWN
    public_access_blocked: bool | Unknown = UNKNOWN
    encrypted: bool | Unknown = UNKNOWN
    encrypted_transport: bool | Unknown = UNKNOWN
    uploads_aborted_after: timedelta | Unknown | None = UNKNOWN
    unsaid: Mapping[Aspect, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between a bucket and the wish, in words for a person."""

    aspect: Aspect
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.aspect}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Hardening:
    """What `harden` did, what it refused to do and why, and what the server cannot say."""

    done: tuple[Change, ...]
    refused: tuple[RootcellarError, ...] = ()
    unknown: tuple[Aspect, ...] = ()


EXAMPLES = 20
"""Failures of a deletion that are kept word for word."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """How far a deletion has come; handed back to `delete_objects`, it goes on from there.

    `deleted` counts objects, versions and delete markers since the very beginning.  `locked` are those that
    retention (until `earliest` the first, until `latest` the last) or a hold (no date) keeps; `failures` are
    those that could not be deleted otherwise, `examples` the first of them with their reasons.  These are of
    the listing under way.  `complete`: a whole listing found nothing more that could be deleted.
    """

    deleted: int = 0
    locked: int = 0
    earliest: datetime | None = None
    latest: datetime | None = None
    failures: int = 0
    examples: Mapping[str, StoreError] = field(default_factory=dict)
    complete: bool = False
    token: str = ""
    deleted_in_pass: int = 0

    @property
    def gone(self) -> bool:
        """Nothing is left."""
        return self.complete and not self.locked and not self.failures
