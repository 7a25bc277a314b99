"""What a restore will do, as a value: fixed once, shown to a person, carried out on each host.

Every host that carries out the same plan builds its member of the same cluster: same cluster id, same
HashKV.  The plan names objects, so what is captured later does not change it.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from rootcellar.errors import TargetError, UsageError
from rootcellar.mvcc import membership

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

API_VERSION = "rootcellar.dev/v1"
DEFAULT_QUOTA = 2 << 30
"""Bytes: etcd's own default for --quota-backend-bytes."""
_ID = re.compile(r"[1-9a-f][0-9a-f]{0,15}", re.ASCII)
KUBERNETES_BUMP = 1_000_000_000
"""Revisions by which a Kubernetes restore goes ahead: 1,000 writes a second for eleven days."""


class PlannedObject(msgspec.Struct, frozen=True, rename="camel"):
    """One object of the chain.

    `size` is in stored bytes as listed, `recorded_size` as its record says, `payload_size` in bytes as
    decoded; 0 when not recorded.  `sha256` is that of the stored bytes, empty when not recorded.

    `suffix` says how it is compressed.  `last` is the revision in its name; for a bare file it is 0 and
    unknown. `has_tail` is None for a bare file, where only the size tells whether a hash follows the
    database.
    """

    key: str
    size: int
    suffix: str
    last: int
    payload_size: int = 0
    recorded_size: int = 0
    sha256: str = ""
    has_tail: bool | None = True


class PlannedMember(msgspec.Struct, frozen=True, rename="camel"):
    """A member of the new cluster.  `id` is hex, as etcd prints it."""

    name: str
    peer_urls: tuple[str, ...]
    id: str

    def __post_init__(self) -> None:
        _check_id(self.id)

    def member(self) -> membership.Member:
        return membership.Member(int(self.id, 16), self.name, self.peer_urls)


class ExpectedHash(msgspec.Struct, frozen=True, rename="camel"):
    """The HashKV that the live etcd answered at capture; the rebuilt history is held against it."""

    hash: int
    revision: int
    compact_revision: int


class RestorePlan(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """See the module.

    `upto` is a revision, `moment` unix nanoseconds; both None: as far as the chain goes.  `must_stop`:
    something is missing behind the chain, so its end must not be reached.
    `announce`: a new cluster will go on from here, so the store is left a fork intent.

    `compact_revision` is the compaction that a restore applies, -1 for none.  `bump_revision` is None when it
    depends on the keys (Kubernetes' are raised), 0 for none.  `for_etcd` is None for the source's own
    version. `lease_ttls` are granted seconds by lease id.  `covers` is for people: the interval the target
    falls into.
    """

    store: str
    full: PlannedObject
    deltas: tuple[PlannedObject, ...]
    token: str
    cluster_id: str
    members: tuple[PlannedMember, ...]
    upto: int | None = None
    moment: int | None = None
    must_stop: bool = False
    timeline: int = 1
    source_version: str = ""
    for_etcd: str | None = None
    compact_revision: int = -1
    bump_revision: int | None = None
    quota: int = DEFAULT_QUOTA
    lease_ttls: dict[int, int] = msgspec.field(default_factory=dict)
    expected: ExpectedHash | None = None
    covers: str = ""
    warnings: tuple[str, ...] = ()
    announce: bool = False
    api_version: str = API_VERSION
    kind: str = "RestorePlan"

    def __post_init__(self) -> None:
        _check_id(self.cluster_id)
        if not self.members or min(self.quota, self.bump_revision or 0) < 0:
            raise ValueError("no members, or a number below zero")

    @property
    def digest(self) -> str:
        """Tells one plan from another: 64 hex digits over its canonical JSON."""
        plain = msgspec.to_builtins(self, str_keys=True)  # JSON in a fixed order wants keys that are text
        return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()

    def member(self, name: str | None) -> PlannedMember:
        """The member called `name`, or the only one.  Raises UsageError."""
        if name is None and len(self.members) == 1:
            return self.members[0]
        for member in self.members:
            if member.name == name:
                return member
        names = ", ".join(member.name for member in self.members)
        raise UsageError(
            f"the plan has no member {name}" if name else "the plan has several members",
            hint=f"choose one of {names} with --name",
        )


def _check_id(text: str) -> None:
    """Raises ValueError, which decoding tells as what is wrong with the document."""
    if not _ID.fullmatch(text):
        raise ValueError(f"{text[:20]!r} is no id")


def planned_members(values: Iterable[str], token: str) -> tuple[str, tuple[PlannedMember, ...]]:
    """(cluster id in hex, members) from `name=peer-url` values.  Raises UsageError."""
    members = membership.parse_members(values, token=token)
    cluster = membership.cluster_id(member.id for member in members)
    planned = tuple(PlannedMember(member.name, member.peer_urls, member.key) for member in members)
    return f"{cluster:x}", planned


def write_plan(plan: RestorePlan, path: Path) -> None:
    """Write a plan for other hosts.  Raises TargetError."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
    except OSError as error:
        raise TargetError(
            f"{path} cannot be written: {error.strerror}", hint="name another file with -o"
        ) from error


def read_plan(path: Path) -> RestorePlan:
    """Read a plan back.  Raises UsageError."""
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=RestorePlan)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="give the file that -o wrote"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path} is no restore plan ({error})", hint="give the file that -o wrote"
        ) from error
    if plan.api_version != API_VERSION or plan.kind != "RestorePlan":
        raise UsageError(f"{path} is a {plan.kind} of {plan.api_version}", hint="use a matching rootcellar")
    return plan
