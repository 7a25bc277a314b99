import random
from dataclasses import replace

import pytest

from testbed.gcs_fake_uploads import FakeUploads
from tests.stores import conformance, places
from tests.stores.breaking import OnABadLine
from tests.stores.clouds import BadLine, gcs_place, gcs_store
from tests.stores.conformance import MANY, Conformance
from tests.stores.proxy import CutDown, CutUp, Proxy, Reset

FAULTS = [Reset(), CutUp(0), CutUp(200), CutDown(0), CutDown(20), CutDown(400), CutDown(100_000)]


class OnGcs(Conformance):
    doomed = 120  # they go one by one

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, server):
        return server.new_bucket()

    @pytest.fixture
    def place(self, server, shared, decorate):
        return gcs_place(server, shared, decorate)

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, server):
        bucket = server.new_bucket()
        conformance.put_all(gcs_store(bucket), MANY)
        return bucket

    @pytest.fixture
    def many(self, filled, decorate):
        return decorate(gcs_store(filled))


class TestGcsStoreOnFakeGcsServer(OnGcs):
    """By itself it knows resumable uploads as far as no line breaks, and forgets their condition."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, fake_gcs):
        return fake_gcs

    @pytest.fixture
    def decorate(self):
        return places.bare

    @pytest.fixture
    def place(self, shared, decorate):
        place = gcs_place(None, shared, decorate)
        return replace(place, conditional_parts=False, closed_for_parts=False, kept=list)


class TestGcsStoreWithFakeUploads(OnGcs):
    """The same server behind a fake of what resumable uploads are at Google."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, fake_gcs):
        with FakeUploads(fake_gcs) as front:
            yield front

    @pytest.fixture
    def decorate(self):
        return places.all_of_them


@pytest.mark.long
class TestGcsStoreOnABadLine(OnABadLine, TestGcsStoreWithFakeUploads):
    """One request of sixteen breaks: before it arrives, on the way, or on the way back."""

    @pytest.fixture
    def decorate(self):
        return places.all_of_them

    @pytest.fixture(scope="class")
    @classmethod
    def line(cls, server):
        with Proxy(server.port) as proxy:
            proxy.always(BadLine(random.Random(16), FAULTS))
            yield proxy

    @pytest.fixture
    def place(self, server, shared, line, decorate):
        return gcs_place(server, shared, decorate, endpoint=line.endpoint)

    @pytest.fixture
    def many(self, filled, line, decorate):
        return decorate(gcs_store(filled, endpoint=line.endpoint))
