"""What is proven of an object by its upload: what passed by, held against what the store says it has.

Nothing but a `stat` and one small document, where the store's etag can be compared.  Else the object is
read once more: always in a directory, which has no checksums and gives it back at once; elsewhere while it
is small (`READ_BACK`; deltas are), or where an etag of the same form is another one than ours.  What is
left is large, in a store that tells no hash of the whole: that is said, and a schedule of proofs reads it.

The proof comes last of all that a capture writes.  Killed before it: nothing is missing, and the object is
one that nobody has proven.  It never decides whether a capture went well: whoever captures tells what failed,
and takes a full.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from rootcellar.backup.capture.etag import is_comparable
from rootcellar.backup.catalogue import ledger
from rootcellar.backup.catalogue.records import Check, Finding, Proof, Result
from rootcellar.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rootcellar.backup.capture.outcome import Captured
    from rootcellar.stores.protocol import ObjectInfo, Store

READ_BACK = 16 << 20
"""Bytes up to which an object is read again from a store that tells no hash of it."""

_BEYOND = "not tried by an upload"


def prove_upload(store: Store, captured: Captured, clock: Callable[[], datetime]) -> Proof:
    """Look at an object that was just stored, and file what is known of it.

    Raises StoreErrors: then nothing was proven or disproven, or the proof is not filed.
    """
    started, record = clock(), captured.record
    try:
        info = store.stat(record.key)
        listed = _listed(info, record.stored_size)
        hashed = _hashed(store, captured, info) if listed.result is Result.PASSED else _skipped(Check.HASH)
    except NotFoundError:
        listed, hashed = Finding(Check.LISTED, Result.FAILED, f"{record.key} is gone"), _skipped(Check.HASH)
    beyond = [Finding(each, Result.SKIPPED, _BEYOND) for each in list(Check)[3:]]
    proof = Proof(
        objects=(record.link,),
        revision=record.last_revision,
        findings=(listed, hashed, _structure(captured), *beyond),
        started_at=started,
        finished_at=clock(),
        by=record.writer,
        in_passing=True,
    )
    # Killed here: an object that nobody has proven.
    ledger.keep_proof(store, proof)
    return proof


def _skipped(check: Check) -> Finding:
    return Finding(check, Result.SKIPPED, "a check before it failed")


def _listed(info: ObjectInfo, size: int) -> Finding:
    if info.size == size:
        return Finding(Check.LISTED, Result.PASSED, f"{size} bytes")
    return Finding(Check.LISTED, Result.FAILED, f"{info.key} has {info.size} bytes, not {size} as were sent")


def _hashed(store: Store, captured: Captured, info: ObjectInfo) -> Finding:
    """The hash inside was found right as it passed; what is asked is whether the store has those bytes."""
    record = captured.record
    if captured.etag and info.etag == captured.etag:
        return Finding(Check.HASH, Result.PASSED, "the store's etag is that of what was sent")
    is_suspect = is_comparable(captured.etag, info.etag)
    if not (is_suspect or info.size <= READ_BACK or store.url.startswith("file:")):
        told = f"the store tells no hash of the whole, and {info.size} bytes are not read again for it"
        return Finding(Check.HASH, Result.SKIPPED, told)
    digest = hashlib.sha256()
    for chunk in store.get(record.key):
        digest.update(chunk)
    if digest.hexdigest() == record.stored_sha256:
        return Finding(Check.HASH, Result.PASSED, "it was read again")
    told = f"{record.key} has sha256 {digest.hexdigest()}, not {record.stored_sha256} as was sent"
    return Finding(Check.HASH, Result.FAILED, told)


def _structure(captured: Captured) -> Finding:
    record = captured.record
    if captured.snapshot.is_full:
        told = (
            "as its pages passed, their metas, the root, the right edge of the keys and the small buckets"
            " were found right; that all are reachable and in order is not seen in passing"
        )
        return Finding(Check.STRUCTURE, Result.SKIPPED, told)
    if record.start > captured.held + 1:
        gap = f"{record.key} begins after a gap: the store held revision {captured.held}"
        return Finding(Check.STRUCTURE, Result.FAILED, gap)
    told = f"revisions {record.start} to {record.last_revision}, without a gap behind {captured.held}"
    return Finding(Check.STRUCTURE, Result.PASSED, told)
