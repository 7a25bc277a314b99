"""The encryption by itself: what goes in comes out, age agrees, and nothing can be changed unnoticed."""

from __future__ import annotations

import pickle
import tracemalloc

import pyrage
import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects.sealing import bech32, header, seal, stream
from rootcellar.backup.objects.sealing.keyring import Identity, Recipient, read_identities, write_identity
from rootcellar.errors import ConfigError, DamagedObjectError, FormatError

NAME = names.full(9002, 1565021494, ".zst.age")
OURS, OTHER = Identity(b"o" * 32), Identity(b"x" * 32)
CHUNK = stream.CHUNK
EDGES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 16 * CHUNK - 1, 16 * CHUNK, 16 * CHUNK + 1, 33 * CHUNK]
KEY = b"k" * 16


def payload(size):
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


def sealed(data, *identities, name=NAME):
    return b"".join(seal.encrypt([data], name, [each.recipient for each in identities or (OURS,)]))


def opened(raw, identity=OURS, name=NAME):
    """What the owner of an identity gets out of an object that lies under a name."""
    try:
        found = header.split(raw)
        file_key = header.unwrap(found[0], identity) if found is not None else None
    except FormatError as error:
        raise DamagedObjectError(name.key, error.message) from error
    if file_key is None:
        raise DamagedObjectError(name.key, "cut short, or no stanza opens")
    return b"".join(seal.decrypt([raw], name.key, file_key))


def ours(identity):
    return pyrage.x25519.Identity.from_str(identity.secret_text())


@pytest.mark.parametrize("size", EDGES)
def test_age_opens_what_we_write(size):
    data = payload(size)
    raw = sealed(data, OTHER, OURS)
    assert pyrage.decrypt(raw, [ours(OURS)]) == data
    assert pyrage.decrypt(raw, [ours(OTHER)]) == data


@pytest.mark.parametrize("size", EDGES)
def test_what_age_writes_is_opened(size):
    data = payload(size)
    raw = pyrage.encrypt(data, [ours(OTHER).to_public(), ours(OURS).to_public()])
    found, rest = header.split(raw)
    file_key = header.unwrap(found, OURS)
    found.verify(file_key)
    assert b"".join(stream.decrypt([rest], file_key)) == data


@given(st.binary(max_size=3 * CHUNK), st.data())
def test_it_comes_back_however_it_is_cut(data, draw):
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    raw = b"".join(stream.encrypt(pieces, KEY))
    step = draw.draw(st.integers(1, CHUNK + 17))
    parts = (raw[at : at + step] for at in range(0, len(raw), step))
    assert b"".join(stream.decrypt(parts, KEY)) == data


def test_one_byte_at_a_time_is_enough():
    raw = sealed(b"a little")
    file_key = header.unwrap(header.split(raw)[0], OURS)
    assert (
        b"".join(seal.decrypt((raw[i : i + 1] for i in range(len(raw))), NAME.key, file_key)) == b"a little"
    )


def test_every_flipped_bit_is_told():
    raw = sealed(b"a small payload", OURS, OTHER)
    for at in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            with pytest.raises(DamagedObjectError):
                opened(bytes(damaged))


def test_every_cut_is_told():
    raw = sealed(b"a small payload", OURS, OTHER)
    for length in range(len(raw)):
        with pytest.raises(DamagedObjectError):
            opened(raw[:length])


