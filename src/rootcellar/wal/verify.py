"""What the WAL and the raft snapshots of a member say, and whether they can be believed.

Reads a whole log in one pass with bounded memory, of a dead member or, at the risk of seeing its last write
half done, of a running one.  Nothing is changed: no repair, no renaming of broken snapshots, which etcd's
own readers do on the way.  A torn tail is a normal trace of a crash and is reported in the result; damage
is a WalError.

The checks are those on which etcd would panic or quietly lose entries: the CRC chain, one identity, no gap
between entries, terms and commit that never fall, nothing committed that is not there.  Not checked: what
the entries say, and how they fit the database, whose consistent index lies between the newest snapshot's and
`last_index`.  (Not `commit`: since 3.6 an entry's commit is saved with a later one; a kill leaves it behind.)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.errors import TornTailError, WalError
from rootcellar.wal.frames import CRC, ENTRY, METADATA, SNAPSHOT, STATE, Record, damaged
from rootcellar.wal.messages import ConfState, EntryHead, HardState, Metadata, SnapshotMark
from rootcellar.wal.segments import Segment, list_segments, read_log
from rootcellar.wal.snapfile import SNAP_SUFFIX, SnapFile, read_snap

if TYPE_CHECKING:
    from pathlib import Path

_TERM_JUMP = 1 << 32  # no cluster holds that many elections; a vote taken for a term is that far off
_SMALL = 1 << 16  # nothing but an entry is larger, even with thousands of members
_MARKS_KEPT = 256  # etcd keeps 5 snapshots; a hostile log could hold millions of marks


@dataclass(frozen=True, slots=True)
class WalReport:
    """What a WAL says.  Entries `first_index` to `last_index` are there, none if the first is greater.

    `snapshots` are the valid ones, by index: those at or below the commit index.  `conf_state` is that
    of the newest of them, None if etcd 3.4 wrote it.  `hard_state` is None only for a member that never
    heard of a term.
    """

    segments: tuple[str, ...]
    member_id: int
    cluster_id: int
    hard_state: HardState | None
    first_index: int
    last_index: int
    last_term: int
    snapshots: tuple[SnapshotMark, ...]
    torn: TornTailError | None

    @property
    def term(self) -> int:
        """The newest term, 0 before the first."""
        return self.hard_state.term if self.hard_state else 0

    @property
    def commit(self) -> int:
        """How far the log is committed, 0 before the first commit."""
        return self.hard_state.commit if self.hard_state else 0

    @property
    def conf_state(self) -> ConfState | None:
        return self.snapshots[-1].conf_state if self.snapshots else None


@dataclass(frozen=True, slots=True)
class MemberReport:
    """A WAL and the snapshot files beside it.

    `snapshot` is the newest file that is whole and that the WAL vouches for: what etcd 3.4-3.6 start from.
    `broken` names the newer files that cannot be read.
    """

    wal: WalReport
    snapshot: SnapFile | None
    broken: tuple[str, ...]

    @property
    def lacks_snapshot(self) -> bool:
        """Whether etcd 3.4-3.6 could not start: entries are gone, and no snapshot file stands for them."""
        reached = self.snapshot.metadata.index if self.snapshot else 0
        return reached + 1 < self.wal.first_index


def verify_member(member_dir: Path) -> MemberReport:
    """Read `DATA-DIR/member`: its WAL and its snapshot files.  WalError if the WAL is damaged."""
    wal = verify_wal(member_dir / "wal")
    vouched = {(mark.term, mark.index) for mark in wal.snapshots}
    broken = []
    for path in sorted((member_dir / "snap").glob(f"*{SNAP_SUFFIX}"), reverse=True):
        try:
            snap = read_snap(path)
        except WalError:
            broken.append(path.name)
            continue
        if (snap.metadata.term, snap.metadata.index) in vouched:
            return MemberReport(wal, snap, tuple(broken))
    return MemberReport(wal, None, tuple(broken))


def verify_wal(directory: Path) -> WalReport:
    """Read the whole log in a WAL directory.  WalError for damage; a torn tail is reported, not raised."""
    segments = list_segments(directory)
    log = _Log(first_index=max(segments[0].index, 1))
    torn = None
    try:
        for segment, record in read_log(segments):
            log.take(segment, record)
    except TornTailError as error:
        torn = error.with_traceback(None)
    if log.metadata is None:
        raise WalError(
            f"{directory}: the log does not say whose it is", hint="it is as good as empty: remove the member"
        )
    if log.commit > log.last_index:
        raise WalError(
            f"{directory}: committed up to {log.commit}, but entries end at {log.last_index}",
            hint="etcd would panic: restore this member, or let it join again",
        )
    return WalReport(
        segments=tuple(segment.path.name for segment in segments),
        member_id=log.metadata.member_id,
        cluster_id=log.metadata.cluster_id,
        hard_state=log.state,
        first_index=log.first_index,
        last_index=log.last_index,
        last_term=log.last_term,
        snapshots=tuple(sorted((m for m in log.marks if m.index <= log.commit), key=lambda m: m.index)),
        torn=torn,
    )


class _Log:
    """What is known after each record."""

    def __init__(self, first_index: int) -> None:
        self.metadata: Metadata | None = None
        self.state: HardState | None = None
        self.marks: deque[SnapshotMark] = deque(maxlen=_MARKS_KEPT)
        self.first_index = first_index
        self.last_index = first_index - 1
        self.last_term = 0
        self._headed: Segment | None = None
        self._ahead: SnapshotMark | None = None

    @property
    def term(self) -> int:
        return self.state.term if self.state else 0

    @property
    def commit(self) -> int:
        return self.state.commit if self.state else 0

    def take(self, segment: Segment, record: Record) -> None:
        try:
            self._take(segment, record)
        except WalError as error:
            raise damaged(segment.path.name, record.offset, error.message) from error

    def _take(self, segment: Segment, record: Record) -> None:
        if record.type == CRC:
            return
        if (record.type == METADATA) == (self._headed is segment):
            raise WalError("the segment does not say, once and before all else, whose it is")
        if record.type == ENTRY:
            self._entry(EntryHead.decode(record.data, record.size))
        elif record.size > _SMALL:
            raise WalError(f"a record of type {record.type} cannot have {record.size} bytes")
        elif record.type == STATE:
            self._state(HardState.decode(record.data))
        elif record.type == SNAPSHOT:
            self._mark(SnapshotMark.decode(record.data))
        else:
            self._metadata(Metadata.decode(record.data))
            self._headed = segment

    def _metadata(self, metadata: Metadata) -> None:
        if self.metadata not in (None, metadata):
            raise WalError(f"the log of {self.metadata} cannot be the log of {metadata}")
        self.metadata = metadata

    def _entry(self, entry: EntryHead) -> None:
        if entry.index > self.last_index + 1:
            # A snapshot from the leader replaces what was missing; its commit index is saved after the entry.
            if self._ahead is None or self._ahead.index + 1 != entry.index:
                raise WalError(f"entry {entry.index} follows entry {self.last_index}")
            self._jump(self._ahead)
        if entry.index <= self.commit:
            raise WalError(
                f"entry {entry.index} replaces one that is committed, as all are up to {self.commit}"
            )
        appended = entry.index == self.last_index + 1
        if (appended and entry.term < self.last_term) or entry.term > self.term + _TERM_JUMP:
            raise WalError(f"an entry of term {entry.term} follows term {self.last_term}")
        # An entry that comes again takes the place of the one with its index and of all behind it.
        self.last_index, self.last_term = entry.index, entry.term
        self.first_index = min(self.first_index, entry.index)

    def _state(self, state: HardState) -> None:
        if state.term < max(self.term, self.last_term) or state.commit < self.commit:
            raise WalError(f"{state} follows {self.state} and an entry of term {self.last_term}")
        self.state = state
        self._settle()

    def _mark(self, mark: SnapshotMark) -> None:
        # A snapshot of the member's own may be noted late, behind a newer one from the leader.
        self.marks.append(mark)
        if mark.index > max(self.last_index, self._ahead.index if self._ahead else 0):
            self._ahead = mark
        self._settle()

    def _settle(self) -> None:
        """A snapshot counts once it is committed; one ahead of the entries then stands for those missing."""
        if self._ahead and self.last_index < self._ahead.index <= self.commit:
            self._jump(self._ahead)

    def _jump(self, mark: SnapshotMark) -> None:
        self.last_index, self.last_term = mark.index, mark.term
        self.first_index = mark.index + 1
        self._ahead = None
