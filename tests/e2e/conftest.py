"""A cluster with a node, our image and etcd's in it, for the tests that run pods."""

from __future__ import annotations

import pytest

from testbed import image_ours
from testbed.cluster import cluster as chosen_cluster


def pytest_collection_modifyitems(items):
    for item in items:
        if {"cluster", "image"}.isdisjoint(item.fixturenames):
            continue
        item.add_marker("servers")
        if not item.get_closest_marker("long"):
            item.add_marker("e2e")


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """Our image as a docker-archive."""
    return image_ours.write_rootcellar(tmp_path_factory.mktemp("image") / "rootcellar.tar")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, image):
    """A cluster that runs pods; `new_namespace()` keeps one test's objects from another's."""
    directory = tmp_path_factory.mktemp("cluster")
    with chosen_cluster(directory) as cluster:
        cluster.start()
        cluster.load(image)
        cluster.load(image_ours.write_etcd(directory / "etcd.tar"))
        yield cluster
