"""The Containerfile, and the way to the same files without an engine that test clusters take."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile

import pytest

from testbed import debian, image_builder, image_ours
from testbed.cache import ROOT, BuildError


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


@pytest.fixture
def sources(tmp_path):
    """What both ways build from, which stays as it is while somebody edits the rest."""
    directory = tmp_path / "sources"
    for part in ("src", "requirements", "deploy/image"):
        shutil.copytree(ROOT / part, directory / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in (".dockerignore", "deploy/Containerfile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / part, directory / part)
    return directory


@pytest.mark.long
@pytest.mark.servers
def test_the_containerfile_gives_the_image_that_clusters_test(tmp_path, sources):
    # Debian may have mended a package since the cache was filled: both take those of this moment.
    lowest = tmp_path / "lowest"
    lowest.mkdir()
    image_ours.system(lowest, debian.fetch_newest)
    image = image_ours.write_rootcellar(tmp_path / "image.tar", sources, lowest / "layer.tar")
    built = image_builder.build(tmp_path / "built.tar", "rootcellar:built", sources)

    assert configured(built) == configured(image)
    ours, theirs = files(image), files(built)
    assert {path for path in ours.keys() ^ theirs.keys() if path} == set()
    assert {path: (ours[path], theirs[path]) for path in ours if path and ours[path] != theirs[path]} == {}


@pytest.mark.long
@pytest.mark.servers
def test_a_containerfile_that_fails_is_not_taken_for_a_lack_of_buildah(tmp_path, sources):
    file = sources / "deploy/Containerfile"
    file.write_text("ARG BASE\nFROM ${BASE}\nRUN echo this cannot go well && exit 7\n")
    with pytest.raises(BuildError, match=r"this cannot go well(?s:.*)exit status 7"):
        image_builder.build(tmp_path / "built.tar", "rootcellar:built", sources)
    assert not (tmp_path / "built.tar").exists()


@pytest.mark.long
@pytest.mark.servers
def test_sources_that_make_no_package_are_not_taken_for_a_lack_of_a_tool(tmp_path, sources):
    (sources / "src/rootcellar/errors.py").write_text("this is no Python\n")
    with pytest.raises(BuildError, match=r"compileall(?s:.*)exit status 1"):
        image_ours.write_rootcellar(tmp_path / "image.tar", sources)
