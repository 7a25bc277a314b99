"""Controllers at work on a real API server: what is reconciled when, and what is not."""

from __future__ import annotations

import base64
import io
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rootcellar.errors import ConfigError, KubeError, KubeExistsError, KubeUnavailableError
from rootcellar.kube import controller, filters
from rootcellar.kube.controller import Controller, Watch
from rootcellar.kube.election import Terms
from rootcellar.kube.http import HealthServer
from rootcellar.kube.kinds import Key, untyped
from rootcellar.kube.manager import Manager
from rootcellar.kube.queue import WorkQueue
from rootcellar.kube.reflector import Reflector
from rootcellar.kube.steps import Done, Requeue, Step, reached, run
from rootcellar.logs import make_log
from tests.kube.things import ANY_THINGS, CONFIG_MAPS, THINGS, body, define, wait_until

WEBHOOKS = untyped(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", is_namespaced=False
)


@pytest.fixture(scope="module")
def things(control_plane):
    define(control_plane.client)


class Scene:
    """A manager with one controller of things, in a thread; its reconcile is the test's."""

    def __init__(
        self,
        control_plane,
        namespace,
        reconcile,
        *,
        workers=2,
        counts=filters.everything,
        more=(),
        terms=None,
    ):
        self.written = io.StringIO()
        self.manager = Manager(
            control_plane.access,
            identity="scene",
            log=make_log("json", self.written),
            terms=terms,
            listen=("127.0.0.1", 0),
        )
        self.client = self.manager.client
        self.reflector = Reflector(self.client, THINGS, namespace=namespace)
        self.cache = self.reflector.cache
        self.writer = self.manager.writer("scene.rootcellar.dev")
        self.seen = Counter()
        self._reconcile = reconcile
        watches = [Watch(self.reflector, counts), *more]
        self.controller = Controller("things", self._turn, watches, workers=workers)
        self.manager.add(self.controller)
        self.thread = threading.Thread(target=self.manager.run)

    def _turn(self, key):
        self.seen[key.name] += 1
        return self._reconcile(self, key)

    @property
    def logged(self):
        return [json.loads(line) for line in self.written.getvalue().splitlines()]

    def fulfil(self, key):
        """Have the status say the size that the spec wants."""
        thing = self.cache.get(key)
        if thing is None:
            return False
        return self.writer.status(THINGS, key, {"size": thing.spec.size}, self.cache.raw(key))


@contextmanager
def working(scene):
    scene.thread.start()
    try:
        yield scene
    finally:
        scene.manager.stop()
        scene.thread.join(60)
        assert not scene.thread.is_alive()


def fulfil(scene, key):
    scene.fulfil(key)
    return Done()


def settled(scene, namespace):
    """All changes so far have had their turn: one that was made after them has had its own."""
    name = f"marker-{sum(scene.seen.values())}"
    scene.client.create(THINGS, body(name), namespace)
    wait_until(lambda: scene.seen[name] and scene.cache.get(Key(namespace, name)).status.size == 0, name)
    wait_until(lambda: not scene.controller.queue.depth and not scene.controller.queue.running, "rest")


def stored(scene, name, namespace):
    return scene.client.get(THINGS, name, namespace)


def test_a_thing_gets_what_it_asks_for_and_then_nothing_is_written(things, control_plane, namespace):
    admin = control_plane.client
    admin.create(THINGS, body("before", 1), namespace)
    with working(Scene(control_plane, namespace, fulfil, workers=1)) as scene:
        admin.create(THINGS, body("after", 2), namespace)
        for name, size in (("before", 1), ("after", 2)):
            wait_until(lambda name=name, size=size: stored(scene, name, namespace).status.size == size, name)
        admin.merge_patch(THINGS, "after", {"spec": {"size": 3}}, namespace)
        wait_until(lambda: stored(scene, "after", namespace).status.size == 3, "the change")
        settled(scene, namespace)
        versions = [stored(scene, name, namespace).metadata.resource_version for name in ("before", "after")]
        settled(scene, namespace)
        assert versions == [
            stored(scene, name, namespace).metadata.resource_version for name in ("before", "after")
        ]


def test_a_change_that_does_not_count_leads_to_no_reconcile_and_no_write(things, control_plane, namespace):
    admin = control_plane.client
    scene = Scene(control_plane, namespace, fulfil, workers=1, counts=filters.generation_changed)
    with working(scene):
        admin.create(THINGS, body("still", 1), namespace)
        wait_until(lambda: stored(scene, "still", namespace).status.size == 1, "the status")
        settled(scene, namespace)
        seen = scene.seen["still"]
        patch = {"metadata": {"labels": {"colour": "red"}, "annotations": {"note": "x"}}}
        version = admin.merge_patch(THINGS, "still", patch, namespace).metadata.resource_version
        settled(scene, namespace)
        assert scene.seen["still"] == seen
        assert stored(scene, "still", namespace).metadata.resource_version == version


