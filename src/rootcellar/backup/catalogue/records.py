"""What the catalogue says of one snapshot object, of what was checked of it, and of what forbids its
deletion.

A record is written after its object.  An object without a record is still a valid backup; a record without
its object is reported, unless a tombstone says that the object was pruned.  Nothing that a restore needs
lies only here.

All revisions are etcd main revisions, all sizes bytes, all hashes lower-case hex, all ids hex as etcd
prints them, all moments aware UTC.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.documents import Document
from rootcellar.backup.catalogue.names import Kind
from rootcellar.errors import RecordError

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,16}$")]

KUBERNETES_ENCRYPTED: Final = b"k8s:enc:"
"""How the API server marks a value that it encrypted at rest: the keys to it are not in any backup."""


class Caution(StrEnum):
    """What a person has to know about a snapshot that is in itself fine."""

    ENCRYPTED_AT_REST = "encrypted-at-rest"
    """Values below `/registry/` begin with `k8s:enc:`; without the API server's keys they are useless."""
    EBR_CANNOT_REPLAY = "ebr-cannot-replay"
    """A revision of 2 MiB or more, or of more than 10,240 operations: etcdbrctl's restore would fail on
    it."""
    EBR_CANNOT_SEE = "ebr-cannot-see"
    """The store's prefix keeps EBR's parser from finding the object."""


class Notice(msgspec.Struct, frozen=True):
    """A caution and its particulars; a newer writer may know cautions that this reader does not."""

    code: str
    message: str


AT_REST = Notice(
    Caution.ENCRYPTED_AT_REST,
    "values below /registry/ are encrypted by Kubernetes: keep its encryption configuration too",
)


class HashKV(msgspec.Struct, frozen=True):
    """What etcd's HashKV answers; only the whole triple can be compared.  `compact_revision` is -1 for
    never.
    """

    hash: int
    revision: int
    compact_revision: int


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """A lease known at the end of a snapshot: id and granted seconds to live."""

    id: int
    ttl: int


class Link(msgspec.Struct, frozen=True):
    """Another snapshot object: its key when it was written, and the sha256 of its stored bytes.

    A proof that did not come to an object's end does not know its hash: then it is empty.
    """

    key: str
    sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]


class Record(Document, frozen=True, kw_only=True):
    """What its writer knew of a snapshot.

    `key` is where it was put.  `last_revision` is the real one: for a full read from its pages, at or above
    that in its name.  `compact_revision` is etcd's at the end of the snapshot, -1 for never.  `payload` is
    what the hash tail covers, `stored` the whole object.  `captured_at`: everything in it had happened by
    then; for a full the moment the first byte of its stream arrived, for a delta the moment it was cut.
    `first_received` and `last_received` are the times of a delta's first and last event, None for a full.
    `key_ids` are the keys that open an encrypted one, absent for all others; `payload_sha256` is then empty,
    as it would let anybody confirm a guess at the content.
    `previous` is the chain link.  `leases` holds every lease for a full, those granted in its interval for
    a delta.  `catch_up`: the events were read from etcd's history, not as they happened, so their times are
    later than the changes.  `last_change` is the fingerprint of what its last revision changed
    (`rootcellar.etcd.fingerprint`), None when etcd did not tell: by it the next capture knows a fork.
    """

    key: str
    kind: Kind
    start: Count
    last_revision: Count
    compact_revision: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
    payload_size: Count
    payload_sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
    stored_size: Count
    stored_sha256: Sha256
    cluster_id: Id
    member_id: Id
    timeline: Count
    epoch: Count
    writer: str
    captured_at: Moment
    hashkv: HashKV | None = None
    etcd_version: str = ""
    auth_revision: int | None = None
    first_received: Moment | None = None
    last_received: Moment | None = None
    previous: Link | None = None
    last_change: Sha256 | None = None
    leases: tuple[Lease, ...] = ()
    catch_up: bool = False
    warnings: tuple[Notice, ...] = ()
    key_ids: tuple[Id, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def name(self) -> names.SnapshotName:
        """The key, parsed; raises RecordError when it is not a snapshot's or contradicts the other
        fields.
        """
        name = names.read(self.key)
        if name is None or not name.is_snapshot:
            raise RecordError(f"a record speaks of {self.key!r}, which is not a snapshot")
        fits = self.last_revision >= name.last if self.kind is Kind.FULL else self.last_revision == name.last
        if (name.kind, name.start) != (self.kind, self.start) or not fits:
            raise RecordError(f"the record of {self.key!r} contradicts its name")
        return name

    @property
    def keys(self) -> tuple[str, ...]:
        """The ids of the keys that open it; none are needed where it is not encrypted."""
        return () if self.key_ids is msgspec.UNSET else self.key_ids

    @property
    def link(self) -> Link:
        """For the `previous` of the snapshot that comes next."""
        return Link(self.key, self.stored_sha256)


class Check(StrEnum):
    """What can be proven of a chain, from the cheapest on; see Proof."""

    LISTED = "listed"
    HASH = "hash"
    STRUCTURE = "structure"
    REPLAYED = "replayed"
    COMPARED = "compared"
    BOOTED = "booted"


class Result(StrEnum):
    """How a check went; what could not be checked is skipped, with the reason."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True):
    """One check and how it went; `detail` says why it failed or was skipped."""

    check: Check
    result: Result
    detail: str = ""


class Proof(Document, frozen=True, kw_only=True):
    """What was checked of a chain up to one revision, when, by whom, with what result.

    `objects` are the full and the deltas in order, with the sha256 of the stored bytes that were read
    (empty when only names were looked at): a proof speaks of these bytes and of no others.

    `in_passing`: made by an upload, of its object alone; what passed by was looked at, and not restored from.
    """

    objects: tuple[Link, ...]
    revision: Count
    findings: tuple[Finding, ...]
    started_at: Moment
    finished_at: Moment
    by: str
    hashkv: HashKV | None = None
    etcd_version: str = ""
    in_passing: bool = False

    def passed(self, check: Check) -> bool:
        return any(finding.check is check and finding.result is Result.PASSED for finding in self.findings)

    @property
    def failed(self) -> Finding | None:
        """The first check that failed."""
        return next((finding for finding in self.findings if finding.result is Result.FAILED), None)


class Hold(Document, frozen=True, kw_only=True):
    """Forbids deletion of a full, and of the deltas needed to go from it to `through` (None: the full
    alone).
    """

    nonce: str
    key: str
    reason: str
    by: str
    created_at: Moment
    through: Count | None = None


class Release(Document, frozen=True, kw_only=True):
    """Lifts a hold.  The hold stays: who held what, and until when, is worth knowing."""

    hold: str
    reason: str
    by: str
    created_at: Moment


class Pin(Document, frozen=True, kw_only=True):
    """A reader at work: until `until` nothing it needs to go from this full to `through` may be pruned."""

    nonce: str
    key: str
    by: str
    created_at: Moment
    until: Moment
    through: Count | None = None


class Tombstone(Document, frozen=True, kw_only=True):
    """Says that a snapshot was removed on purpose.  Written before the deletion."""

    key: str
    reason: str
    by: str
    epoch: Count
    created_at: Moment


class Grant(Document, frozen=True, kw_only=True):
    """Lets a key open an encrypted snapshot that was not written for it.

    `header` is an age header, ASCII, that wraps the object's file key for that key: put in place of the
    object's own it makes a file that `age` decrypts.
    """

    key: str
    key_id: Id
    header: str
    by: str
    created_at: Moment
