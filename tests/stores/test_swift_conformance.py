import random
from datetime import timedelta

import pytest

from rootcellar.stores import Create
from tests.stores import conformance, places
from tests.stores.breaking import OnABadLine
from tests.stores.conformance import MANY, Conformance, content
from tests.stores.places import SMALL_PART
from tests.stores.proxy import CutDown, CutUp, Proxy, Reset
from tests.stores.swift_place import swift_place, swift_store

FAULTS = [
    Reset(),
    CutUp(0),
    CutUp(200),
    CutDown(0),
    CutDown(20),
    CutDown(200),
    CutDown(400),
    CutDown(100_000),
]


class OnSwift(Conformance):
    """Whatever the protocol promises without conditional writes, which Swift does not have."""

    doomed = 120  # they go one by one

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, swift):
        return swift.new_container()

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, swift):
        container = swift.new_container()
        conformance.put_all(swift_store(container), MANY)
        return container

    @pytest.mark.parametrize("size", [5, SMALL_PART + 5])
    def test_of_many_creators_one_wins(self, place, store, size):
        """Several may believe it, here as on a real Swift; the segments of those replaced are found later."""
        won = self._race(3, lambda n: store.put("key", [content(size, n)], condition=Create()))
        assert b"".join(store.get("key")) in [content(size, winner) for winner in won]
        store.abort_leftovers(timedelta(0))
        assert place.kept() == []
        assert b"".join(store.get("key")) in [content(size, winner) for winner in won]


class TestSwiftStore(OnSwift):
    @pytest.fixture(
        params=[places.bare, pytest.param(places.all_of_them, marks=pytest.mark.long)],
        ids=lambda decorate: decorate.__name__,
    )
    def decorate(self, request):
        return request.param

    @pytest.fixture
    def place(self, shared, decorate):
        return swift_place(shared, decorate)

    @pytest.fixture
    def many(self, filled, decorate):
        return decorate(swift_store(filled))


@pytest.mark.long
class TestSwiftStoreOnABadLine(OnABadLine, OnSwift):
    """One request of sixteen breaks: before it arrives, on the way, or on the way back."""

    @pytest.fixture(scope="class")
    @classmethod
    def line(cls, swift):
        chance = random.Random(16)

        def choose(request):
            if chance.random() > 1 / 16:
                return None
            # A manifest whose answer is lost leaves the segments, should the put fail for good: it would only
            # blur what is tested.
            ways = [Reset(), CutUp(200)] if b"multipart-manifest=put" in request else FAULTS
            return chance.choice(ways)

        with Proxy(swift.port) as proxy:
            proxy.always(choose)
            yield proxy

    @pytest.fixture
    def place(self, shared, line):
        return swift_place(shared, places.retrying, auth=f"{line.endpoint}/auth/v1.0")

    @pytest.fixture
    def many(self, filled, line):
        return places.retrying(swift_store(filled, auth=f"{line.endpoint}/auth/v1.0"))
