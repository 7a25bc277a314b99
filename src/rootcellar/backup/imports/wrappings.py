"""Where the database lies in what other tools leave behind, who seems to have written it, and when.

Known: a file of `etcdctl snapshot save` or talosctl, a copied `db`, either of them in gzip, the zip of k3s
and RKE2, the directory of kops' etcd-manager (`etcd.backup.gz` beside `_etcd_backup.meta`), the pair of
OpenShift's cluster-backup.sh (`snapshot_DATE.db` beside `static_kuberesources_DATE.tar.gz`), a full of
etcd-backup-restore by itself, and the data directory of an etcd.  Names and notes are hints for people; what
a file really is, `unwrapped` finds in its bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.records import Notice
from rootcellar.errors import FormatError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

GZIP_MAGIC, ZIP_MAGIC = b"\x1f\x8b", b"PK\x03\x04"

_KOPS_DATABASE, _KOPS_META = "etcd.backup.gz", "_etcd_backup.meta"
_OPENSHIFT = re.compile(r"snapshot_(\d{4}-\d\d-\d\d_\d{6})(__POSSIBLY_DIRTY__)?\.db\Z", re.ASCII)
_UNIX_SECONDS = re.compile(r"-(\d{10})(?:\.zip|\.gz|\.db)?\Z", re.ASCII)


class Form(StrEnum):
    """What a person would call it."""

    DATABASE = "database file"
    GZIP = "gzip file"
    ZIP = "zip archive"
    KOPS = "kops backup"
    OPENSHIFT = "OpenShift backup"
    DATA_DIR = "data directory"
    FULL = "full of a store"


@dataclass(frozen=True, slots=True)
class Wrapping:
    """Where the bytes lie, who seems to have written them, and what its writer noted beside them.

    `taken_at` is what the name or the notes say, else when the file was last written.
    """

    path: Path
    form: Form
    taken_at: datetime
    etcd_version: str = ""
    notices: tuple[Notice, ...] = ()


def find(source: Path) -> Wrapping:
    """Where the database of `source`, a file or a directory, lies.  Raises UsageError."""
    if source.is_dir():
        return _in_directory(source)
    if not source.is_file():
        raise UsageError(f"{source} does not exist", hint="give a snapshot file or the directory of a backup")
    if source.name == _KOPS_DATABASE:
        return _kops(source)
    if match := _OPENSHIFT.match(source.name):
        return _openshift(source, match)
    if (name := names.parse(f"v2/{source.name}")) is not None:
        return _alone(source, name)
    with source.open("rb") as file:
        magic = file.read(4)
    form = Form.GZIP if magic.startswith(GZIP_MAGIC) else Form.ZIP if magic == ZIP_MAGIC else Form.DATABASE
    return Wrapping(source, form, _stated_time(source))


def is_wrapping(directory: Path) -> bool:
    """Whether a directory is one that `find` knows by what is in it, not a store or anything else."""
    if _member_database(directory) is not None or (directory / _KOPS_DATABASE).is_file():
        return True
    return any(_OPENSHIFT.match(path.name) for path in directory.iterdir())


def _in_directory(directory: Path) -> Wrapping:
    if (database := _member_database(directory)) is not None:
        behind = "what etcd had not yet written into its database, its log alone has: it is not shown"
        notice = Notice("log-not-read", behind)
        return Wrapping(database, Form.DATA_DIR, _written_at(database), notices=(notice,))
    if (directory / _KOPS_DATABASE).is_file():
        return _kops(directory / _KOPS_DATABASE)
    files = sorted(path for path in directory.iterdir() if path.is_file() and not path.name.startswith("."))
    candidates = [path for path in files if not path.name.startswith("static_kuberesources_")]
    if len(candidates) == 1:
        return find(candidates[0])
    what = "several files" if candidates else "no file"
    raise UsageError(f"{directory} holds {what} that could be a backup", hint="name the file itself")


def _member_database(directory: Path) -> Path | None:
    inner = ("member/snap/db", "snap/db", "db")
    found = (directory / name for name in inner)
    return next((path for path in found if path.is_file() and path.parent.name == "snap"), None)


def _kops(path: Path) -> Wrapping:
    """Kops' etcd-manager: what it backed up, and when, lies in JSON beside the database."""
    meta_path = path.with_name(_KOPS_META)
    notices: list[Notice] = []
    meta: dict[str, Any] = {}
    try:
        meta = msgspec.json.decode(meta_path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        notices.append(Notice("no-meta", f"{_KOPS_META} could not be read ({error}): its version is unknown"))
    version = str(meta.get("etcdVersion", ""))
    if version.startswith("2."):
        raise FormatError(
            f"{path} is a backup of etcd {version}", hint="only etcd 3 has databases that can be read"
        )
    taken_at = _unix(str(meta.get("timestamp", ""))) or _written_at(path)
    return Wrapping(path, Form.KOPS, taken_at, version, tuple(notices))


def _openshift(path: Path, match: re.Match[str]) -> Wrapping:
    notices = []
    resources = path.with_name(f"static_kuberesources_{match[1]}{match[2] or ''}.tar.gz")
    if resources.is_file():
        told = "is not taken along: keep it, it holds certificates and the keys of values encrypted at rest"
        notices.append(Notice("static-resources", f"{resources.name} {told}"))
    else:
        notices.append(Notice("static-resources", f"{resources.name}, which belongs to it, is missing"))
    if match[2]:
        notices.append(Notice("possibly-dirty", "it was taken with --force while operators were at work"))
    try:
        taken_at = datetime.strptime(match[1], "%Y-%m-%d_%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        taken_at = _written_at(path)
    return Wrapping(path, Form.OPENSHIFT, taken_at, notices=tuple(notices))


def _alone(path: Path, name: names.SnapshotName) -> Wrapping:
    """An object of a store, named by itself."""
    if name.kind is names.Kind.DELTA:
        raise UsageError(
            f"{path.name} is a delta, which holds changes alone", hint="name the store it belongs to"
        )
    return Wrapping(path, Form.FULL, name.created_at)


def _stated_time(path: Path) -> datetime:
    """K3s ends its names in unix seconds."""
    match = _UNIX_SECONDS.search(path.name)
    return (_unix(match[1]) if match else None) or _written_at(path)


def _unix(text: str) -> datetime | None:
    return datetime.fromtimestamp(int(text), UTC) if re.fullmatch(r"[0-9]{1,10}", text) else None


def _written_at(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
