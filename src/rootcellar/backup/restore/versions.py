"""Which etcd a backup came from, and which ones may start on what is restored from it.

etcd refuses, or worse does not refuse, files of a newer minor version: 3.4 and 3.5 start on a 3.6 file
without a check, 3.6 refuses one of 3.7.  Offline the formats allow any newer minor, also one that skips
others; the rule "one minor at a time" is about running clusters.  `docs/format.md` has the table of what was
tried.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rootcellar.errors import TargetError, UsageError

_TEXT = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.\d+)?(?:[-+].*)?\Z", re.ASCII)


class Minor(NamedTuple):
    """A minor version of etcd, as `3.5`."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


KNOWN = (Minor(3, 4), Minor(3, 5), Minor(3, 6), Minor(3, 7))
_UNDECIDED = Minor(3, 0)
"""The version of a cluster that has not heard of each of its members yet (etcd's `MinClusterVersion`)."""


def parse(text: str) -> Minor:
    """`3.5`, `3.5.35` or `v3.5.35`.  Raises UsageError."""
    match = _TEXT.match(text.strip())
    if not match:
        raise UsageError(f"{text!r} is no etcd version", hint="write it as 3.5 or 3.5.35")
    return Minor(int(match[1]), int(match[2]))


def of_file(
    storage_version: str | None, cluster_version: str | None, served_by: str, *, has_term: bool
) -> Minor:
    """The minor that wrote a database: its storage version (3.6 and later), else its cluster version, else
    that of the etcd that served it ("" where nobody wrote it down), else what the presence of a raft term
    says (3.5 and later write it).
    """
    for text in (storage_version, cluster_version, served_by):
        if text and _TEXT.match(text) and (minor := parse(text)) != _UNDECIDED:
            return minor
    return Minor(3, 5) if has_term else Minor(3, 4)


def target(wanted: str | None, source: Minor) -> Minor:
    """The minor to restore for.  Raises TargetError when it is older than the source, or unknown."""
    minor = source if wanted is None else parse(wanted)
    if minor not in KNOWN:
        known = ", ".join(map(str, KNOWN))
        raise TargetError(
            f"restoring for etcd {minor} is not supported", hint=f"choose one of {known} with --for-etcd"
        )
    if minor < source:
        raise TargetError(
            f"the backup is from etcd {source}, which etcd {minor} cannot serve",
            hint=f"restore for {source} or newer",
        )
    return minor