def test_what_changes_while_it_is_reconciled_is_reconciled_again_after_it(things, control_plane, namespace):
    admin = control_plane.client
    begun, go_on, together, most = threading.Event(), threading.Event(), Counter(), Counter()

    def slow(scene, key):
        together[key.name] += 1
        most[key.name] = max(most[key.name], together[key.name])
        size = scene.cache.get(key).spec.size
        begun.set()
        try:
            assert go_on.wait(60)
            scene.writer.status(THINGS, key, {"size": size}, scene.cache.raw(key))
        finally:
            together[key.name] -= 1
        return Done()

    with working(Scene(control_plane, namespace, slow, workers=3)) as scene:
        admin.create(THINGS, body("moving", 1), namespace)
        assert begun.wait(60)
        admin.merge_patch(THINGS, "moving", {"spec": {"size": 2}}, namespace)
        key = Key(namespace, "moving")
        wait_until(
            lambda: scene.cache.get(key).spec.size == 2 and scene.controller.queue.depth == 1, "it is noted"
        )
        assert scene.seen["moving"] == 1
        go_on.set()
        wait_until(lambda: stored(scene, "moving", namespace).status.size == 2, "the second turn")
        assert most["moving"] == 1


def test_what_hangs_and_what_fails_lets_all_others_have_their_turn(things, control_plane, namespace):
    admin = control_plane.client
    release = threading.Event()

    def reconcile(scene, key):
        if key.name == "hangs":
            release.wait(60)
        if key.name == "fails":
            raise KubeUnavailableError("no")
        return fulfil(scene, key)

    with working(Scene(control_plane, namespace, reconcile, workers=2)) as scene:
        try:
            for name in ("hangs", "fails", *(f"good-{number}" for number in range(10))):
                admin.create(THINGS, body(name, 7), namespace)
            for number in range(10):
                wait_until(
                    lambda number=number: stored(scene, f"good-{number}", namespace).status.size == 7, "good"
                )
            assert scene.seen["hangs"] == 1
            wait_until(lambda: scene.seen["fails"] > 3, "it is tried again")
            failures = [each for each in scene.logged if each["event"] == "reconcile-failed"]
            pauses = [each["retry_in"] for each in failures if each["key"] == f"{namespace}/fails"]
            assert len(pauses) >= 3
            assert pauses == sorted(pauses)
        finally:
            release.set()


def test_a_conflict_is_decided_anew_on_what_is_there_then(things, control_plane, namespace):
    admin = control_plane.client
    decided = []

    def annotate(scene, key):
        thing, raw = scene.cache.get(key), scene.cache.raw(key)
        size = str(thing.spec.size)
        if not decided:  # somebody is faster, once
            admin.merge_patch(THINGS, key.name, {"spec": {"size": 2}}, namespace)
        decided.append(size)
        scene.writer.annotate(THINGS, key, {"size": size}, raw)
        return Done()

    with working(Scene(control_plane, namespace, annotate)) as scene:
        admin.create(THINGS, body("contended", 1), namespace)
        annotated = {"size": "2"}
        wait_until(
            lambda: stored(scene, "contended", namespace).metadata.annotations == annotated, "it is right"
        )
        assert decided[0] == "1"
        failures = [each for each in scene.logged if each["event"] == "reconcile-failed"]
        assert {each["code"] for each in failures} == {"kube-conflict"}
        assert failures[0]["retry_in"] < 0.01


