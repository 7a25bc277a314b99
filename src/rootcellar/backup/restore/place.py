"""Putting a new `member/` where an old one may be, so that a crash at any point loses nothing.

    DATA-DIR/member/                     what etcd opens
    DATA-DIR/.rootcellar-new/member/     the new one, complete and synced before it moves
    DATA-DIR/.rootcellar-quarantine/N/   old ones, N = UTC time; at most two are kept
    DATA-DIR/.rootcellar-swap            only during a swap on a file system without an atomic exchange
    DATA-DIR/.rootcellar-trash           what is being deleted

Everything happens below the data directory, because that is often a mount point that cannot be renamed
itself.

Crash by crash: until the exchange the old member is in force, and what lies in `.rootcellar-new` was never in
force: the next restore removes it.  From the exchange on the new member is in force, and what lies in
`.rootcellar-new` is the old one, which the next restore (or `settle`) takes to quarantine.  The two are told
apart by a build id, drawn anew each time, that is in `.rootcellar-new/id` and in the note of the member that
was built there.  Without an atomic exchange, `.rootcellar-swap` is written before the first of two renames
and removed after the second; `settle` completes what it announces.  What is deleted is renamed to
`.rootcellar-trash` first, so that half of it is never taken for somebody's data.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rootcellar.errors import TargetError
from rootcellar.wal.durable import sync_directory, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MEMBER = "member"
NEW = ".rootcellar-new"
QUARANTINE = ".rootcellar-quarantine"
SWAP = ".rootcellar-swap"
TRASH = ".rootcellar-trash"
LOCK = ".rootcellar-lock"
ID = "id"
OLD = "old"
NOTE = "rootcellar.json"
UNFINISHED = ".rootcellar-unfinished"

QUARANTINES_KEPT = 2
_QUARANTINE_NAME = "%Y%m%dT%H%M%S.%fZ"
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a member shall be: uid, gid, the mode of its directory, and its security label if it has one."""

    uid: int
    gid: int
    mode: int
    label: bytes | None

    @classmethod
    def of(cls, data_dir: Path) -> Owner:
        """That of the old member.  Where there is none the data directory's, if we are root, or our own."""
        member = data_dir / MEMBER
        there = member if member.exists() else data_dir
        status = there.stat()
        label = None
        with suppress(OSError):
            label = os.getxattr(there, "security.selinux")
        if there is member:
            return cls(status.st_uid, status.st_gid, status.st_mode & 0o7777, label)
        if os.geteuid() == 0:
            return cls(status.st_uid, status.st_gid, 0o700, label)
        return cls(os.geteuid(), -1, 0o700, label)

    def give(self, member_dir: Path) -> None:
        """Make a member and everything in it this owner's.  Raises TargetError when that is not permitted."""
        for path in (member_dir, *member_dir.rglob("*")):
            self._give_one(path)
        member_dir.chmod(self.mode | 0o700)

    def _give_one(self, path: Path) -> None:
        status = path.stat()
        if status.st_uid != self.uid or self.gid not in (-1, status.st_gid):
            try:
                os.chown(path, self.uid, self.gid)
            except PermissionError as error:
                raise TargetError(
                    f"{path} must belong to {self.uid}:{self.gid} like the old data",
                    hint=f"run the restore as uid {self.uid} or as root",
                ) from error
        if self.label is not None:
            with suppress(OSError):
                os.setxattr(path, "security.selinux", self.label)


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the data directory against another restore.  Raises TargetError, OSError."""
    path = data_dir / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:  # made by another user: a file that can be read can be locked
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TargetError(
                f"another restore is at work in {data_dir}", hint="wait for it, or end it"
            ) from error
        yield
    finally:
        os.close(handle)


def refuse_running_etcd(data_dir: Path) -> None:
    """Raise TargetError when an etcd holds the database open (it keeps a lock on the file)."""
    database = data_dir / MEMBER / "snap" / "db"
    try:
        handle = os.open(database, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError as error:
        raise TargetError(
            f"{database} cannot be opened: whether an etcd runs on it cannot be told",
            hint="run as its owner, or as root",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise TargetError(
            f"an etcd is running on {data_dir}", hint="stop it (and the API servers that use it) first"
        ) from error
    finally:
        os.close(handle)


def settle(data_dir: Path, now: datetime) -> Path | None:
    """Complete what a killed restore left half done; the quarantine it came to, if any.  Raises OSError.

    Afterwards there is no `.rootcellar-new` and no `.rootcellar-swap`, and no data was deleted but what a
    restore had built and never put in force, and quarantines beyond the newest two.
    """
    new, member = data_dir / NEW, data_dir / MEMBER
    if (data_dir / TRASH).exists():
        shutil.rmtree(data_dir / TRASH)
    if (data_dir / SWAP).exists():
        if not member.exists() and (new / MEMBER).exists():
            (new / MEMBER).rename(member)
            sync_directory(data_dir)
        (data_dir / SWAP).unlink()
        sync_directory(data_dir)
    quarantined = _clear(data_dir, now) if new.exists() else None
    _trim(data_dir)
    return quarantined


def prepare(data_dir: Path, build: str) -> Path:
    """An empty `.rootcellar-new/member` to build in, on the file system it will be swapped on.

    `build` is an id that no other build has.
    """
    new = data_dir / NEW
    new.mkdir(mode=0o700)
    write_file(new / ID, build.encode())
    # Nothing called `member` is ever here without the mark that it was never in force.
    blank = new / "blank"
    blank.mkdir(mode=0o700)
    write_file(blank / UNFINISHED, b"")
    blank.rename(new / MEMBER)
    return new / MEMBER


def finish(member_dir: Path, facts: Mapping[str, object], owner: Owner) -> None:
    """Note in a member what it was made from (`facts` hold its `build`) and give it to its owner.

    Raises OSError, TargetError.
    """
    write_file(member_dir / NOTE, json.dumps(facts, indent=2, sort_keys=True).encode() + b"\n")
    owner.give(member_dir)
    (member_dir / UNFINISHED).unlink()
    sync_directory(member_dir)


def read_note(member_dir: Path) -> dict[str, object] | None:
    """What `finish` noted in a member, or None.  etcd does not look at it."""
    try:
        found = json.loads((member_dir / NOTE).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def put_in_force(data_dir: Path, now: datetime) -> Path | None:
    """Swap `.rootcellar-new/member`, which must be complete and noted, with `member`; where the old one is.

    Raises TargetError (an etcd was started meanwhile), OSError.  Both mean that the old one is in force.
    """
    new, member = data_dir / NEW, data_dir / MEMBER
    _sync_tree(new)
    sync_directory(data_dir)
    refuse_running_etcd(data_dir)
    if not member.exists():
        (new / MEMBER).rename(member)
    elif not _exchange(new / MEMBER, member):
        _swap_in_two(data_dir)
    sync_directory(data_dir)
    # A crash here leaves the new member in force and the old one in `.rootcellar-new`, whole.
    try:
        return _clear(data_dir, now)
    except OSError:  # the restore is done; the next one, or `settle`, takes what is left to quarantine
        return next((path for path in (new / OLD / MEMBER, new / MEMBER) if path.exists()), None)


def set_aside(data_dir: Path, now: datetime) -> Path | None:
    """Take `member` to quarantine with nothing in its place; where it is, None where there was none.

    A crash before the one rename leaves it in force, a crash after it leaves it whole in quarantine.
    Raises TargetError (an etcd runs on it), OSError.
    """
    member = data_dir / MEMBER
    if not member.exists():
        return None
    refuse_running_etcd(data_dir)
    found = _quarantine(data_dir, member, now)
    sync_directory(data_dir)
    return found


def remove_blank(data_dir: Path) -> None:
    """Delete `member`, if there is one, which holds nothing that anybody wrote.

    Raises TargetError (an etcd runs on it), OSError.
    """
    member = data_dir / MEMBER
    if member.exists():
        refuse_running_etcd(data_dir)
        _discard(data_dir, member)


def quarantines(data_dir: Path) -> list[tuple[datetime, Path]]:
    """The old members kept in a data directory with the times they were taken aside, oldest first."""
    top = data_dir / QUARANTINE
    found = _quarantines(top) if top.is_dir() else []
    return [(_moment(path.name), path / MEMBER) for path in found if any(path.iterdir())]


def _swap_in_two(data_dir: Path) -> None:
    new, member = data_dir / NEW, data_dir / MEMBER
    (new / OLD).mkdir(mode=0o700)
    write_file(data_dir / SWAP, b"")
    try:
        member.rename(new / OLD / MEMBER)
        # A crash here leaves no member in force; the swap file tells `settle` that the new one is complete.
        (new / MEMBER).rename(member)
    except OSError:
        if not member.exists():
            (new / OLD / MEMBER).rename(member)
        (data_dir / SWAP).unlink()
        raise
    sync_directory(data_dir)
    (data_dir / SWAP).unlink()


def _clear(data_dir: Path, now: datetime) -> Path | None:
    """Take somebody's data out of `.rootcellar-new` to quarantine, then remove it."""
    new = data_dir / NEW
    quarantined = None
    for old in (new / OLD / MEMBER, new / MEMBER):
        if old.exists() and not _was_built(old, new / ID):
            quarantined = _quarantine(data_dir, old, now)
    _discard(data_dir, new)
    return quarantined


