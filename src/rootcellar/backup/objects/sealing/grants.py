"""Another key for what is there already, without writing it again.

Order, and what a crash leaves: each grant is one create-only document, so a run that was killed has granted
some objects and not others, and running it again grants the rest.  Taking a key back removes its grants, one
by one, in the same way.

Taking back is no forgetting.  Who could open an object may have read it, or kept its file key; an object
whose own header names the key opens with it for as long as it lies there; and a bucket that keeps versions
keeps a removed grant too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.records import Grant
from rootcellar.backup.objects.sealing import header as headers
from rootcellar.backup.objects.sealing.seal import bound_name, unlock
from rootcellar.errors import AlreadyExistsError

if TYPE_CHECKING:
    from datetime import datetime

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.objects.sealing.keyring import Keyring, Recipient
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Removed:
    """What taking a key back came to, as keys of snapshots.

    `removed` no longer open with it, `locked` would not let go of its grant, `own` were written for it.
    """

    removed: tuple[str, ...]
    locked: tuple[str, ...]
    own: tuple[str, ...]


def lacking(catalogue: Catalogue, recipient: Recipient) -> list[Snapshot]:
    """The encrypted snapshots that this key does not open, as far as the catalogue says."""
    return [
        each
        for each in catalogue.snapshots
        if each.name.is_encrypted and recipient.key_id not in catalogue.key_ids(each)
    ]


def add_recipient(
    store: Store, catalogue: Catalogue, recipient: Recipient, keyring: Keyring, *, by: str, now: datetime
) -> list[Snapshot]:
    """Grant every encrypted snapshot to a recipient; those that were granted now.

    Nothing is granted unless all can be.  Raises NoKeyError, DamagedObjectError, StoreErrors.
    """
    wanted = lacking(catalogue, recipient)
    unlocked = unlock(store, [each.key for each in wanted], keyring)
    granted = []
    for snapshot in wanted:
        header = headers.write(unlocked.file_key(snapshot.key), [recipient], bound_name(snapshot.name))
        grant = Grant(
            key=snapshot.name.key,
            key_id=recipient.key_id,
            header=header.decode(),
            by=by,
            created_at=now,
        )
        try:
            documents.put_once(store, keys.grant(snapshot.name, recipient.key_id), grant)
        except AlreadyExistsError:  # granted by somebody else meanwhile: each wraps in a way of its own
            continue
        # Killed here: this one is granted, those behind it are not; running it again grants them.
        granted.append(snapshot)
    return granted


def remove_recipient(store: Store, catalogue: Catalogue, key_id: str) -> Removed:
    """Take back every grant of a key.  Raises StoreErrors."""
    granted = {grant.key for grant in catalogue.grants if grant.key_id == key_id}
    places = {
        keys.grant(each.name, key_id): each.key for each in catalogue.snapshots if each.name.key in granted
    }
    failed = store.delete_many(places)
    own = (each.key for each in catalogue.snapshots if each.record is not None and key_id in each.record.keys)
    return Removed(
        removed=tuple(key for place, key in places.items() if place not in failed),
        locked=tuple(places[place] for place in failed),
        own=tuple(own),
    )
