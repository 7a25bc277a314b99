"""What a process that is to be killed does to the keys of a sealed store."""

from __future__ import annotations

from datetime import UTC, datetime

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.objects.sealing.grants import add_recipient
from rootcellar.backup.objects.sealing.keyring import Identity, Keyring
from tests.backup.capture_scene import Dying, store_at

FIRST, SECOND, STRANGER = Identity(b"1" * 32), Identity(b"2" * 32), Identity(b"3" * 32)
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def grant_and_die(place, at, when):
    """Add SECOND to what FIRST opens, and be killed at the `at`-th grant; see Dying."""
    store = store_at(place)
    dying = Dying(store, at, when)
    add_recipient(dying, read_catalogue(store), SECOND.recipient, Keyring((FIRST,)), by="doomed", now=NOW)
