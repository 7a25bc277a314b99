"""Events as the API server keeps them."""

from __future__ import annotations

import io
import json
import re
from contextlib import contextmanager

import pytest

from rootcellar.kube import events as module
from rootcellar.kube.access import Access
from rootcellar.kube.client import KubeClient
from rootcellar.kube.events import BURST, REFILL_SECONDS, REFRESH_SECONDS, SERIES_SECONDS, Events, Regarding
from rootcellar.kube.kinds import Meta, untyped
from rootcellar.kube.metrics import Metrics
from rootcellar.logs import make_log
from tests.kube.things import wait_until

EVENTS = untyped("events.k8s.io", "v1", "events")


class Post:
    """Events of one controller, with a clock that is set by hand."""

    def __init__(self, client, namespace):
        self.now, self.leads, self.written = 1000.0, True, io.StringIO()
        self.metrics, self.client, self.namespace = Metrics(), client, namespace
        self.events = Events(
            client,
            "rootcellar.dev/things",
            "this-process",
            may_write=lambda: self.leads,
            log=make_log("json", self.written),
            metrics=self.metrics,
            clock=lambda: self.now,
        )
        self.said = 0

    def about(self, name="it", uid="u1"):
        meta = Meta(name=name, namespace=self.namespace, uid=uid, resource_version="7")
        return Regarding("tests.rootcellar.dev/v1", "Thing", meta)

    def tell(self, note="it works", *, regarding=None, **more):
        """And wait until it was seen to."""
        self.said += 1
        self.events.tell(regarding or self.about(), "Made", "Reconcile", note, **more)
        wait_until(lambda: sum(self.counts().values()) >= self.said, "it is seen to")

    def counts(self):
        text = self.metrics.exposition().decode()
        found = dict(re.findall(r'rootcellar_controller_events_total\{result="(\w+)"\} ([\d.]+)', text))
        return {name: int(float(count)) for name, count in found.items()}

    def stored(self):
        return list(self.client.list(EVENTS, self.namespace))


@contextmanager
def posting(client, namespace):
    post = Post(client, namespace)
    post.events.start()
    try:
        yield post
    finally:
        post.events.stop(30)


@pytest.fixture
def post(control_plane, namespace):
    with posting(control_plane.client, namespace) as post:
        yield post


def test_an_event_says_what_happened_to_what_and_who_says_so(post):
    post.tell("the bucket is made")
    post.tell("the bucket is refused", warning=True)
    found = {each["note"]: each for each in post.stored()}
    made = found["the bucket is made"]
    assert (made["type"], made["reason"], made["action"]) == ("Normal", "Made", "Reconcile")
    assert (made["reportingController"], made["reportingInstance"]) == (
        "rootcellar.dev/things",
        "this-process",
    )
    assert made["regarding"] == {
        "apiVersion": "tests.rootcellar.dev/v1",
        "kind": "Thing",
        "namespace": post.namespace,
        "name": "it",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert found["the bucket is refused"]["type"] == "Warning"


def test_what_is_told_again_and_again_is_one_event_with_a_count(post):
    for _ in range(5):
        post.tell()
    assert post.counts() == {"sent": 1, "repeated": 1, "held": 3}
    (event,) = post.stored()
    assert event["series"]["count"] == 2
    post.now += REFRESH_SECONDS
    post.tell()
    (event,) = post.stored()
    assert event["series"]["count"] == 6
    post.now += SERIES_SECONDS
    post.tell()
    assert len(post.stored()) == 2


def test_a_series_whose_event_has_expired_begins_anew(post):
    post.tell()
    (event,) = post.stored()
    post.client.delete(EVENTS, event["metadata"]["name"], post.namespace)
    post.tell()
    (again,) = post.stored()
    assert again["metadata"]["name"] != event["metadata"]["name"]


def test_an_object_that_tells_too_much_is_held_back_and_no_other(post):
    for number in range(BURST + 3):
        post.tell(f"step {number}")
    assert post.counts() == {"sent": BURST, "held": 3}
    post.tell("another", regarding=post.about("other", "u2"))
    assert post.counts()["sent"] == BURST + 1
    post.now += REFILL_SECONDS
    post.tell("one more")
    assert post.counts()["sent"] == BURST + 2


def test_a_note_that_is_too_long_is_cut_between_characters(post):
    post.tell("ä" * 2000)
    (event,) = post.stored()
    assert event["note"].endswith("ä…")
    assert 1020 < len(event["note"].encode()) <= 1024


def test_what_is_in_no_namespace_has_its_events_in_the_default_one(post):
    meta = Meta(name=f"bucket-{post.namespace}", uid="u3")
    post.tell(regarding=Regarding("tests.rootcellar.dev/v1", "Thing", meta))
    chosen = f"regarding.name=bucket-{post.namespace}"
    found = list(post.client.list(EVENTS, "default", fields=chosen))
    assert [each["note"] for each in found] == ["it works"]


def test_nothing_is_told_by_who_does_not_lead(post):
    post.leads = False
    post.tell()
    assert post.counts() == {"failed": 1}
    assert post.stored() == []


def test_an_api_server_that_is_away_is_told_once_in_the_log_and_stops_nobody():
    with KubeClient(Access("http://127.0.0.1:1"), timeout=1) as client, posting(client, "space") as post:
        for number in range(3):
            post.tell(f"step {number}")
        assert post.counts() == {"failed": 3}
        (line,) = [json.loads(each) for each in post.written.getvalue().splitlines()]
        assert (line["event"], line["code"], line["note"]) == ("event-failed", "kube-unavailable", "step 0")


def test_no_more_wait_than_memory_is_for(monkeypatch):
    monkeypatch.setattr(module, "_WAITING", 2)
    with KubeClient(Access("http://127.0.0.1:1"), timeout=1) as client:
        post = Post(client, "space")
        for number in range(5):
            post.events.tell(post.about(), "Made", "Reconcile", f"step {number}")
        assert post.counts() == {"failed": 3}
        post.events.start()
        post.events.stop(30)
        assert post.counts() == {"failed": 5}
