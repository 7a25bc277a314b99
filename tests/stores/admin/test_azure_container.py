"""Containers of Azurite, through the blob service alone."""

import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.stores import Retention
from rootcellar.stores.admin.azure.container import ContainerAdmin
from rootcellar.stores.admin.values import Aspect
from rootcellar.stores.azure.client import Client
from rootcellar.stores.azure.options import AzureOptions
from testbed.azurite import Container
from testbed.server import unique
from tests.stores.admin.contract import WISH, Contract, Place
from tests.stores.clouds import Values, azure_store
from tests.stores.fake_clouds import FakeAzureLocks
from tests.stores.places import QUICK


def reached(container):
    options = AzureOptions(container.account, container.name, endpoint=container.endpoint)
    return options, Values({"storageAccount": container.account, "storageKey": container.key})


def container_admin(container, **more):
    return ContainerAdmin(*reached(container), backoff=QUICK, **more)


def behind(container):
    """For requests behind the back of what is tested."""
    return Client(*reached(container))


class TestAzurite(Contract):
    @pytest.fixture
    def container(self, azurite):
        return Container(unique("managed"), azurite.endpoint, None)

    @pytest.fixture
    def place(self, container):
        return Place(
            lambda: container_admin(container),
            lambda prefix: azure_store(container, prefix),
            lambda: [info.key for info in azure_store(container).list()],
        )

    def test_a_container_that_anybody_may_read_is_closed(self, place, made, container):
        place.store("").put("shoot--a/x", [b"secret"])
        opened = {"x-ms-blob-public-access": "blob"}
        behind(container).send(
            "PUT", "", "test", query={"restype": "container", "comp": "acl"}, headers=opened
        )
        address = f"{container.endpoint}/{container.name}/shoot--a/x"
        assert urllib.request.urlopen(address, timeout=30).read() == b"secret"
        done = made.harden(WISH, made.look()).done
        assert [change.aspect for change in done] == [Aspect.PUBLIC_ACCESS]
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address, timeout=30)


def test_versions_go_and_what_is_locked_is_told_with_its_time():
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    with FakeAzureLocks() as fake:
        reached = Container("bucket", f"{fake.endpoint}/account", None, account="account", key="a2V5")
        store = azure_store(reached, "shoot--a")
        for _ in range(2):
            store.put("free", [b"x"])
        kept = store.put("kept", [b"x"]).version
        store.set_retention("kept", Retention(until), version=kept)
        held = store.put("held", [b"x"]).version
        store.set_retention("held", Retention(legal_hold=True), version=held)
        azure_store(reached, "shoot--a--b").put("x", [b"x"])
        done = container_admin(reached).delete_objects("shoot--a")
        assert (done.complete, done.gone, done.locked) == (True, False, 2)
        assert (done.earliest, done.latest, done.deleted) == (until, until, 2)
        assert [key for key, versions in fake.blobs.items() if versions] == [
            "shoot--a/kept",
            "shoot--a/held",
            "shoot--a--b/x",
        ]
