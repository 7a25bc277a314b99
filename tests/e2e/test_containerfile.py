"""The Containerfile, and the way to the same files without an engine that test clusters take."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile

import pytest

from testbed import image_builder, image_ours
from testbed.cache import ROOT


def files(archive):
    """Of all layers of a docker-archive: path to mode and content, or to where a link leads."""
    found = {}
    with tarfile.open(archive) as whole:
        (manifest,) = json.load(whole.extractfile("manifest.json"))
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(whole.extractfile(name).read())) as layer:
                for member in layer:
                    path = member.name.strip("./")
                    if member.isdir():
                        found[path] = ("directory", oct(member.mode & 0o7777))
                    elif member.issym():
                        found[path] = ("link", member.linkname)
                    else:
                        content = layer.extractfile(member).read()
                        found[path] = (oct(member.mode & 0o7777), hashlib.sha256(content).hexdigest())
    return found


def configured(archive):
    with tarfile.open(archive) as whole:
        (manifest,) = json.load(whole.extractfile("manifest.json"))
        said = json.load(whole.extractfile(manifest["Config"]))["config"]
    environment = {each for each in said["Env"] if not each.startswith("PATH=")}
    return said["Entrypoint"], said["User"], said["WorkingDir"], environment


@pytest.mark.long
@pytest.mark.servers
def test_the_containerfile_gives_the_image_that_clusters_test(tmp_path):
    sources = tmp_path / "sources"  # which stay as they are, while somebody edits the others
    for part in ("src", "requirements", "deploy/image"):
        shutil.copytree(ROOT / part, sources / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in (".containerignore", "deploy/Containerfile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / part, sources / part)

    image = image_ours.write_rootcellar(tmp_path / "image.tar", sources)
    built = image_builder.build(tmp_path / "built.tar", "rootcellar:built", sources)

    assert configured(built) == configured(image)
    ours, theirs = files(image), files(built)
    assert {path for path in ours.keys() ^ theirs.keys() if path} == set()
    assert {path: (ours[path], theirs[path]) for path in ours if path and ours[path] != theirs[path]} == {}
