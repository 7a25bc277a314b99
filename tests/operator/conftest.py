"""The operator's controllers in this process, beside a real API server."""

from __future__ import annotations

import base64
import io
import itertools
import json
import threading
from contextlib import contextmanager, suppress

import pytest

from rootcellar.errors import KubeExistsError, KubeNotFoundError
from rootcellar.kube.kinds import untyped
from rootcellar.kube.manager import Manager
from rootcellar.logs import make_log
from rootcellar.operator.contracts import CONTRACTS
from testbed import crds
from tests.kube.things import wait_until

SECRETS = untyped("", "v1", "secrets")
NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def served(control_plane):
    """The API server knows the kinds of the contracts."""
    for contract in CONTRACTS:
        crds.install(control_plane.client, contract.definition)
    return control_plane


class Kubectl:
    """What a person, or gardenlet, does at the API server."""

    def __init__(self, control_plane, kind, namespace):
        self.client, self.kind, self.namespace = control_plane.client, kind, namespace
        self.name_of_kind = {"backupbuckets": "BackupBucket", "backupentries": "BackupEntry"}[kind.plural]
        self.any = untyped(kind.group, kind.version, kind.plural, is_namespaced=False)

    def create(self, name, spec, **annotations):
        body = {
            "apiVersion": f"{self.kind.group}/{self.kind.version}",
            "kind": self.name_of_kind,
            "metadata": {"name": name, "annotations": annotations},
            "spec": spec,
        }
        return self.client.create(self.any, body)

    def get(self, name):
        return self.client.get(self.any, name)

    def annotate(self, name, **annotations):
        self.client.merge_patch(self.any, name, {"metadata": {"annotations": annotations}})

    def ask(self, name, operation):
        self.annotate(name, **{"gardener.cloud/operation": operation})

    def change(self, name, **spec):
        self.client.merge_patch(self.any, name, {"spec": spec})

    def delete(self, name):
        self.client.delete(self.any, name)

    def is_gone(self, name):
        try:
            self.get(name)
        except KubeNotFoundError:
            return True
        return False

    def stands(self, name, type_, state):
        """Wait until its last operation is this one, and how it ended; the object."""

        def reached():
            last = self.get(name).get("status", {}).get("lastOperation", {})
            return (last.get("type"), last.get("state")) == (type_, state)

        wait_until(reached, f"{name} {type_} {state}, not {self._last(name)}")
        return self.get(name)

    def all_stand(self, names, spec, **annotations):
        """Make several at once and wait until each is there."""
        for name in names:
            self.create(name, spec, **annotations)
        for name in names:
            self.stands(name, "Create", "Succeeded")

    def all_go(self, names):
        """Delete several at once and wait until each is gone."""
        for name in names:
            self.delete(name)
        for name in names:
            wait_until(lambda name=name: self.is_gone(name), f"{name} is gone")

    def _last(self, name):
        return self.get(name).get("status", {}).get("lastOperation")

    def secret(self, name, data, namespace=None):
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}
        namespace = namespace or self.namespace
        try:
            return self.client.create(SECRETS, body, namespace)
        except KubeExistsError:
            there = self.client.get(SECRETS, name, namespace).get("data", {})
            patch = {"data": {**dict.fromkeys(there), **encoded}}
            return self.client.merge_patch(SECRETS, name, patch, namespace)

    def read_secret(self, name, namespace=None):
        return self.client.get(SECRETS, name, namespace or self.namespace)

    def new_namespace(self, name, **annotations):
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "annotations": annotations},
        }
        with suppress(KubeExistsError):  # a document's own, which several tests apply
            self.client.create(NAMESPACES, body)


def data_of(secret):
    return {name: base64.b64decode(value).decode() for name, value in secret.get("data", {}).items()}


def keys_of(bucket, endpoint=None):
    """A bucket's account as the secret of an S3."""
    return {
        "accessKeyID": bucket.access_key,
        "secretAccessKey": bucket.secret_key,
        "endpoint": endpoint or bucket.endpoint,
        "s3ForcePathStyle": "true",
    }


class Operator:
    """A manager in a thread."""

    def __init__(self, control_plane, add):
        self.written = io.StringIO()
        log = make_log("json", self.written)
        self.manager = Manager(control_plane.access, identity=f"operator-{next(_numbers)}", log=log)
        self.controller = add(self.manager, log)
        self._thread = threading.Thread(target=self.manager.run)

    @property
    def logged(self):
        return [json.loads(line) for line in self.written.getvalue().splitlines()]

    def rest(self):
        """Until there is nothing to do."""
        queue = self.controller.queue
        wait_until(lambda: not queue.depth and not queue.running, "rest")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.manager.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def working(control_plane, add):
    with Operator(control_plane, add) as operator:
        yield operator
