import random

import pytest

from rootcellar.stores.backoff import Backoff
from tests.stores import conformance, places
from tests.stores.breaking import OnABadLine
from tests.stores.conformance import MANY, Conformance
from tests.stores.proxy import CutDown, CutUp, Proxy, Reset

FAULTS = [Reset(), CutUp(0), CutUp(200), CutDown(0), CutDown(20), CutDown(400), CutDown(100_000)]
DECORATIONS = [places.bare, places.retrying, places.limited, places.metered, places.all_of_them]


class TestFileStore(Conformance):
    @pytest.fixture(params=DECORATIONS, ids=lambda decorate: decorate.__name__)
    def decorate(self, request):
        return request.param

    @pytest.fixture
    def place(self, tmp_path, decorate):
        return places.file_place(tmp_path, decorate)

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, tmp_path_factory):
        directory = tmp_path_factory.mktemp("many")
        conformance.put_all(places.FileStore(directory), MANY)
        return directory

    @pytest.fixture
    def many(self, filled, decorate):
        return places.file_place(filled, decorate).open("")


class OnS3(Conformance):
    """Bare, and through all decorators at once: one by one they pass over the file store."""

    conditional = True

    @pytest.fixture(params=[places.bare, places.all_of_them], ids=lambda decorate: decorate.__name__)
    def decorate(self, request):
        return request.param

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, server):
        return server.new_bucket()

    @pytest.fixture
    def place(self, shared, decorate):
        return places.s3_place(shared, decorate, conditional=self.conditional)

    @pytest.fixture
    def many(self, filled, decorate):
        return decorate(places.s3_store(filled))


class TestS3StoreOnSeaweedFS(OnS3):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, seaweed):
        return seaweed

    @pytest.fixture
    def filled(self, seaweed_with_many):
        return seaweed_with_many


class TestS3StoreOnABadLine(OnABadLine, OnS3):
    """One request of sixteen breaks: before it arrives, on the way, or on the way back."""

    @pytest.fixture(params=[places.retrying])
    def decorate(self, request):
        return request.param

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, seaweed):
        return seaweed

    @pytest.fixture(scope="class")
    @classmethod
    def line(cls, server):
        chance = random.Random(16)

        def choose(request):
            if chance.random() > 1 / 16:
                return None
            # A begun upload whose answer is lost stays for abort_leftovers: it would only blur what is
            # tested.
            ways = [Reset(), CutUp(200)] if b"?uploads" in request else FAULTS
            return chance.choice(ways)

        with Proxy(server.port) as proxy:
            proxy.always(choose)
            yield proxy

    @pytest.fixture
    def place(self, shared, line, decorate):
        return places.s3_place(shared, decorate, conditional=True, endpoint=line.endpoint)

    @pytest.fixture
    def many(self, seaweed_with_many, line, decorate):
        return decorate(places.s3_store(seaweed_with_many, endpoint=line.endpoint))


class TestS3StoreOnRclone(OnS3):
    """The S3 without conditional writes: everything else holds, and of conditions what the contract says."""

    conditional = False

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, rclone_s3):
        return rclone_s3

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, server):
        bucket = server.new_bucket()
        conformance.put_all(places.s3_store(bucket), MANY)
        return bucket

    @pytest.fixture
    def place(self, shared, decorate):
        # Where several write one key at once it fails some, and takes away what another has written.
        patient = Backoff(attempts=10, deadline=60, base=0.05, throttled_base=0.05, cap=2)
        return places.s3_place(shared, decorate, conditional=self.conditional, backoff=patient)
