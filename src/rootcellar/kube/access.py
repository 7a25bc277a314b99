"""Where an API server is, whom we trust to be it, and as whom we speak to it.

Files are read when they are needed and not kept: kubelet exchanges a pod's token every hour or so, and its
authorities when they are rotated.
"""

from __future__ import annotations

import ssl
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

Pem = Path | bytes


@dataclass(frozen=True, slots=True)
class Access:
    """All it takes.  PEM is a file or the bytes themselves; a token that is a `Path` is read for every
    request.  `namespace` is the one to be in where nothing else is said.  Without `ca` the machine's
    authorities are trusted.
    """

    url: str
    namespace: str = "default"
    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    token: Path | str | None = None
    server_name: str | None = None
    is_unverified: bool = False

    def authorization(self) -> dict[str, str]:
        """The header of a request.  Raises ConfigError where the token's file cannot be read, or is none."""
        if self.token is None:
            return {}
        if isinstance(self.token, Path):
            text, where = _read(self.token, "token").decode("latin-1"), f"of the file {self.token}"
        else:
            text, where = self.token, f"for {self.url}"
        text = text.strip()
        if not (text.isascii() and text.isprintable()):
            raise ConfigError(
                f"the token {where} cannot be sent: it is more than one line, or not ASCII",
                hint="look whether it is the token alone",
            )
        return {"Authorization": f"Bearer {text}"}

    def stamp(self) -> tuple[object, ...]:
        """Something that changes when one of the files behind `context` does."""
        files = [each for each in (self.ca, self.certificate, self.key) if isinstance(each, Path)]
        return tuple(_state(file) for file in files)

    def context(self) -> ssl.SSLContext:
        """What connections are made with, from the files as they are now.  Raises ConfigError."""
        try:
            context = ssl.create_default_context()
            if self.ca is not None:
                context = ssl.create_default_context(cadata=_read(self.ca, "authority").decode())
            if self.is_unverified:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None and self.key is not None:
                with _as_file(self.certificate) as certificate, _as_file(self.key) as key:
                    context.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise ConfigError(
                f"a certificate for {self.url} cannot be used: {error}", hint="look at the PEM files"
            ) from error
        return context


def _read(source: Pem, what: str) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise ConfigError(f"the {what} {source} cannot be read: {error.strerror}") from error


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()  # follows links, which is where kubelet changes them
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


@contextmanager
def _as_file(source: Pem) -> Iterator[Path]:
    """OpenSSL reads a client's certificate from files only; ours, for that moment, nobody else can read."""
    if isinstance(source, Path):
        yield source
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(source)
        file.flush()
        yield Path(file.name)
