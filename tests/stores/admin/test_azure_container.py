"""Containers of Azurite, through the blob service alone."""

import itertools
import urllib.error
import urllib.request

import pytest

from rootcellar.stores.admin.azure.container import ContainerAdmin
from rootcellar.stores.admin.values import Aspect
from rootcellar.stores.azure.client import Client
from rootcellar.stores.azure.options import AzureOptions
from testbed.azurite import Container
from tests.stores.admin.contract import WISH, Contract, Place
from tests.stores.clouds import Values, azure_store
from tests.stores.places import QUICK

_names = itertools.count(1)


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
        return Container(f"managed-{next(_names)}", azurite.endpoint, None)

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
