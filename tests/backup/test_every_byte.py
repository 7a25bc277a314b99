"""Not one byte of a backup can change, and no object go, without being told by name, or without any
effect."""

from __future__ import annotations

import random

import pytest

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.objects import codecs, delta
from rootcellar.errors import ChainError, DamagedObjectError, NothingToRestoreError
from tests.backup.plans import plan_of, restore_into

# In every compression: the plain case each time, the others with the long tests.
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("zlib-leases-3.5", "lzw-3.5")]
pytestmark = pytest.mark.parametrize("ebr_backup", ["gzip-3.5", *LONG], indirect=True)


def stored(backup):
    """(name, bytes) of every object, in EBR's order."""
    return [
        (each.name, b"".join(backup.store.get(each.key))) for each in read_catalogue(backup.store).snapshots
    ]


def decoded(name, raw):
    """What a restore takes from an object's bytes: the database, or the events."""
    payload = codecs.hash_tail(codecs.decompress([raw], name.suffix, name=name.key), name=name.key)
    if name.kind is names.Kind.FULL:
        return b"".join(payload)
    return [event for part in delta.decode(payload, name=name.key, last=name.last) for event in part]


def outcome(name, raw):
    """What was decoded, or the name of the object that an error says is damaged."""
    try:
        return decoded(name, raw), None
    except DamagedObjectError as error:
        return None, error.name


def test_every_flipped_byte_is_told_or_makes_no_difference(ebr_backup):
    told = same = 0
    for name, raw in stored(ebr_backup):
        right = decoded(name, raw)
        for at in range(len(raw)):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << at % 8
            found, culprit = outcome(name, bytes(damaged))
            if culprit is None:
                assert found == right, f"byte {at} of {name.key}"
                same += 1
            else:
                assert culprit == name.key
                told += 1

    assert told > 100 * same  # a few bytes of compression headers mean nothing


def test_every_cut_is_told(ebr_backup):
    for name, raw in stored(ebr_backup):
        for length in {*range(0, len(raw), 97), len(raw) - 1, len(raw) - 32}:
            _, culprit = outcome(name, raw[:length])

            assert culprit == name.key, f"cut to {length} bytes"


def test_a_restore_on_damaged_bytes_fails_by_name_and_leaves_nothing(ebr_backup, tmp_path):
    choose = random.Random(7)
    for number, (name, raw) in enumerate(stored(ebr_backup)):
        damaged = bytearray(raw)
        damaged[choose.randrange(len(raw) // 2, len(raw))] ^= 0x10  # behind all headers
        ebr_backup.store.put(name.key, [bytes(damaged)])
        data = tmp_path / str(number)

        with pytest.raises(DamagedObjectError) as caught:
            restore_into(data, ebr_backup.store)

        assert caught.value.name == name.key
        assert "--to-revision" in caught.value.hint or "--exclude" in caught.value.hint
        assert not (data / "member").exists()
        ebr_backup.store.put(name.key, [raw])


def test_a_missing_delta_is_a_gap_that_no_restore_crosses(ebr_backup, tmp_path):
    objects = stored(ebr_backup)
    expected = {int(at): said for at, said in ebr_backup.expected["hashkv"].items()}
    for index, (name, raw) in enumerate(objects[1:-1], 1):
        ebr_backup.store.delete(name.key)
        with pytest.raises(ChainError) as caught:
            plan_of(ebr_backup.store)
        provable = objects[index - 1][0].last
        assert f"--to-revision {provable}" in caught.value.hint

        restored = restore_into(tmp_path / str(index), ebr_backup.store, provable)

        assert restored.hashkv.hash == expected[provable]["hash"]
        ebr_backup.store.put(name.key, [raw])


def test_without_its_full_a_chain_is_nothing(ebr_backup):
    ebr_backup.store.delete(stored(ebr_backup)[0][0].key)

    with pytest.raises(NothingToRestoreError, match="no usable full"):
        plan_of(ebr_backup.store)