def test_an_error_says_at_which_step_and_what_to_do(things, control_plane, namespace):
    at = []

    def no_region(scene):
        at.append(reached())
        raise ConfigError("there is no region", hint="set spec.region")

    steps = [
        Step("look", lambda scene: None),
        Step("choose", no_region),
        Step("never", lambda scene: at.append("never")),
    ]
    scene = Scene(control_plane, namespace, lambda scene, key: run(steps, scene))
    # So slowly that the next try, 5 s later, is not due while the counts of the first are looked at.
    scene.controller.queue = WorkQueue(clock=lambda: time.monotonic() / 1000)
    control_plane.client.create(THINGS, body("wrong"), namespace)
    with working(scene):
        wait_until(lambda: any(each["event"] == "reconciled" for each in scene.logged), "its turn is over")
        line = next(each for each in scene.logged if each["event"] == "reconcile-failed")
        assert line["step"] == "choose"
        assert line["key"] == f"{namespace}/wrong"
        assert (line["error"], line["hint"]) == ("there is no region", "set spec.region")
        assert 3 < line["retry_in"] <= 5
        assert at == ["choose"]
        text = probe(scene, "/metrics")[1]
        assert (
            'rootcellar_controller_step_seconds_count{controller="things",result="done",step="look"} 1.0'
            in text
        )
        assert 'step="choose"' in text
        assert 'step="never"' not in text
        assert (
            'rootcellar_controller_reconcile_seconds_count{controller="things",result="config"} 1.0' in text
        )
        assert 'rootcellar_controller_retries_total{controller="things"} 1.0' in text
        assert 'rootcellar_controller_queue_depth{controller="things"} 0.0' in text
        assert 'rootcellar_controller_queue_oldest_seconds{controller="things"} 0.0' in text
        assert 'rootcellar_watch_silence_seconds{kind="controlledthings"}' in text
        assert "rootcellar_controller_leader 1.0" in text
        assert probe(scene, "/readyz") == (200, "ok\n")


def test_a_bug_is_told_with_its_place_and_tried_again(things, control_plane, namespace):
    def buggy(scene, key):
        return fulfil(scene, key) if scene.seen[key.name] > 1 else {}["missing"]

    with working(Scene(control_plane, namespace, buggy)) as scene:
        control_plane.client.create(THINGS, body("odd", 4), namespace)
        wait_until(lambda: stored(scene, "odd", namespace).status.size == 4, "the second try")
        line = next(each for each in scene.logged if each["event"] == "reconcile-failed")
        assert (line["code"], line["error"]) == ("internal", "KeyError: 'missing'")
        assert "in buggy" in line["trace"]


def test_one_that_asks_to_be_looked_at_again_is(things, control_plane, namespace):
    with working(Scene(control_plane, namespace, lambda scene, key: Requeue(0.01))) as scene:
        control_plane.client.create(THINGS, body("clock"), namespace)
        wait_until(lambda: scene.seen["clock"] >= 5, "five turns")
        assert not [each for each in scene.logged if each["event"] == "reconcile-failed"]


def test_an_object_of_another_shape_is_told_and_stops_nobody(things, control_plane, namespace):
    counts = filters.now(THINGS, lambda thing: thing.status.size != thing.spec.size)
    with working(Scene(control_plane, namespace, fulfil, counts=counts)) as scene:
        control_plane.client.create(ANY_THINGS, body("odd", "text"), namespace)
        control_plane.client.create(THINGS, body("good", 5), namespace)
        wait_until(lambda: stored(scene, "good", namespace).status.size == 5, "the good one")
        wait_until(lambda: any(each["event"] == "reconcile-failed" for each in scene.logged), "it is told")
        line = next(each for each in scene.logged if each["event"] == "reconcile-failed")
        assert line["key"] == f"{namespace}/odd"
        assert "not the shape that is expected" in line["error"]


def test_a_change_that_cannot_be_mapped_is_told_and_stops_nobody(things, control_plane, namespace):
    admin = control_plane.client
    admin.create(CONFIG_MAPS, {"metadata": {"name": "there-before"}}, namespace)
    neighbours = Reflector(admin, CONFIG_MAPS, namespace=namespace, fields="metadata.name=there-before")

    def broken(change):
        yield Key(namespace, json.loads(change.new)["data"]["owner"])

    scene = Scene(control_plane, namespace, fulfil, more=[Watch(neighbours, keys=broken)])
    with working(scene):
        admin.create(THINGS, body("good", 5), namespace)
        wait_until(lambda: stored(scene, "good", namespace).status.size == 5, "the good one")
        (line,) = [each for each in scene.logged if each["event"] == "mapper-failed"]
        assert (line["key"], line["error"]) == (f"{namespace}/there-before", "KeyError: 'data'")
        settled(scene, namespace)
        seen = scene.seen["good"]
        admin.merge_patch(CONFIG_MAPS, "there-before", {"data": {"owner": "good"}}, namespace)
        wait_until(lambda: scene.seen["good"] > seen, "it is mapped")


