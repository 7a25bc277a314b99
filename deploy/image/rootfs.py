"""The file system of our image, in three layers: Debian's Python and no more, our dependencies, ourselves.

    rootfs.py system LAYER DEBS                      unpack a directory of Debian's packages
    rootfs.py dependencies LAYER SYSTEM REQUIREMENTS install what a hashed requirement file pins
    rootfs.py application LAYER SYSTEM WHEEL         install our wheel and its command

The Containerfile calls it in a build stage, and the testbed without any container engine, so the two agree.
It runs on any Python: what has to be done by the image's own Python is, through the image's own loader.
There is no shell, package manager or compiler in the result; nothing in it wants to be written to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = "python3.11"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PACKAGES = f"usr/local/lib/{PYTHON}/dist-packages"
USER = 65532

_MERGED = ("bin", "sbin", "lib", "lib64")  # into /usr, as on every Debian 12
_WITHOUT_LIBRARY = ("_curses*", "_dbm", "nis", "readline", "_sqlite3")
# Documentation, what only a person at a shell wants, and modules of Python whose libraries are not here.
_UNUSED = (
    "boot",
    "home",
    "usr/games",
    "usr/include",
    "usr/src",
    "var/[!l]*",
    "var/lo*",
    "usr/bin/*pdb*",
    "usr/bin/py3*",
    "usr/sbin/*",
    "usr/share/[!cz]*",
    "usr/share/common-licenses",
    "usr/lib/mime",
    f"{LIBRARIES}/gconv",
    f"usr/lib/{PYTHON}/ensurepip",
    f"usr/lib/{PYTHON}/lib2to3",
    f"usr/lib/{PYTHON}/pydoc_data",
    f"usr/lib/{PYTHON}/test",
    "usr/share/zoneinfo/posix",  # the same again, and once more with leap seconds
    "usr/share/zoneinfo/right",
    *(f"usr/lib/{PYTHON}/lib-dynload/{module}.*" for module in _WITHOUT_LIBRARY),
)
_UNUSED_OF_PACKAGES = (
    "bin",
    "numpy/f2py",
    "numpy/_core/include",
    "numpy/**/tests",
    "**/*.pyi",
    "**/*.h",
    "**/*.a",
    "**/*.pyx",
    "**/*.pxd",
)
# botocore describes every service of Amazon; these are what a store and the ways to its keys need.
_SERVICES = ("s3", "sts", "sso", "sso-oidc", "signin")


def system(layer: Path, debs: Path) -> None:
    """Unpack Debian's packages, with /usr merged, an account for us, and the authorities' certificates."""
    for name in _MERGED:
        (layer / "usr" / name).mkdir(parents=True)
    for package in sorted(debs.glob("*.deb")):
        _run("dpkg-deb", "--extract", package, layer)
        _note(layer, package)
    for name in _MERGED:
        if (layer / name).is_dir():
            shutil.copytree(layer / name, layer / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(layer / name)
        (layer / name).symlink_to(f"usr/{name}")
    (layer / "usr/bin/python3").symlink_to(PYTHON)
    certificates = sorted((layer / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = layer / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(file.read_bytes() for file in certificates))
    shutil.rmtree(layer / "usr/share/ca-certificates")
    (
        layer / "usr/lib/ssl"
    ).mkdir()  # where Debian's OpenSSL looks; the package with its command has this link
    (layer / "usr/lib/ssl/cert.pem").symlink_to("/etc/ssl/certs/ca-certificates.crt")
    _remove(layer, _UNUSED)
    (layer / "etc/passwd").write_text(
        f"root:x:0:0:root:/root:/sbin/nologin\nrootcellar:x:{USER}:{USER}:rootcellar:/:/sbin/nologin\n"
    )
    (layer / "etc/group").write_text(f"root:x:0:\nrootcellar:x:{USER}:\n")
    (layer / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    _compile(layer, layer, layer / "usr/lib" / PYTHON)


def _note(layer: Path, package: Path) -> None:
    """Leave a package's control data where scanners for known flaws look in images without dpkg."""
    notes = layer / "var/lib/dpkg/status.d"
    notes.mkdir(parents=True, exist_ok=True)
    control = _run("dpkg-deb", "--field", package)
    (notes / _run("dpkg-deb", "--field", package, "Package").strip()).write_text(control)


def dependencies(layer: Path, base: Path, requirements: Path) -> None:
    """Install what `requirements` pins by hash; wheels alone, so nothing is compiled."""
    _install(layer, base, "--require-hashes", "--only-binary", ":all:", "-r", requirements)
    data = layer / PACKAGES / "botocore/data"
    for service in data.iterdir():
        if service.is_dir() and service.name not in _SERVICES:
            shutil.rmtree(service)
    _remove(layer / PACKAGES, _UNUSED_OF_PACKAGES)
    _record(layer / PACKAGES)
    _compile(layer, base, layer / PACKAGES)


def application(layer: Path, base: Path, wheel: Path) -> None:
    """Install our wheel, and a command that listens to no environment but ours."""
    _install(layer, base, "--no-index", wheel)
    _remove(layer / PACKAGES, ("bin", "*.dist-info/direct_url.json"))
    _record(layer / PACKAGES)
    command = layer / "usr/local/bin/rootcellar"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!/usr/bin/{PYTHON} -I\nimport sys\n\nfrom rootcellar.cli.main import main\n\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    _compile(layer, base, layer / PACKAGES)


def _install(layer: Path, base: Path, *what: str | Path) -> None:
    """Have the image's Python run the pip of this one."""
    import pip  # noqa: PLC0415 - not needed for the first layer, and not everywhere

    target = layer / PACKAGES
    options = ("--quiet", "--no-deps", "--no-compile", "--disable-pip-version-check")
    environment = {"PYTHONPATH": str(Path(pip.__file__).parents[1]), "PIP_FIND_LINKS": ""}
    _python(base, environment, "-m", "pip", "install", *options, "--target", target, *what)


def _record(packages: Path) -> None:
    """Have each package's list of files name those that are here, without scripts and what was left out."""
    for record in packages.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if (packages / line.split(",")[0]).exists()))


def _compile(layer: Path, base: Path, directory: Path) -> None:
    """Compile ahead, as the root file system may be read-only; by content, so that two builds are equal."""
    once = ("-q", "-f", "--invalidation-mode", "unchecked-hash", "-s", layer, "-p", "/")
    _python(base, {"PYTHONHASHSEED": "0"}, "-m", "compileall", *once, directory)


def _python(base: Path, environment: dict[str, str], *arguments: str | Path) -> None:
    """Run the Python of the image's system with the image's libraries, without entering it."""
    loader = base / LIBRARIES / "ld-linux-x86-64.so.2"
    libraries = ("--library-path", base / LIBRARIES)
    home = {**os.environ, "PYTHONHOME": str(base / "usr"), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    _run(loader, *libraries, base / "usr/bin" / PYTHON, *arguments, environment=home)


def _remove(root: Path, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    steps: dict[str, Callable[..., None]] = {
        "system": system,
        "dependencies": dependencies,
        "application": application,
    }
    os.umask(0o022)
    step, *paths = sys.argv[1:]
    steps[step](*(Path(path).resolve() for path in paths))
