"""Stores on Azurite and fake-gcs-server, and places on them."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field

from rootcellar.stores.azure.options import AzureOptions
from rootcellar.stores.azure.store import AzureStore
from rootcellar.stores.gcs.options import GcsOptions
from rootcellar.stores.gcs.store import GcsStore
from rootcellar.stores.wire import Wire
from tests.stores.places import QUICK, SMALL_PART, Place

_roots = itertools.count(1)


@dataclass
class Values:
    """Credentials that a test may change."""

    values: dict = field(default_factory=dict)
    changes: int = 0

    def load(self):
        return dict(self.values)

    def stamp(self):
        return self.changes

    def rotate(self, **values):
        self.values = values
        self.changes += 1


class Rerouted(Wire):
    """Sends what is meant for a cloud's own addresses to fakes on loopback."""

    def __init__(self, routes, **settings):
        super().__init__(**settings)
        self.routes = routes

    def _ask(self, request):
        for real, fake in self.routes.items():
            if request.url.startswith(real):
                url = fake + request.url.removeprefix(real)
                return super()._ask(
                    type(request)(
                        request.method, url, request.operation, request.where, request.headers, request.body
                    )
                )
        return super()._ask(request)


def azure_store(container, prefix="", *, backoff=QUICK, keys=None, wire=None, **options):
    settings = {
        "endpoint": container.endpoint,
        "ca_file": str(container.ca) if container.ca else None,
        "part_size": SMALL_PART,
        **options,
    }
    keys = keys or Values({"storageAccount": container.account, "storageKey": container.key})
    found = AzureOptions(container.account, container.name, prefix, **settings)
    return AzureStore(found, keys, backoff=backoff, wire=wire)


def gcs_store(bucket, prefix="", *, backoff=QUICK, **options):
    settings = {"endpoint": bucket.endpoint, "part_size": SMALL_PART, **options}
    return GcsStore(GcsOptions(bucket.name, prefix, **settings), Values(), backoff=backoff)


def azure_place(container, decorate, *, endpoint=None):
    root = f"place-{next(_roots)}/"

    def opened(prefix):
        through = endpoint or container.endpoint
        return decorate(azure_store(container, f"{root}{prefix}", endpoint=through))

    return Place(opened, answers_arrive=endpoint is None)


def gcs_place(server, bucket, decorate, *, endpoint=None):
    root = f"place-{next(_roots)}/"

    def opened(prefix):
        return decorate(gcs_store(bucket, f"{root}{prefix}", endpoint=endpoint or bucket.endpoint))

    def unfinished():
        if endpoint is not None:
            return []  # nobody can end a session whose address was lost on the line; it lasts a week
        names = [json.loads(session.metadata)["name"] for session in server.unfinished()]
        return [name for name in names if name.startswith(root)]

    return Place(opened, answers_arrive=endpoint is None, kept=unfinished)


class BadLine:
    """For `Proxy.always`: one request of sixteen breaks, in a way that is drawn."""

    def __init__(self, chance, faults):
        self._chance = chance
        self._faults = faults

    def __call__(self, request):
        return self._chance.choice(self._faults) if self._chance.random() <= 1 / 16 else None