def test_what_belongs_to_a_thing_brings_it_back_when_it_is_touched_or_gone(things, control_plane, namespace):
    admin = control_plane.client
    belongings = Reflector(admin, CONFIG_MAPS, namespace=namespace, labels="of=things")

    def own(scene, key):
        thing, place = scene.cache.get(key), Key(key.namespace, f"of-{key.name}")
        if thing is not None:
            reference = {
                "apiVersion": "tests.rootcellar.dev/v1",
                "kind": "ControlledThing",
                "name": key.name,
                "uid": thing.metadata.uid,
                "controller": True,
            }
            meta = {"name": place.name, "namespace": namespace, "labels": {"of": "things"}}
            wanted = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**meta, "ownerReferences": [reference]},
                "data": {"size": str(thing.spec.size)},
            }
            scene.writer.apply(CONFIG_MAPS, wanted, belongings.cache.raw(place))
        return Done()

    def held():
        return belongings.cache.get(Key(namespace, "of-house")) or {"metadata": {"uid": None}, "data": None}

    def data():
        return held()["data"]

    more = [Watch(belongings, keys=filters.owner("tests.rootcellar.dev", "ControlledThing"))]
    with working(Scene(control_plane, namespace, own, workers=1, more=more)) as scene:
        admin.create(THINGS, body("house", 1), namespace)
        wait_until(lambda: data() == {"size": "1"}, "it is made")
        first = held()["metadata"]["uid"]
        admin.delete(CONFIG_MAPS, "of-house", namespace)
        wait_until(lambda: held()["metadata"]["uid"] not in {first, None}, "it is made again")
        admin.merge_patch(CONFIG_MAPS, "of-house", {"data": {"size": "9", "theirs": "x"}}, namespace)
        wait_until(lambda: data() == {"size": "1", "theirs": "x"}, "ours is put back, theirs stays")
        seen = scene.seen["house"]
        wait_until(lambda: scene.seen["house"] >= seen and not scene.controller.queue.running, "rest")
        version = held()["metadata"]["resourceVersion"]
        admin.merge_patch(THINGS, "house", {"metadata": {"labels": {"a": "b"}}}, namespace)
        wait_until(lambda: scene.seen["house"] > seen, "it is looked at")
        wait_until(lambda: not scene.controller.queue.running, "rest")
        assert admin.get(CONFIG_MAPS, "of-house", namespace)["metadata"]["resourceVersion"] == version


@contextmanager
def beside(control_plane, namespace):
    """A controller that is held with three keys, and one beside it that is to let it go first: the scene,
    who has had a turn, and what lets go.
    """
    turns, go_on = [], threading.Event()

    def held(_scene, key):
        assert go_on.wait(60)
        turns.append("urgent")
        return Done()

    for name in ("one", "two", "three"):
        control_plane.client.create(THINGS, body(name), namespace)
    scene = Scene(control_plane, namespace, held, workers=1)

    def late(_key):
        turns.append("late")
        return Done()

    scene.second = Controller("late", late, [Watch(scene.reflector)], workers=2, first=scene.controller)
    scene.manager.add(scene.second)
    with working(scene):
        wait_until(lambda: scene.second.queue.running == 2, "both workers beside it have a key")
        try:
            yield scene, turns, go_on
        finally:
            go_on.set()


def test_what_can_wait_has_its_turn_when_nothing_urgent_waits(things, control_plane, namespace):
    with beside(control_plane, namespace) as (_, turns, go_on):
        time.sleep(0.5)
        assert turns == []
        go_on.set()
        wait_until(lambda: len(turns) == 6, "all had their turn")
        # Nobody waits any more once the last of them is with its worker.
        assert turns[:2] == ["urgent"] * 2


def test_what_can_wait_is_not_starved(things, control_plane, namespace, monkeypatch):
    monkeypatch.setattr(controller, "_PATIENCE", 0.3)
    with beside(control_plane, namespace) as (_, turns, _go_on):
        wait_until(lambda: turns == ["late"] * 3, "they did not wait for ever")


def test_what_waits_for_others_ends_at_once_and_begins_nothing_more(things, control_plane, namespace):
    with beside(control_plane, namespace) as (scene, turns, go_on):
        scene.manager.stop()
        wait_until(lambda: not scene.second.queue.running, "they have let go of theirs")
        go_on.set()
    assert scene.logged[-1]["drained"] is True
    assert "late" not in turns


def test_an_orderly_end_waits_for_what_is_under_way_and_begins_nothing_more(things, control_plane, namespace):
    begun, go_on = threading.Event(), threading.Event()

    def slow(scene, key):
        begun.set()
        assert go_on.wait(60)
        return fulfil(scene, key)

    with working(Scene(control_plane, namespace, slow, workers=1)) as scene:
        control_plane.client.create(THINGS, body("first", 1), namespace)
        assert begun.wait(60)
        control_plane.client.create(THINGS, body("second", 1), namespace)
        wait_until(lambda: scene.controller.queue.depth == 1, "the second waits")
        scene.manager.stop()
        go_on.set()
    assert stored(scene, "first", namespace).status.size == 1
    assert stored(scene, "second", namespace).status.size is None
    assert scene.logged[-1]["event"] == "stopped"
    assert scene.logged[-1]["drained"] is True


