"""Images for containerd, made without a container engine: directories in, a docker-archive out.

Equal directories give equal layers: names in order, one owner, one time.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def write_layer(directory: Path, layer: Path) -> None:
    """Write what is in a directory as a layer, everything owned by root."""

    def neutral(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(directory.rglob("*")):
            tar.add(path, str(path.relative_to(directory)), recursive=False, filter=neutral)


@dataclass(frozen=True)
class Image:
    """Layers, and how a container of them is started."""

    name: str
    """As pods say it: rootcellar:0.1.0."""
    layers: Sequence[Path]
    entrypoint: Sequence[str]
    user: str = "0:0"
    environment: Mapping[str, str] = field(default_factory=dict)

    def write(self, archive: Path) -> Path:
        """Write it for `ctr images import`, `podman load` or `docker load`; its path."""
        configuration = {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": list(self.entrypoint),
                "Env": [f"{name}={value}" for name, value in self.environment.items()],
                "User": self.user,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_sha256(layer)}" for layer in self.layers]},
        }
        names = [f"{number}.tar" for number, _ in enumerate(self.layers)]
        manifest = [{"Config": "config.json", "RepoTags": [self.name], "Layers": names}]
        with tarfile.open(archive, "w") as tar:
            _add(tar, "config.json", configuration)
            for name, layer in zip(names, self.layers, strict=True):
                tar.add(layer, name)
            _add(tar, "manifest.json", manifest)
        return archive


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, value: object) -> None:
    data = json.dumps(value, sort_keys=True).encode()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
