"""deploy/Containerfile, built by Debian's buildah, without installing it and without a registry.

It is unpacked into the cache and seen below /usr by one process with mounts of its own, as a node's programs
are; what it writes into /etc and /var whatever one tells it, it writes beside them.  The base image is a
minimal Debian, made by debootstrap.  Needs root, and two minutes where nothing is cached.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from testbed import debian
from testbed.cache import ROOT, UnavailableError, made, run
from testbed.image import Image, write_layer

_PACKAGES = (
    *("buildah", "golang-github-containers-common", "golang-github-containers-image", "debootstrap", "wget"),
    *("libassuan0", "libdevmapper1.02.1", "libgpg-error0", "libgpgme11", "libsemanage2", "libsubid4"),
)
_IN_BASE = ("ca-certificates", "python3-venv")
_KEY = hashlib.sha256(repr((_PACKAGES, _IN_BASE, "updated")).encode()).hexdigest()[:12]
_BASE = "localhost/testbed/debian:1"
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
# What the first argument says is laid over /usr; changes of /etc and /var go below the second.
_APART = """
set -e
mount -t overlay -o "lowerdir=$1:/usr" overlay /usr
for place in etc var; do
  mkdir -p "$2/$place/upper" "$2/$place/work"
  mount -t overlay -o "lowerdir=/$place,upperdir=$2/$place/upper,workdir=$2/$place/work" overlay "/$place"
done
shift 2
exec "$@"
"""


def build(archive: Path, name: str, sources: Path = ROOT) -> Path:
    """Have the image of the Containerfile in `sources`, as a docker-archive.

    Raises UnavailableError where buildah cannot be had or run here, BuildError where the Containerfile fails.
    """
    if os.geteuid() != 0:
        raise UnavailableError("buildah needs root")
    with tempfile.TemporaryDirectory(dir=_base().parent) as scratch:
        policy = Path(scratch) / "policy.json"
        policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        stored = ("--storage-driver=vfs", f"--root={scratch}/storage", f"--runroot={scratch}/run")
        trusting = f"--signature-policy={policy}"

        def buildah(*arguments: str | Path, ours: bool = True) -> None:
            _apart(Path(scratch), "/usr/bin/buildah", *stored, *arguments, ours=ours)

        buildah("info", ours=False)  # a kernel without its mounts is no fault of the Containerfile's
        buildah("pull", trusting, f"docker-archive:{_base()}")
        options = ("--isolation=chroot", "--pull-never", "--timestamp=0", f"--build-arg=BASE={_BASE}")
        file = sources / "deploy" / "Containerfile"
        buildah("bud", trusting, *options, f"--file={file}", f"--tag=localhost/{name}", sources)
        buildah("push", trusting, f"localhost/{name}", f"docker-archive:{archive}:{name}")
    return archive


def _apart(scratch: Path, *command: str | Path, ours: bool = False) -> None:
    apart = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _APART, "sh")
    run(*apart, _programs(), scratch, *command, ours=ours)


@functools.cache
def _programs() -> Path:
    def unpack(into: Path) -> None:
        debian.unpack(into, _PACKAGES)
        for name in ("bin", "sbin", "lib"):
            if (into / name).is_dir():
                shutil.copytree(into / name, into / "usr" / name, symlinks=True, dirs_exist_ok=True)
                shutil.rmtree(into / name)

    return made(f"builder-{_KEY}", unpack) / "usr"


@functools.cache
def _base() -> Path:
    def bootstrap(into: Path) -> None:
        root, layer = into / "root", into / "layer.tar"
        options = ("--variant=minbase", f"--include={','.join(_IN_BASE)}")
        _apart(into / "scratch", "/usr/sbin/debootstrap", *options, "bookworm", root)
        # Debian's sources as they are here: with its updates, as published base images have them.
        for sources in (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources")):
            if sources.exists():
                shutil.copy(sources, root / sources.relative_to("/"))
        # Up to date now, so that the build does not install certificates anew over ours.
        updated = "apt-get update && apt-get --yes upgrade && rm -r /var/lib/apt/lists/*"
        _apart(into / "scratch", "chroot", root, "sh", "-c", updated)
        # A network with an authority of its own is trusted in the build as it is here.
        shutil.copy(_AUTHORITIES, root / _AUTHORITIES.relative_to("/"))
        for unpacked in (root / "var/cache/apt/archives").glob("*.deb"):
            unpacked.unlink()
        write_layer(root, layer)
        Image(_BASE, [layer], ["/bin/sh"]).write(into / "base.tar")
        shutil.rmtree(root)
        shutil.rmtree(into / "scratch")
        layer.unlink()

    return made(f"builder-base-{_KEY}", bootstrap) / "base.tar"