def test_an_api_server_that_is_restarted_under_load_costs_nothing_but_time(own_control_plane):
    admin, namespace = own_control_plane.client, own_control_plane.new_namespace()
    define(admin)
    terms = Terms(namespace, "scene", "scene", lease=180, renew=120)  # a shared machine starts it slowly
    with working(Scene(own_control_plane, namespace, fulfil, workers=4, terms=terms)) as scene:
        for number in range(40):
            admin.create(THINGS, body(f"t{number}", 1), namespace)
        own_control_plane.api_server.kill()
        # The kill came into the middle of it, or those that are touched next find out.
        for name in list(scene.seen):
            scene.controller.queue.add(Key(namespace, name))
        own_control_plane.api_server.start()
        for number in range(40):
            admin.merge_patch(THINGS, f"t{number}", {"spec": {"size": 2}}, namespace)
        for number in range(40):
            wait_until(lambda number=number: stored(scene, f"t{number}", namespace).status.size == 2, "all")
        assert [each["event"] for each in scene.logged].count("leads") == 1


class Refusing(BaseHTTPRequestHandler):
    """An admission webhook that refuses everything until it is told not to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"uid": review["request"]["uid"], "allowed": self.server.allows.is_set()}
        if not answer["allowed"]:
            answer["status"] = {"message": "not before the audit"}
        text = json.dumps({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": answer})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_what):
        pass


@pytest.fixture
def webhook(control_plane, namespace, authority):
    """A webhook over the status of things in this namespace; `set()` has it allow everything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server.certificate, authority.server.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    server.daemon_threads, server.block_on_close = True, False
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.allows = threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    rule = {
        "apiGroups": ["tests.rootcellar.dev"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["controlledthings/status"],
    }
    hook = {
        "name": "audit.tests.rootcellar.dev",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_address[1]}/",
            "caBundle": base64.b64encode(authority.ca.read_bytes()).decode(),
        },
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 10,
    }
    control_plane.client.create(WEBHOOKS, {"metadata": {"name": namespace}, "webhooks": [hook]})
    try:
        yield server.allows
    finally:
        control_plane.client.delete(WEBHOOKS, namespace)
        server.shutdown()
        thread.join()
        server.server_close()


def refuses(client, namespace):
    """The API server hears of a webhook a moment after it was made."""
    with suppress(KubeExistsError):
        client.create(THINGS, body("probe"), namespace)
    try:
        patch = {"status": {"by": str(time.monotonic())}}
        client.merge_patch(THINGS, "probe", patch, namespace, subresource="status")
    except KubeError:
        return True
    return False


def test_a_webhook_that_refuses_is_told_as_such_and_a_change_is_tried_at_once(
    things, control_plane, namespace, webhook
):
    admin = control_plane.client
    wait_until(lambda: refuses(admin, namespace), "the webhook is known")
    with working(Scene(control_plane, namespace, fulfil)) as scene:
        admin.create(THINGS, body("audited", 1), namespace)

        def told():
            key = f"{namespace}/audited"
            return [
                each for each in scene.logged if each["event"] == "reconcile-failed" and each["key"] == key
            ]

        line = wait_until(told, "it is told")[0]
        assert line["code"] == "kube"
        assert "not before the audit" in line["error"]
        assert "runs that webhook" in line["hint"]
        assert line["retry_in"] > 3
        assert stored(scene, "audited", namespace).status.size is None
        webhook.set()
        admin.merge_patch(THINGS, "audited", {"spec": {"size": 2}}, namespace)
        wait_until(lambda: stored(scene, "audited", namespace).status.size == 2, "it goes well")


def test_probes_say_what_is_not_known_yet_and_what_leads(things, control_plane, namespace):
    scene = Scene(control_plane, namespace, fulfil)
    scene.manager.http.start()
    status, text = probe(scene, "/readyz")
    assert (status, text) == (503, "not yet known: controlledthings\n")
    assert probe(scene, "/healthz") == (200, "ok\n")
    assert probe(scene, "/other")[0] == 404
    assert 'rootcellar_watch_objects{kind="controlledthings"} 0.0' in probe(scene, "/metrics")[1]
    with pytest.raises(ConfigError) as caught:
        HealthServer("127.0.0.1", scene.manager.http.port, checks={}, metrics=bytes)
    assert caught.value.hint == "is the port taken?"
    scene.manager.http.stop()


def probe(scene, path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{scene.manager.http.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
