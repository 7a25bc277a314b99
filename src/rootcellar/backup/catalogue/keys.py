"""Where rootcellar's own objects lie below a store's prefix.

EBR lists the prefix and takes for a backup whatever its parser accepts, under any prefix a person may have
chosen.  So every key here has at least three segments, no dash anywhere, and no segment that ends in `v1` or
`v2`: the parser wants four tokens between dashes within three segments behind a version, and cannot find
them.

Numbers are padded so that a listing, which is in key order, is in order of revision, number or time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.names import Kind

if TYPE_CHECKING:
    from datetime import datetime

    from rootcellar.backup.catalogue.names import SnapshotName

CATALOGUE: Final = "catalogue/"
RECORDS: Final = "catalogue/records/"
PROOFS: Final = "catalogue/proofs/"
HOLDS: Final = "catalogue/holds/"
RELEASES: Final = "catalogue/releases/"
PINS: Final = "catalogue/pins/"
TOMBSTONES: Final = "catalogue/tombstones/"
MARKERS: Final = "catalogue/markers/"
TIMELINES: Final = "catalogue/timelines/"
FORKS: Final = "catalogue/forks/"
EPOCHS: Final = "catalogue/epochs/"
CLAIMS: Final = "catalogue/claims/"
GRANTS: Final = "catalogue/grants/"
HEARTBEATS: Final = "catalogue/heartbeats/"
TIMES: Final = "catalogue/times/"
ABANDONED: Final = "abandoned/"

_ABANDONED = re.compile(
    r"abandoned/(\d{10})/(full|delta)_(\d+)_(\d+)_(\d+)((?:\.\w+)*)(?:@(\w+))?\Z", re.ASCII
)

_HEARTBEAT = re.compile(r"catalogue/heartbeats/\d+_(\d{10})\.json\Z", re.ASCII)
_CLAIM = re.compile(r"catalogue/claims/(\d{20})_(\d{10})(?:_[0-9a-f]+)?\.json\Z", re.ASCII)


def stem(name: SnapshotName) -> str:
    """A snapshot's name in a spelling that EBR does not take for one:
    `full_00000000_00000120_1795250784.gz`.

    A v1 name also says its directory, behind an `@`.  A sealed one is spelled like this from the start.
    """
    if name.is_sealed:
        return name.name
    kind, start, last, rest = name.name.split("-", 3)
    spelled = f"{Kind(kind).name.lower()}_{start}_{last}_{rest}"
    _, _, directory = name.directory.partition("v1/")
    return f"{spelled}@{directory.rstrip('/').replace('-', '_')}" if directory else spelled


def record(name: SnapshotName) -> str:
    """The record of a snapshot."""
    return f"{RECORDS}{stem(name)}.json"


def proof(name: SnapshotName, moment: datetime, nonce: str) -> str:
    """A proof, filed under the last object that it covers."""
    return f"{PROOFS}{stem(name)}/{_millisecond(moment)}_{nonce}.json"


def hold(nonce: str) -> str:
    """A hold; who lifts it knows its nonce."""
    return f"{HOLDS}{nonce}.json"


def release(hold_nonce: str) -> str:
    """What lifts the hold of that nonce."""
    return f"{RELEASES}{hold_nonce}.json"


def pin(until: datetime, nonce: str) -> str:
    """A pin; those that have expired come first in a listing."""
    return f"{PINS}{_millisecond(until)}_{nonce}.json"


def tombstone(name: SnapshotName) -> str:
    """What is left of a snapshot that was removed on purpose."""
    return f"{TOMBSTONES}{stem(name)}.json"


def marker(number: int) -> str:
    """The binding to a cluster; the highest number holds."""
    return f"{MARKERS}{number:010d}.json"


def timeline(number: int) -> str:
    """A timeline; the highest number is alive."""
    return f"{TIMELINES}{number:010d}.json"


def fork(moment: datetime, nonce: str) -> str:
    """A fork intent."""
    return f"{FORKS}{_millisecond(moment)}_{nonce}.json"


def epoch(number: int) -> str:
    """A fence epoch; the highest number writes."""
    return f"{EPOCHS}{number:010d}.json"


def claim(start: int, epoch_number: int, nonce: str = "") -> str:
    """The slot of the delta that begins at revision `start`, as claimed in that epoch; of a full (start 0)
    with a nonce.
    """
    return f"{CLAIMS}{start:020d}_{epoch_number:010d}{nonce and f'_{nonce}'}.json"


def parse_claim(key: str) -> tuple[int, int] | None:
    """Start and epoch of a claim."""
    match = _CLAIM.match(key)
    return None if match is None else (int(match[1]), int(match[2]))


def grants(name: SnapshotName) -> str:
    """What the keys of an encrypted snapshot's grants begin with."""
    return f"{GRANTS}{stem(name)}/"


def grant(name: SnapshotName, key_id: str) -> str:
    """What lets the owner of that key open an encrypted snapshot which was not written for it."""
    return f"{grants(name)}{key_id}.json"


def heartbeat(moment: datetime, epoch_number: int) -> str:
    """A heartbeat; the last in a listing is the newest."""
    return f"{HEARTBEATS}{_millisecond(moment)}_{epoch_number:010d}.json"


def epoch_of_heartbeat(key: str) -> int:
    """In which epoch it was left; 0 for what is none."""
    match = _HEARTBEAT.match(key)
    return 0 if match is None else int(match[1])


def abandoned(name: SnapshotName, timeline_number: int) -> str:
    """Where a snapshot of a dead timeline is put out of EBR's sight."""
    return f"{ABANDONED}{timeline_number:010d}/{stem(name)}"


def parse_abandoned(key: str) -> tuple[int, SnapshotName] | None:
    """The timeline and the former name, if `key` is one that `abandoned` makes of a name that EBR wrote."""
    match = _ABANDONED.match(key)
    if match is None:
        return None
    kind = Kind[match[2].upper()].value
    directory = f"v1/{match[7].replace('_', '-')}/" if match[7] else "v2/"
    name = names.parse(f"{directory}{kind}-{match[3]}-{match[4]}-{match[5]}{match[6]}")
    return None if name is None or not name.is_snapshot else (int(match[1]), name)


def _millisecond(moment: datetime) -> str:
    return f"{int(moment.timestamp() * 1000):013d}"
