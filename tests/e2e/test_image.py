"""Our image, as pods run it that may do next to nothing."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import rootcellar
from tests.e2e.pods import outcome, pod

PYTHON = "/usr/bin/python3.11"
# What a store, a sealed prefix, the agent and the operator ask for at some time, and what is pruned around.
IMPORTED = (
    "botocore.session, cryptography, grpc, isal, msgspec, numpy, ssl, starlette, urllib3, uvicorn; "
    "import yaml, zoneinfo; zoneinfo.ZoneInfo('Europe/Berlin'); "
    "botocore.session.get_session().create_client('sts', region_name='eu-west-1'); "
    "assert ssl.create_default_context().cert_store_stats()['x509_ca'] > 100"
)


def test_help_is_printed_in_a_pod_that_may_do_nothing(cluster):
    namespace = cluster.new_namespace()
    good, printed = outcome(cluster, namespace, pod("help", args=["--help"]))
    assert good, printed
    assert "rootcellar" in printed


def test_the_version_in_the_image_is_that_of_these_sources(cluster):
    good, printed = outcome(cluster, cluster.new_namespace(), pod("version", args=["--version"]))
    assert good, printed
    assert rootcellar.__version__ in printed


def test_what_only_some_commands_need_is_in_the_image(cluster):
    body = pod("imports", command=[PYTHON, "-I", "-c", f"import {IMPORTED}"])
    good, printed = outcome(cluster, cluster.new_namespace(), body)
    assert good, printed


def layers(archive):
    with tarfile.open(archive) as whole:
        (manifest,) = json.load(whole.extractfile("manifest.json"))
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(whole.extractfile(name).read())) as layer:
                yield layer.getmembers()


def test_the_image_has_no_shell_compiler_or_package_manager(image):
    paths = [Path(member.name) for layer in layers(image) for member in layer if not member.isdir()]
    programs = {path.name for path in paths if path.parent.name in {"bin", "sbin"}}
    assert programs == {"python3", "python3.11", "rootcellar"}
    assert {path.parts[0] for path in paths if path.name == "__main__.py" and "pip" in path.parts} == set()


def test_the_image_stays_small(image):
    """192 MB without compression when this was written: a third Debian's and Python's, two dependencies'."""
    assert sum(member.size for layer in layers(image) for member in layer) < 200_000_000


def test_nothing_in_the_image_is_writable_by_who_runs_it_or_gains_rights(image):
    files = [member for layer in layers(image) for member in layer if not member.issym()]
    assert [member.name for member in files if member.mode & 0o022 and member.name != "tmp"] == []
    assert [member.name for member in files if member.mode & 0o6000] == []
