"""One writer at a time, by objects that only one can create.

An epoch is a numbered create-only object: who creates the next number is the writer, and everybody before
is fenced.  A writer that publishes goes claim, epoch read again, object, record, epoch read again.  Whoever
takes over goes epoch, claims read.  One of the two sees the other: so a successor knows the names of all that
can still come, however late.  What dies or loses in between leaves:

1. claim written, then killed: a slot that says what was meant.  The next writer has a higher epoch, and
   claims anew.
2. object written, then killed: a valid snapshot without a record; the claim tells its timeline.
3. record written, and the epoch read again shows a higher one: the writer was superseded while it published.
   It removes its own object if the successor has stored the same again; else the object may be what the
   successor goes on from, and stays (`overlap`).  Readers trim what overlaps within the one timeline, and
   the successor removes it once it has stored as much.

Where a store has no conditional create, a put falls back to looking before writing.  Two writers can then
both believe in a number; the bytes of the later one stay, with its nonce, and the earlier one finds that
out when it reads the epoch again.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.names import Kind
from rootcellar.backup.catalogue.ownership import Claim, Epoch, Heartbeat
from rootcellar.errors import (
    AlreadyExistsError,
    FencedError,
    NotFoundError,
    RecordError,
    StoreError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.stores.protocol import Store

_ATTEMPTS = 16


def claim_epoch(store: Store, writer: str, now: datetime) -> Epoch:
    """Become the writer of this prefix.  Raises FencedError when others keep taking the next number."""
    for _ in range(_ATTEMPTS):
        epoch = Epoch(
            number=_last_epoch(store) + 1, nonce=secrets.token_hex(8), writer=writer, created_at=now
        )
        try:
            documents.put_once(store, keys.epoch(epoch.number), epoch)
            _check_nonce(store, epoch)
        except (AlreadyExistsError, FencedError):
            continue
        return epoch  # perhaps superseded already, which the first check tells
    raise FencedError(
        f"{_ATTEMPTS} times another writer claimed the next epoch of {store.url}",
        hint="more than one agent writes to this prefix; stop all but one",
    )


def check_epoch(store: Store, epoch: Epoch) -> None:
    """Read the epoch again.  Raises FencedError when this writer is no longer the one, StoreError when the
    store has forgotten everything.
    """
    last = _last_epoch(store, after=keys.epoch(epoch.number))
    if last > epoch.number:
        raise FencedError(
            f"epoch {epoch.number} of {epoch.writer} was superseded by epoch {last}",
            hint="another agent or command writes to this prefix now; let it, or stop it and try again",
        )
    _check_nonce(store, epoch)


def _check_nonce(store: Store, epoch: Epoch) -> None:
    """Make sure that the number is this writer's, which only a store without conditions leaves open."""
    try:
        stored = documents.fetch(store, keys.epoch(epoch.number), Epoch)
    except NotFoundError as error:
        if not _last_epoch(store):
            # Whoever took over would have left one: it is the store that is away, and may come back.
            raise StoreError(
                f"{store.url} is empty, and {epoch.writer} wrote to it in epoch {epoch.number}",
                hint="see that its share is mounted; if it was emptied on purpose, start the agent anew",
            ) from error
        raise FencedError(
            f"epoch {epoch.number} of {epoch.writer} is gone from {store.url}",
            hint="somebody emptied catalogue/epochs/; nothing is written until a new epoch is claimed",
        ) from error
    if stored != epoch:
        raise FencedError(
            f"epoch {epoch.number} was taken by {stored.writer} at the same time",
            hint="two agents write to this prefix, and its store cannot tell them apart; stop one of them",
        )


def claim_slot(
    store: Store, epoch: Epoch, name: SnapshotName, stored_sha256: str, timeline: int, now: datetime
) -> Claim:
    """Say which delta is about to be published.  Raises AlreadyExistsError if this epoch claimed its slot
    otherwise.
    """
    if name.kind is not Kind.DELTA:
        raise UsageError(f"{name.key} is a full", hint="only deltas have slots")
    claim = Claim(
        start=name.start,
        epoch=epoch.number,
        timeline=timeline,
        key=name.key,
        stored_sha256=stored_sha256,
        created_at=now,
    )
    documents.put_once(store, keys.claim(name.start, epoch.number), claim)
    return claim


def claim_full(
    store: Store, epoch: Epoch, name: SnapshotName, reached: int, timeline: int, now: datetime
) -> str:
    """Say which full is about to be published, and that it ends at or below `reached`; the claim's key.

    Fulls can lie over each other, so this is no slot that one of two gets.
    """
    claim = Claim(
        start=name.start,
        epoch=epoch.number,
        timeline=timeline,
        key=name.key,
        stored_sha256=None,
        created_at=now,
        reached=reached,
    )
    key = keys.claim(name.start, epoch.number, secrets.token_hex(8))
    documents.put_once(store, key, claim)
    return key


def announced(store: Store, epoch: Epoch, settled: Collection[tuple[int, int]]) -> list[Claim]:
    """What was claimed up to this epoch, but for slots that are `settled`: (start, epoch).

    Once the epoch is claimed, nothing that is not among these can be published by an older one.
    """
    found = []
    for info in store.list(keys.CLAIMS):
        slot = keys.parse_claim(info.key)
        if slot is None or slot in settled or slot[1] > epoch.number:
            continue
        with suppress(NotFoundError, RecordError):  # it has served meanwhile; or nobody can publish by it
            found.append(documents.fetch(store, info.key, Claim))
    return found


def claimed_by_others(store: Store, epoch: Epoch, start: int) -> dict[str, int]:
    """By key the epochs of other writers' claims for a delta that begins at revision `start`."""
    prefix = keys.claim(start, 0).partition("_")[0] + "_"
    mine = keys.claim(start, epoch.number)
    found: dict[str, int] = {}
    for info in store.list(prefix):
        if info.key != mine:
            try:
                claim = documents.fetch(store, info.key, Claim)
            except (NotFoundError, RecordError):
                continue  # removed meanwhile, or damaged: nobody can publish by it any more
            found[claim.key] = max(claim.epoch, found.get(claim.key, 0))
    return found


def beat(store: Store, epoch: Epoch, revision: int, timeline: int, now: datetime) -> Heartbeat:
    """Write a heartbeat, then remove those of this epoch and older ones, also where they are of a time to
    come: the clock was ahead then.

    A crash in between leaves more heartbeats than needed; readers take the newest.
    """
    heartbeat = Heartbeat(
        time=now, revision=revision, timeline=timeline, epoch=epoch.number, agent=epoch.writer
    )
    key = keys.heartbeat(now, epoch.number)
    documents.put_once(store, key, heartbeat)
    others = [info.key for info in store.list(keys.HEARTBEATS) if info.key != key]
    store.delete_many([each for each in others if keys.epoch_of_heartbeat(each) <= epoch.number])
    return heartbeat


def _last_epoch(store: Store, *, after: str = "") -> int:
    last = 0
    for info in store.list(keys.EPOCHS, after=after):
        stem = info.key.removeprefix(keys.EPOCHS).removesuffix(".json")
        if stem.isdecimal():
            last = max(last, int(stem))
    return last