def _was_built(member_dir: Path, id_file: Path) -> bool:
    """Whether this is what was built here and never in force: unfinished, or its note has the build's id."""
    if (member_dir / UNFINISHED).exists():
        return True
    note = read_note(member_dir)
    try:
        return note is not None and note.get("build") == id_file.read_text()
    except (OSError, ValueError):
        return False


def _quarantine(data_dir: Path, old: Path, now: datetime) -> Path:
    """Keep `old`, and of all kept ones the newest QUARANTINES_KEPT."""
    top = data_dir / QUARANTINE
    top.mkdir(mode=0o700, exist_ok=True)
    place = top / _name_above(now, _quarantines(top))
    place.mkdir(mode=0o700)
    # A crash here leaves an empty quarantine, which the next one removes.
    old.rename(place / MEMBER)
    sync_directory(place)
    sync_directory(top)
    _trim(data_dir)
    return place / MEMBER


def _name_above(now: datetime, there: list[Path]) -> str:
    """The time as a name that sorts behind those there, whatever was done to the clock."""
    moments = [now.astimezone(UTC)]
    moments += [_moment(path.name) + timedelta(microseconds=1) for path in there]
    return max(moments).strftime(_QUARANTINE_NAME)


def _moment(name: str) -> datetime:
    return datetime.strptime(name, _QUARANTINE_NAME).replace(tzinfo=UTC)


