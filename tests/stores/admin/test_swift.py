"""Containers of a real Swift."""

import pytest

from rootcellar.stores.admin.swift import SwiftAdmin
from rootcellar.stores.admin.values import Aspect
from rootcellar.stores.swift.options import SwiftOptions
from testbed.server import unique
from testbed.swift import Container
from tests.stores.admin.contract import WISH, Contract, Place
from tests.stores.places import QUICK, SMALL_PART
from tests.stores.swift_place import Login, swift_store


class TestSwift(Contract):
    @pytest.fixture
    def container(self, swift):
        return Container(unique("managed"), swift.auth)

    @pytest.fixture
    def place(self, container):
        return Place(
            lambda: SwiftAdmin(
                SwiftOptions(container.name, auth=container.auth), Login(container), backoff=QUICK
            ),
            lambda prefix: swift_store(container, prefix),
            container.names,
        )

    def test_whoever_may_read_without_a_token_may_no_longer(self, made, container):
        readers = {"X-Container-Read": ".r:*,.rlistings,testbed:friend"}
        container.ask("POST", "", headers=readers)
        done = made.harden(WISH, made.look()).done
        assert [change.aspect for change in done] == [Aspect.PUBLIC_ACCESS]
        assert made.look().public_access_blocked is True
        container.ask("POST", "", headers={"X-Container-Read": ".r:*"})
        made.harden(WISH, made.look())
        assert made.look().public_access_blocked is True

    def test_segments_go_with_their_objects_and_without(self, place, made, container):
        place.store("shoot--a").put("v2/large", [b"x" * SMALL_PART, b"y"])
        container.ask("PUT", "shoot--a/.segments/of/a/dead/writer", b"half")
        assert any(".segments/" in name for name in container.names())
        assert made.delete_objects("shoot--a").gone
        assert container.names() == []
