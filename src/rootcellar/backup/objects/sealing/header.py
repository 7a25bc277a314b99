"""The head of an age file: for each recipient the file key, wrapped; and what the file is, authenticated.

Format: C2SP age.md, version 1.  All stanzas lie under a MAC by the file key, so what somebody changes there
without the key is noticed.  Beside age's `X25519` stanzas ours have one that age's readers pass over:

    -> rootcellar.dev/snapshot full_00000000_00009002_1565021494.zst.age a1b2c3d4e5f60718 ...

It binds the bytes to the name they were written under, and lists the key ids of the recipients; a recipient's
own stanza does not tell whose it is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rootcellar.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rootcellar.backup.objects.sealing.keyring import Identity, Recipient

LIMIT: Final = 64 << 10
"""Bytes of a header at most: some 500 recipients."""
FILE_KEY_SIZE: Final = 16

_VERSION: Final = b"age-encryption.org/v1\n"
_NAME: Final = b"rootcellar.dev/snapshot"
_X25519: Final = b"X25519"
_X25519_INFO: Final = b"age-encryption.org/v1/X25519"
_SHARE_SIZE: Final = 32
_WRAPPED_SIZE: Final = FILE_KEY_SIZE + 16
_COLUMNS: Final = 64
_END: Final = re.compile(rb"^--- [A-Za-z0-9+/]{43}\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Stanza:
    """A line of arguments, the first of them its type, and a body."""

    arguments: tuple[bytes, ...]
    body: bytes

    @property
    def type(self) -> bytes:
        return self.arguments[0]


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header; `raw` are its bytes, the line of the MAC included."""

    stanzas: tuple[Stanza, ...]
    raw: bytes

    @property
    def stem(self) -> str | None:
        """The spelling of the name that it was written for.  Not to be believed before `verify`."""
        return next((each.arguments[1].decode() for each in self.stanzas if _is_name(each)), None)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The recipients that its writer listed.  Not to be believed before `verify`."""
        listed = (each.arguments[2:] for each in self.stanzas if _is_name(each))
        return tuple(argument.decode() for arguments in listed for argument in arguments)

    def verify(self, file_key: bytes) -> None:
        """Raises FormatError when the header is not what the holder of the file key wrote."""
        signed, _, mac = self.raw.rpartition(b" ")
        if not hmac.compare_digest(_mac(file_key, signed), _unbase64(mac.rstrip(b"\n"))):
            raise FormatError("the header of the encryption is not what was written")


def _is_name(stanza: Stanza) -> bool:
    return stanza.type == _NAME and len(stanza.arguments) > 1


def new_file_key() -> bytes:
    """A key for one object, never used for another."""
    return os.urandom(FILE_KEY_SIZE)


def write(file_key: bytes, recipients: Sequence[Recipient], stem: str) -> bytes:
    """A header that any of these recipients can open, for the object of that spelling."""
    listed = (recipient.key_id.encode() for recipient in recipients)
    stanzas = [Stanza((_NAME, stem.encode(), *listed), b"")]
    stanzas += [_wrap(file_key, recipient) for recipient in recipients]
    signed = b"".join([_VERSION, *map(_written, stanzas), b"---"])
    return signed + b" " + _base64(_mac(file_key, signed)) + b"\n"


def _written(stanza: Stanza) -> bytes:
    body = _base64(stanza.body)
    lines = [body[at : at + _COLUMNS] for at in range(0, len(body) + 1, _COLUMNS)]  # the last is a short one
    return b"-> " + b" ".join(stanza.arguments) + b"\n" + b"".join(line + b"\n" for line in lines)


def split(head: bytes) -> tuple[Header, bytes] | None:
    """The header at the beginning of a file and what follows it; None when more bytes are needed.

    Raises FormatError.
    """
    if not head.startswith(_VERSION[: len(head)]):
        raise FormatError("it is not encrypted with age")
    end = _END.search(head)
    if end is None:
        if len(head) > LIMIT:
            raise FormatError("the header of the encryption does not end")
        return None
    return parse(head[: end.end()]), head[end.end() :]


def parse(raw: bytes) -> Header:
    """A header from its first byte to its last.  Raises FormatError."""
    lines = raw.removeprefix(_VERSION).split(b"\n")
    if not raw.startswith(_VERSION) or len(lines) < 2 or lines[-1] or not _END.match(lines[-2] + b"\n"):
        raise FormatError("the header of the encryption is damaged")
    return Header(tuple(_stanzas(lines[:-2])), raw)


def _stanzas(lines: list[bytes]) -> Iterable[Stanza]:
    at = 0
    while at < len(lines):
        opening, *arguments = lines[at].split(b" ")
        if opening != b"->" or not arguments or not all(map(_is_argument, arguments)):
            raise FormatError("the header of the encryption is damaged")
        body = b""
        while (at := at + 1) < len(lines):
            body += lines[at]
            if len(lines[at]) > _COLUMNS:
                raise FormatError("the header of the encryption is damaged")
            if len(lines[at]) < _COLUMNS:
                break
        else:
            raise FormatError("the header of the encryption is damaged")
        at += 1
        yield Stanza(tuple(arguments), _unbase64(body))


def _is_argument(argument: bytes) -> bool:
    return bool(argument) and all(33 <= byte <= 126 for byte in argument)


def unwrap(header: Header, identity: Identity) -> bytes | None:
    """The file key, if a stanza is for this identity.  Not to be believed before `verify`."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only where something is encrypted
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415

    for stanza in header.stanzas:
        if stanza.type != _X25519:
            continue
        share = _unbase64(stanza.arguments[1]) if len(stanza.arguments) == 2 else b""
        if len(share) != _SHARE_SIZE or len(stanza.body) != _WRAPPED_SIZE:
            raise FormatError("the header of the encryption is damaged")
        try:
            secret = identity.private_key().exchange(X25519PublicKey.from_public_bytes(share))
            wrapping = hkdf(secret, share + identity.recipient.raw, _X25519_INFO)
            return ChaCha20Poly1305(wrapping).decrypt(bytes(12), stanza.body, None)
        except (InvalidTag, ValueError):  # for somebody else; or a share of low order, which nobody writes
            continue
    return None


def _wrap(file_key: bytes, recipient: Recipient) -> Stanza:
    from cryptography.hazmat.primitives.asymmetric.x25519 import (  # noqa: PLC0415 - see above
        X25519PrivateKey,
        X25519PublicKey,
    )
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415

    ephemeral = X25519PrivateKey.generate()
    share = ephemeral.public_key().public_bytes_raw()
    secret = ephemeral.exchange(X25519PublicKey.from_public_bytes(recipient.raw))
    wrapping = hkdf(secret, share + recipient.raw, _X25519_INFO)
    # A nonce of zeros: the wrapping key is of an ephemeral one and used this once.
    return Stanza((_X25519, _base64(share)), ChaCha20Poly1305(wrapping).encrypt(bytes(12), file_key, None))


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """HKDF-SHA-256 to 32 bytes."""
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(SHA256(), 32, salt, info).derive(secret)


def _mac(file_key: bytes, signed: bytes) -> bytes:
    return hmac.new(hkdf(file_key, b"", b"header"), signed, hashlib.sha256).digest()


def _base64(data: bytes) -> bytes:
    return base64.b64encode(data).rstrip(b"=")


def _unbase64(text: bytes) -> bytes:
    """Strict: without padding, and in the one spelling that the bytes have.  Raises FormatError."""
    try:
        data = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        data = b""
    if _base64(data) != text:
        raise FormatError("the header of the encryption is damaged")
    return data
