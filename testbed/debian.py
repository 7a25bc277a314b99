"""Debian's packages, fetched and unpacked as any user, without installing them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cache import UnavailableError, run

if TYPE_CHECKING:
    from collections.abc import Sequence


def fetch(into: Path, packages: Sequence[str]) -> None:
    """Have the packages' files there.  Raises UnavailableError."""
    try:
        run("apt-get", "download", *packages, cwd=into)
    except UnavailableError:  # a fresh machine has no package lists yet
        fetch_newest(into, packages)


def fetch_newest(into: Path, packages: Sequence[str]) -> None:
    """As `fetch`, by lists of this moment, which are read into a place of their own."""
    with tempfile.TemporaryDirectory() as own:
        (Path(own) / "lists" / "partial").mkdir(parents=True)
        private = ("-o", f"Dir::State::Lists={own}/lists", "-o", f"Dir::Cache={own}/cache")
        run("apt-get", *private, "update")
        run("apt-get", *private, "download", *packages, cwd=into)


def unpack(into: Path, packages: Sequence[str]) -> None:
    """Have what is in the packages there.  Raises UnavailableError."""
    with tempfile.TemporaryDirectory() as fetched:
        fetch(Path(fetched), packages)
        for package in Path(fetched).glob("*.deb"):
            run("dpkg", "-x", package, into)
