"""Things that are expensive to make, made once: a directory per thing below `.cache/testbed`.

Test workers run side by side, and so may two test runs.  A file lock lets one of them make a thing while the
others wait; what is being made lies under another name until it is whole, so a killed build leaves no half of
one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"


class UnavailableError(Exception):
    """A part cannot be had on this machine; the message says why.  Tests that need it are skipped with it."""


def cache() -> Path:
    """Where made things lie; `TESTBED_CACHE` moves it (a fresh clone may share another's)."""
    return Path(os.environ.get("TESTBED_CACHE") or ROOT / ".cache" / "testbed")


def digest(paths: Iterable[Path]) -> str:
    """What a thing is made from, in twelve characters: a change of it makes another thing."""
    hashed = hashlib.sha256()
    for path in sorted(paths):
        hashed.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return hashed.hexdigest()[:12]


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The directory `name` of the cache; `make` fills it if nobody did before.  Raises UnavailableError."""
    directory = cache() / name
    if directory.exists():
        return directory
    with _lock(directory):
        if not directory.exists():
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=directory.parent) as unfinished:
                whole = Path(unfinished) / name
                whole.mkdir()
                make(whole)
                whole.rename(directory)
    return directory


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f".{directory.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class BuildError(Exception):
    """What is ours cannot be built, on a machine that has all it takes: a failure, never a reason to skip."""


def run(
    *command: str | Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    ours: bool = False,
) -> str:
    """The output of a build step.  Raises UnavailableError where there is no such program, and with the last
    lines of what it said where it fails; BuildError then, if what it works on is `ours` alone.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            check=True,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError as error:
        raise UnavailableError(f"{command[0]}: not found") from error
    except subprocess.CalledProcessError as error:
        said = "\n".join((error.stdout + error.stderr).splitlines()[-10:])
        failure = BuildError if ours else UnavailableError
        raise failure(f"{' '.join(map(str, command))}: {said}") from error
    return done.stdout


def install_wheels(requirements: str, into: Path) -> None:
    """Unpack the wheels of `requirements/<requirements>.txt`, by hash.  uv does it in seconds; where it is
    not beside this interpreter or cannot fetch, pip takes its time.
    """
    pinned = ("--quiet", "--require-hashes", "--no-deps", "-r", REQUIREMENTS / f"{requirements}.txt")
    uv = shutil.which("uv", path=Path(sys.executable).parent)
    if uv:
        try:
            run(uv, "pip", "install", "--python", sys.executable, "--target", into, *pinned)
        except UnavailableError:
            shutil.rmtree(into)
            into.mkdir()
        else:
            return
    environment = {"PIP_FIND_LINKS": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run(sys.executable, "-m", "pip", "install", "--target", into, *pinned, environment=environment)