def _quarantines(top: Path) -> list[Path]:
    """Those made here, oldest first."""
    found = []
    for path in top.iterdir():
        with suppress(ValueError):
            found.append((_moment(path.name), path))
    return [path for _, path in sorted(found) if path.is_dir()]


def _trim(data_dir: Path) -> None:
    top = data_dir / QUARANTINE
    if not top.exists():
        return
    kept = []
    for path in _quarantines(top):
        if any(path.iterdir()):
            kept.append(path)
        else:
            path.rmdir()
    for path in kept[:-QUARANTINES_KEPT]:
        _discard(data_dir, path)


def _discard(data_dir: Path, path: Path) -> None:
    """Delete a directory so that a crash leaves it whole, or as trash."""
    trash = data_dir / TRASH
    if trash.exists():
        shutil.rmtree(trash)
    path.rename(trash)
    sync_directory(path.parent)
    sync_directory(data_dir)
    shutil.rmtree(trash)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories atomically; False where the file system or kernel cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    result = libc.renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)
    )
    if result == 0:
        return True
    code = ctypes.get_errno()
    # EPERM: what some sandboxes say to a call they do not know.
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _sync_tree(top: Path) -> None:
    """Make every file and directory below `top` durable."""
    for path in (*top.rglob("*"), top):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
