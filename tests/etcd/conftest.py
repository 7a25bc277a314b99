"""Live etcds for these tests.  A test that stops, fills or locks a member starts its own."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess, find_etcd
from testbed import binaries

FAST = ["--unsafe-no-fsync"]  # nothing here cuts the power


def pytest_collection_modifyitems(items):
    for item in items:
        if "newest" in item.fixturenames and item.path.parent.name == "etcd":
            item.add_marker("servers")


@pytest.fixture(scope="session")
def newest():
    """For what does not depend on the version."""
    return find_etcd(binaries.etcd("3.7").etcd)


@pytest.fixture(scope="module")
def shared(binary, tmp_path_factory):
    """A client of a member that the tests of a module share; they keep to keys of their own."""
    directory = tmp_path_factory.mktemp("etcd") / "data"
    with EtcdProcess(binary, directory, flags=FAST) as member, EtcdClient([member.client_url]) as client:
        member.wait_ready(client)
        yield client


@pytest.fixture
def alone(binary, tmp_path):
    """A running member of this test only."""
    # The second because etcd refuses to change members before all have been connected for 5 s.
    flags = [*FAST, "--strict-reconfig-check=false"]
    with EtcdProcess(binary, tmp_path / "data", flags=flags) as member:
        with EtcdClient([member.client_url]) as client:
            member.wait_ready(client)
        yield member


@pytest.fixture
def client(alone):
    with EtcdClient([alone.client_url]) as client:
        yield client


@pytest.fixture
def three(binary, tmp_path):
    """Three running members of one cluster."""
    members = [EtcdProcess(binary, tmp_path / name, name=name, flags=FAST) for name in ("a", "b", "c")]
    cluster = ",".join(f"{member.name}={member.peer_url}" for member in members)
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.close)
            member.start(initial_cluster=cluster)
        with EtcdClient([member.client_url for member in members]) as client:
            for member in members:
                member.wait_ready(client)
        yield members


@pytest.fixture
def leader():
    """Finds the member that leads now; between two leaders none does."""

    def find(members, client):
        while True:
            for member in members:
                status = client.member(member.client_url).status()
                if status.leader == status.header.member_id:
                    return member

    return find
