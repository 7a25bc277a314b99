"""The write-ahead log of a restored member: five records, and nothing to replay.

A real log of a new cluster begins with one configuration entry per member.  None is needed when the log has
a snapshot at its commit index and the snapshot file lies beside it, and then index and term are free: a
restore keeps the consistent index and term of its database, so that both agree without touching the
database.  They must agree. An index above the log's commit makes etcd wait for ever, one below makes it
refuse the database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.errors import UsageError
from rootcellar.wal.durable import cannot_write, sync_directory, write_file
from rootcellar.wal.frames import CRC, METADATA, SNAPSHOT, STATE, FrameWriter
from rootcellar.wal.messages import ConfState, HardState, Metadata, SnapshotMark
from rootcellar.wal.segments import segment_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SEGMENT_SIZE = 64_000_000
"""What etcd preallocates.  Ours is sparse: etcd finds what it knows, and a restore pays for one page."""


def write_wal(
    directory: Path,
    *,
    member_id: int,
    cluster_id: int,
    term: int,
    index: int,
    voters: Iterable[int],
    learners: Iterable[int] = (),
) -> Path:
    """Create `directory` (`member/wal`) with the log of a member restored at `index`; durably, one segment.

    `index` and `term` are the database's consistent index and term and name the snapshot file
    (`write_snap`).  All members of a cluster get the same log but for `member_id`.  TargetError if the
    directory is there already, or cannot be written.
    """
    conf_state = ConfState(tuple(sorted(voters)), tuple(sorted(learners)))
    _refuse_impossible(member_id, term, index, conf_state)
    frames = FrameWriter()
    log = b"".join(
        (
            frames.frame(CRC),
            frames.frame(METADATA, Metadata(member_id, cluster_id).encode()),
            frames.frame(SNAPSHOT, SnapshotMark(0, 0).encode()),
            frames.frame(STATE, HardState(term, vote=conf_state.voters[0], commit=index).encode()),
            frames.frame(SNAPSHOT, SnapshotMark(index, term, conf_state).encode()),
        )
    )
    path = directory / segment_name(0, 0)
    try:
        directory.mkdir(mode=0o700)
        write_file(path, log, size=SEGMENT_SIZE)
        sync_directory(directory.parent)
    except OSError as error:
        raise cannot_write(directory, error) from error
    return path


def _refuse_impossible(member_id: int, term: int, index: int, conf_state: ConfState) -> None:
    ids = conf_state.voters + conf_state.learners
    if not conf_state.voters or 0 in ids or len(set(ids)) != len(ids):
        raise UsageError("the members of a cluster need ids that differ, and one of them must vote")
    if member_id not in ids:
        raise UsageError(f"member {member_id:x} is not one of the cluster")
    if term < 1 or index < 1:
        raise UsageError(f"no log stands at index {index} of term {term}")
