"""The images that test clusters run: rootcellar's, as deploy/Containerfile makes it, and etcd's.

`python -m testbed.image_ours FILE` writes rootcellar's as a docker-archive.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import rootcellar
from testbed import binaries, debian
from testbed.cache import REQUIREMENTS, ROOT, digest, made, run
from testbed.image import Image, write_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME = f"rootcellar:{rootcellar.__version__}"
ETCD_NAME = f"quay.io/coreos/etcd:v{binaries.LINES['3.6']}"

_PARTS = ROOT / "deploy" / "image"
_ROOTFS = _PARTS / "rootfs.py"
_PACKAGES = _PARTS / "packages.txt"
_REQUIREMENTS = REQUIREMENTS / "image.txt"


def system(into: Path, fetch: Callable[[Path, Sequence[str]], None] = debian.fetch) -> None:
    """Have the layer with Debian's Python in `into`, and its archive.  Raises UnavailableError."""
    (into / "layer").mkdir()
    with tempfile.TemporaryDirectory() as debs:
        fetch(Path(debs), _PACKAGES.read_text().split())
        _rootfs("system", into / "layer", debs, ours=True)
    write_layer(into / "layer", into / "layer.tar")


@functools.cache
def layers() -> tuple[Path, Path]:
    """The directories with the layers below ours: Debian's Python, and our dependencies.  Each has its
    archive beside it.  Raises UnavailableError.
    """
    base = made(f"image-system-{digest([_ROOTFS, _PACKAGES])}", system)

    def dependencies(into: Path) -> None:
        (into / "layer").mkdir()
        _rootfs("dependencies", into / "layer", base / "layer", _REQUIREMENTS)
        write_layer(into / "layer", into / "layer.tar")

    above = made(f"image-dependencies-{digest([_ROOTFS, _PACKAGES, _REQUIREMENTS])}", dependencies)
    return base / "layer", above / "layer"


def application(into: Path, sources: Path) -> Path:
    """The directory with the layer that is ourselves, made below `into` in a few seconds.  Raises BuildError
    where these sources make none.
    """
    base, _ = layers()
    layer, wheels = into / "application", into / "wheels"
    layer.mkdir(parents=True)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels, cwd=sources, ours=True)
    (wheel,) = wheels.iterdir()
    _rootfs("application", layer, base, wheel, ours=True)
    return layer


def write_rootcellar(archive: Path, sources: Path = ROOT, lowest: Path | None = None) -> Path:
    """Write our image, as deploy/Containerfile describes it; `lowest` is a layer of Debian's Python to use
    instead of the cache's.  Raises UnavailableError, and BuildError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch) / "application.tar"
        write_layer(application(Path(scratch), sources), top)
        base, dependencies = (layer.with_suffix(".tar") for layer in layers())
        below = (lowest or base, dependencies)
        image = Image(NAME, [*below, top], ["/usr/local/bin/rootcellar"], "65532:65532", {"LANG": "C.UTF-8"})
        return image.write(archive)


def write_etcd(archive: Path, line: str = "3.6", name: str = ETCD_NAME) -> Path:
    """Write an image with etcd and its tools, and nothing else: like the one that etcd publishes."""
    programs = binaries.etcd(line)
    with tempfile.TemporaryDirectory() as scratch:
        into = Path(scratch) / "root/usr/local/bin"
        into.mkdir(parents=True)
        for program in filter(None, (programs.etcd, programs.etcdctl, programs.etcdutl)):
            shutil.copy(program, into)
        return _of_directory(into.parents[2], name, "/usr/local/bin/etcd", archive)


def write_program(program: Path, name: str, archive: Path) -> Path:
    """Write an image of one static program."""
    with tempfile.TemporaryDirectory() as scratch:
        into = Path(scratch) / "root"
        into.mkdir()
        shutil.copy(program, into)
        return _of_directory(into, name, f"/{program.name}", archive)


def _of_directory(directory: Path, name: str, entrypoint: str, archive: Path) -> Path:
    layer = directory.parent / "layer.tar"
    write_layer(directory, layer)
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    return Image(name, [layer], [entrypoint], environment=path).write(archive)


def _rootfs(*arguments: str | Path, ours: bool = False) -> None:
    run(sys.executable, _ROOTFS, *arguments, ours=ours)


if __name__ == "__main__":
    print(write_rootcellar(Path(sys.argv[1])))
