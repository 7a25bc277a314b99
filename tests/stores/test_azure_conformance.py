import random

import pytest

from tests.stores import conformance, places
from tests.stores.breaking import OnABadLine
from tests.stores.clouds import BadLine, azure_place, azure_store
from tests.stores.conformance import MANY, Conformance
from tests.stores.proxy import CutDown, CutUp, Proxy, Reset

FAULTS = [Reset(), CutUp(0), CutUp(200), CutDown(0), CutDown(20), CutDown(400), CutDown(100_000)]


class TestAzureStoreOnAzurite(Conformance):
    doomed = 120  # they go one by one

    @pytest.fixture
    def decorate(self):
        return places.bare

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, azurite):
        return azurite.new_container()

    @pytest.fixture
    def place(self, shared, decorate):
        return azure_place(shared, decorate)

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, azurite):
        container = azurite.new_container()
        conformance.put_all(azure_store(container), MANY)
        return container

    @pytest.fixture
    def many(self, filled, decorate):
        return decorate(azure_store(filled))


@pytest.mark.long
class TestAzureStoreOnABadLine(OnABadLine, TestAzureStoreOnAzurite):
    """One request of sixteen breaks: before it arrives, on the way, or on the way back."""

    @pytest.fixture
    def decorate(self):
        return places.all_of_them

    @pytest.fixture(scope="class")
    @classmethod
    def line(cls, azurite):
        with Proxy(azurite.port) as proxy:
            proxy.always(BadLine(random.Random(16), FAULTS))
            yield proxy

    @pytest.fixture
    def through(self, azurite, line):
        return azurite.endpoint.replace(f":{azurite.port}", f":{line.port}")

    @pytest.fixture
    def place(self, shared, through, decorate):
        return azure_place(shared, decorate, endpoint=through)

    @pytest.fixture
    def many(self, filled, through, decorate):
        return decorate(azure_store(filled, endpoint=through))