@pytest.mark.parametrize("size", [2 * CHUNK, 2 * CHUNK + 5])
def test_chunks_cannot_be_moved_doubled_left_out_or_taken_from_another_object(size):
    raw, other = sealed(payload(size)), sealed(payload(size))
    head = raw[: -(size + stream.TAG * -(-size // CHUNK))]
    stored = CHUNK + stream.TAG
    chunks = [raw[at : at + stored] for at in range(len(head), len(raw), stored)]
    others = [
        other[at : at + stored] for at in range(len(other) - (len(raw) - len(head)), len(other), stored)
    ]
    assert opened(head + b"".join(chunks)) == payload(size)
    for wrong in (
        [chunks[1], chunks[0], *chunks[2:]],
        [chunks[0], *chunks],
        chunks[1:],
        chunks[:-1],
        chunks[:1],
        [],
        [others[0], *chunks[1:]],
        [*chunks[:-1], others[-1]],
        [*chunks, chunks[-1]],
        [*chunks, b"\0"],
    ):
        with pytest.raises(DamagedObjectError, match="cut short"):
            opened(head + b"".join(wrong))


def test_the_body_of_another_object_does_not_open_under_this_header():
    one, other = sealed(b"one"), sealed(b"two")
    body = len(b"one") + stream.TAG + stream.NONCE
    with pytest.raises(DamagedObjectError):
        opened(one[:-body] + other[-body:])


def test_an_object_under_another_name_is_told():
    later = names.full(9999, 1565029999, ".zst.age")
    with pytest.raises(DamagedObjectError, match="lies here under another name") as told:
        opened(sealed(b"old state"), name=later)
    assert told.value.name == later.key


def test_a_promise_that_nothing_follows_is_no_other_name():
    final = names.full(9002, 1565021494, ".zst.age", final=True)
    assert opened(sealed(b"x", name=final), name=NAME) == b"x"


def test_an_empty_last_chunk_is_refused():
    """age forbids it: one plaintext would have two encodings."""
    nonce, cipher = bytes(16), ChaCha20Poly1305(header.hkdf(KEY, bytes(16), b"payload"))
    raw = nonce + cipher.encrypt(bytes(12), bytes(CHUNK), None)
    raw += cipher.encrypt((1).to_bytes(11, "big") + b"\1", b"", None)
    with pytest.raises(FormatError, match="empty chunk"):
        list(stream.decrypt([raw], KEY))


def test_a_stream_of_any_length_takes_a_few_mebibytes():
    size = 256
    block = bytes(1 << 20)
    tracemalloc.start()
    try:
        encrypted = stream.encrypt((block for _ in range(size)), KEY)
        assert sum(map(len, stream.decrypt(encrypted, KEY))) == size << 20
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_a_header_that_never_ends_takes_no_memory_without_bound():
    endless = (b"-> x\n" * 1000 for _ in range(10**9))
    with pytest.raises(DamagedObjectError, match="does not end"):
        list(seal.decrypt(_with(b"age-encryption.org/v1\n", endless), NAME.key, KEY))


def _with(first, rest):
    yield first
    yield from rest


@given(st.binary(max_size=400))
def test_no_header_breaks_the_reader(junk):
    for raw in (
        junk,
        b"age-encryption.org/v1\n" + junk,
        b"age-encryption.org/v1\n" + junk + b"\n--- " + b"A" * 43 + b"\n",
    ):
        try:
            found = header.split(raw)
            if found is not None:
                header.unwrap(found[0], OURS)
        except FormatError:
            pass


@given(st.binary(min_size=32, max_size=32))
def test_keys_are_spelled_as_age_spells_them(raw):
    identity = Identity(raw)
    theirs = pyrage.x25519.Identity.from_str(identity.secret_text())
    assert str(theirs.to_public()) == str(identity.recipient)
    assert Recipient.parse(str(theirs.to_public())) == identity.recipient
    assert Identity.parse(identity.secret_text()).key_id == identity.key_id


@given(st.integers(0, 61), st.sampled_from("qpzry9x8gf2tvdw0s3jn54khce6mua7l"))
def test_a_mistyped_recipient_is_told(at, letter):
    text = str(OURS.recipient)
    wrong = text[:at] + letter + text[at + 1 :]
    if wrong != text:
        with pytest.raises(ValueError):
            Recipient.parse(wrong)


@pytest.mark.parametrize(
    "text", ["", "age1", "1", "age1" + "q" * 58, "AGE1" + "q" * 58, "agé1qqqqqqq", "x" * 99]
)
def test_what_is_no_key_is_refused(text):
    with pytest.raises(ValueError):
        Recipient.parse(text)


def test_an_identity_shows_nothing_of_its_secret():
    secret = OURS.secret_text()
    shown = f"{OURS!r} {OURS} {[OURS]} {read_back(OURS)!r}"
    assert secret.lower() not in shown.lower()
    assert (b"o" * 32).hex() not in shown
    with pytest.raises(TypeError, match="does not leave its process"):
        pickle.dumps(OURS)
    with pytest.raises(ValueError, match="checksum") as told:
        bech32.decode(secret[:-1] + ("Q" if secret[-1] != "Q" else "P"))
    assert secret[20:40] not in str(told.value)
    with pytest.raises(ValueError, match="private key") as told:
        Recipient.parse(secret)
    assert secret[20:40] not in str(told.value)


def read_back(identity):
    return Identity.parse(identity.secret_text())


def test_a_new_identity_is_for_its_owner_alone_and_never_over_another(tmp_path):
    path = tmp_path / "restore.key"
    write_identity(OURS, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_identities(path).key_ids == (OURS.key_id,)
    with pytest.raises(ConfigError, match="is there already"):
        write_identity(OTHER, path)
    assert read_identities(path).key_ids == (OURS.key_id,)


def test_identities_of_others_eyes_are_refused_and_of_a_mounted_secret_taken(tmp_path):
    path = tmp_path / "restore.key"
    write_identity(OURS, path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="can be read by others"):
        read_identities(path)
    write_identity(OTHER, tmp_path / "second.key")
    (tmp_path / ".hidden").write_text("nothing of a key")
    assert set(read_identities(tmp_path).key_ids) == {OURS.key_id, OTHER.key_id}


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "nonsense\n", "AGE-SECRET-KEY-1QQQQ\n", "age1xyz\n"]
)
def test_a_file_without_identities_says_so_and_nothing_of_what_it_holds(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as told:
        read_identities(path)
    assert not text.strip("# \n") or text.strip("# \n") not in f"{told.value} {told.value.hint}"
