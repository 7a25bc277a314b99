"""Who can open what is sealed: recipients (public keys) to write for, identities (private keys) to read with.

Both are age's X25519 keys, in age's spelling, so `age-keygen` makes them and `age` takes ours.  An identity
shows itself as its key id wherever it is printed, and is never pickled: no private key gets into a message, a
log, a plan or another process by accident.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Self

from rootcellar.backup.objects.sealing import bech32
from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_PUBLIC: Final = "age"
_PRIVATE: Final = "age-secret-key-"
_KEY_SIZE: Final = 32
_FILE_LIMIT: Final = 1 << 20
_GROUP_OR_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Recipient:
    """A public key: 32 bytes of X25519."""

    raw: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `age1...`.  Raises ValueError with the words that finish the sentence "TEXT is ..."."""
        if text.strip().upper().startswith(_PRIVATE.upper()):
            raise ValueError("a private key, where the public one belongs: `rootcellar key show` prints that")
        purpose, raw = bech32.decode(text.strip())
        if purpose != _PUBLIC or len(raw) != _KEY_SIZE:
            raise ValueError("not a recipient of age's X25519 kind, age1...")
        return cls(raw)

    @property
    def key_id(self) -> str:
        """16 hex digits by which people and the catalogue call the key: of SHA-256 over its 32 bytes."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    def __str__(self) -> str:
        return bech32.encode(_PUBLIC, self.raw)


class Identity:
    """A private key.  `recipient` is its public one."""

    __slots__ = ("_raw", "recipient")

    def __init__(self, raw: bytes) -> None:
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - only where it is needed
            Encoding,
            PublicFormat,
        )

        self._raw = raw
        public = self.private_key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.recipient = Recipient(public)

    @classmethod
    def new(cls) -> Self:
        return cls(os.urandom(_KEY_SIZE))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `AGE-SECRET-KEY-1...`.  Raises ValueError, which does not repeat the text."""
        purpose, raw = bech32.decode(text)
        if purpose != _PRIVATE or len(raw) != _KEY_SIZE:
            raise ValueError("not an identity of age's X25519 kind, AGE-SECRET-KEY-1...")
        return cls(raw)

    @property
    def key_id(self) -> str:
        return self.recipient.key_id

    def private_key(self) -> X25519PrivateKey:
        """The key for a calculation."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415 - see above

        return X25519PrivateKey.from_private_bytes(self._raw)

    def secret_text(self) -> str:
        """The private key as an identity file has it: to be written there, and shown to nobody."""
        return bech32.encode(_PRIVATE, self._raw).upper()

    def __repr__(self) -> str:
        return f"<identity {self.key_id}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an identity does not leave its process")


@dataclass(frozen=True, slots=True)
class Keyring:
    """The identities at hand; perhaps none."""

    identities: tuple[Identity, ...] = ()

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(identity.key_id for identity in self.identities)


NO_KEYS: Final = Keyring()


def read_identities(path: Path) -> Keyring:
    """The identities in a file of `key new` or `age-keygen`, or in all files of a directory.

    A mounted Secret is a directory; what begins with a dot there is not looked at.  Raises ConfigError: not
    there, no identity in it, or a file that others than its owner may read (in a directory the mode is the
    mount's business).
    """
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
        found = [identity for file in files for identity in _read(file)]
    else:
        found = list(_read(path))
        _refuse_public(path)
    if not found:
        raise ConfigError(f"there is no identity in {path}", hint="`rootcellar key new` makes one")
    return Keyring(tuple({identity.key_id: identity for identity in found}.values()))


def _read(path: Path) -> Iterator[Identity]:
    try:
        with path.open("rb") as file:
            lines = file.read(_FILE_LIMIT).decode("ascii").splitlines()
    except OSError as error:
        raise ConfigError(
            f"identities in {path} cannot be read: {(error.strerror or 'error').lower()}",
            hint="name the file that `rootcellar key new` wrote",
        ) from error
    except UnicodeDecodeError:
        raise _no_identities(path, "it is no text") from None  # the cause would quote the file
    for number, line in enumerate(lines, 1):
        if (text := line.strip()) and not text.startswith("#"):
            try:
                yield Identity.parse(text)
            except ValueError as error:
                raise _no_identities(path, f"line {number} is {error}") from None


def _no_identities(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{path} does not hold identities: {why}",
        hint="one line for each, AGE-SECRET-KEY-1..., and comments behind #",
    )


def _refuse_public(path: Path) -> None:
    status = path.stat()
    if status.st_mode & _GROUP_OR_OTHERS and status.st_uid == os.geteuid():
        raise ConfigError(
            f"{path} can be read by others than its owner (mode {status.st_mode & 0o777:o})",
            hint=f"chmod 600 {path}; if others use this machine, take the key for known: docs/encryption.md",
        )


def write_identity(identity: Identity, path: Path) -> None:
    """A new file that only its owner can read, mode 0600, durable before this returns.

    Never over an existing one: what was written for the key in that could no longer be opened.  A crash
    leaves a file that is cut short, and no object was ever written for its key.  Raises ConfigError, OSError.
    """
    from rootcellar.wal.durable import sync_directory  # noqa: PLC0415 - readers need none of it

    text = f"# recipient: {identity.recipient}\n# key id: {identity.key_id}\n{identity.secret_text()}\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} is there already", hint="a key is never overwritten: name another"
        ) from error
    with os.fdopen(handle, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)


def parse_recipients(texts: Iterable[str]) -> tuple[Recipient, ...]:
    """Recipients as the configuration names them, each once.  Raises ConfigError."""
    found: dict[str, Recipient] = {}
    for text in texts:
        try:
            recipient = Recipient.parse(text)
        except ValueError as error:
            shown = "a recipient" if "private" in str(error) else f"recipient {text[:80]!r}"
            raise ConfigError(f"{shown} is {error}", hint="a recipient is age1..., 62 characters") from None
        found[recipient.key_id] = recipient
    return tuple(found.values())
