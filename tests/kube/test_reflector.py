"""A cache follows a real API server, whatever happens to the line."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter

import pytest

from rootcellar.errors import KubeDeniedError, KubeError, KubeGoneError, KubeUnavailableError
from rootcellar.kube.client import KubeClient
from rootcellar.kube.discovery import in_cluster
from rootcellar.kube.kinds import LEASES, Key, heads, untyped
from rootcellar.kube.reflector import Pace, Reflector
from testbed.kubernetes import NAMESPACES
from tests.agent.agents import wait_until
from tests.kube.line import LIST, NEXT_PAGE, WATCH, Line, answer, meanwhile
from tests.stores.proxy import Answer, CutDown, Freeze, Reset

QUICK = Pace(first=0.01, longest=0.1, page=3)
CONFIG_MAPS = untyped("", "v1", "configmaps")


@pytest.fixture
def admin(control_plane):
    return control_plane.client


@pytest.fixture
def line(control_plane):
    with Line(control_plane) as line:
        yield line


class Mirror:
    """What somebody knows who has only heard the changes."""

    def __init__(self):
        self.objects = {}
        self.changes = []
        self.wrong = []

    def __call__(self, change):
        if self.objects.get(change.key) != change.old or change.old == change.new:
            self.wrong.append(change)  # what a listener raises, only the log has
        self.changes.append(change)
        if change.new is None:
            self.objects.pop(change.key, None)
        else:
            self.objects[change.key] = change.new


@pytest.fixture
def follow(namespace):
    """Starts reflectors of the leases in the test's namespace, each with a mirror at its side."""
    started = []

    def start(client, kind=LEASES, *, pace=QUICK, synced=True, **more):
        reflector, mirror = Reflector(client, kind, namespace=namespace, pace=pace, **more), Mirror()
        reflector.listen(mirror)
        reflector.start()
        started.append(reflector)
        if synced:
            assert reflector.wait_synced(60), reflector.fault
        return reflector, mirror

    yield start
    for reflector in started:
        reflector.stop()


def lease(name, holder="nobody", **meta):
    return {"metadata": {"name": name, **meta}, "spec": {"holderIdentity": holder}}


def versions(cache):
    held = cache.keys()
    return {key: cache.header(key).resource_version for key in held}


def fresh(client, kind, namespace):
    listed = client.list(kind, namespace)
    return {each.metadata.key: each.metadata.resource_version for each in listed}


def agrees(reflector, mirror, admin, namespace, kind=LEASES):
    """Wait until the cache, and who has only heard, know what a list says: no more and no less."""
    wanted = fresh(admin, kind, namespace)
    wait_until(lambda: versions(reflector.cache) == wanted, f"{wanted} in the cache; {reflector.fault}")
    told = {key: reflector.cache.raw(key) for key in wanted}
    wait_until(lambda: mirror.objects == told, "all told")
    assert not mirror.wrong
    return wanted


def names(keys):
    return sorted(key.name for key in tuple(keys))  # of a mirror's objects, in one go: it goes on hearing


def test_what_is_there_and_what_happens_is_in_the_cache_and_told(admin, namespace, follow):
    for number in range(7):
        admin.create(LEASES, lease(f"n{number}"), namespace)
    reflector, mirror = follow(admin, indexes={"holder": lambda each: [each.spec.holder_identity]})
    assert len(reflector.cache) == len(mirror.changes) == 7
    admin.merge_patch(LEASES, "n3", {"spec": {"holderIdentity": "somebody"}}, namespace)
    admin.delete(LEASES, "n4", namespace)
    admin.create(LEASES, lease("n7"), namespace)
    agrees(reflector, mirror, admin, namespace)
    assert names(reflector.cache.keys()) == ["n0", "n1", "n2", "n3", "n5", "n6", "n7"]
    assert reflector.cache.get(Key(namespace, "n3")) == admin.get(LEASES, "n3", namespace)
    assert reflector.cache.by("holder", "somebody") == (Key(namespace, "n3"),)
    assert (reflector.tally.lists, reflector.tally.watches, reflector.tally.failures) == (1, 1, 0)
    assert reflector.tally.events == 3
    assert reflector.is_current()


def test_only_what_is_selected_is_followed(admin, namespace, follow):
    admin.create(LEASES, lease("in", labels={"mine": "yes"}), namespace)
    admin.create(LEASES, lease("out"), namespace)
    reflector, mirror = follow(admin, labels="mine=yes")
    assert names(reflector.cache.keys()) == ["in"]
    admin.merge_patch(LEASES, "in", {"metadata": {"labels": {"mine": None}}}, namespace)
    admin.merge_patch(LEASES, "out", {"metadata": {"labels": {"mine": "yes"}}}, namespace)
    wait_until(lambda: names(mirror.objects) == ["out"], "what left the selection is no more")
    assert names(reflector.cache.keys()) == ["out"]


@pytest.mark.parametrize("after", [0, 20, 150, 400])
def test_a_list_that_breaks_in_the_middle_of_a_page_is_begun_again(line, admin, namespace, follow, after):
    for number in range(7):
        admin.create(LEASES, lease(f"n{number}"), namespace)
    line.proxy.on(NEXT_PAGE, CutDown(after))
    reflector, mirror = follow(line.client)
    agrees(reflector, mirror, admin, namespace)
    assert line.proxy.fired == 1
    assert (reflector.tally.lists, reflector.tally.failures) == (1, 1)


def test_what_happens_between_list_and_watch_is_seen(line, admin, namespace, follow):
    admin.create(LEASES, lease("goes"), namespace)
    admin.create(LEASES, lease("made-anew"), namespace)

    def act():
        admin.delete(LEASES, "goes", namespace)
        admin.delete(LEASES, "made-anew", namespace)
        admin.create(LEASES, lease("made-anew"), namespace)
        admin.create(LEASES, lease("comes"), namespace)
        acted.set()

    acted = threading.Event()
    line.proxy.on(WATCH, meanwhile(act, Answer(b"")))
    reflector, mirror = follow(line.client)
    wait_until(acted.is_set, "all that happens")
    agrees(reflector, mirror, admin, namespace)
    assert names(reflector.cache.keys()) == ["comes", "made-anew"]
    assert reflector.tally.lists == 1


def test_a_watch_broken_at_any_byte_loses_nothing(line, admin, namespace, follow):
    cuts = itertools.chain(range(0, 1500, 60), itertools.repeat(5000))
    broken = []

    def cut(request):
        if WATCH in request and not stop.is_set():
            broken.append(next(cuts))
            return CutDown(broken[-1])
        return None

    stop = threading.Event()
    line.proxy.always(cut)
    reflector, mirror = follow(line.client)
    for number in itertools.count():
        if len(broken) > 30:
            break
        admin.create(LEASES, lease(f"n{number}"), namespace)
        if number % 3 == 2:
            admin.delete(LEASES, f"n{number - 1}", namespace)
    stop.set()
    agrees(reflector, mirror, admin, namespace)
    assert reflector.tally.lists == 1, "broken lines alone are no reason to list"


def test_a_line_that_falls_silent_is_given_up_and_what_it_swallowed_is_seen(line, admin, namespace, follow):
    admin.create(LEASES, lease("goes"), namespace)
    line.proxy.on(WATCH, Freeze(500))  # in the first event
    reflector, mirror = follow(line.client, pace=Pace(window=1, grace=0.2, first=0.01))
    wait_until(lambda: reflector.tally.watches, "watched")
    admin.delete(LEASES, "goes", namespace)
    admin.create(LEASES, lease("comes"), namespace)
    agrees(reflector, mirror, admin, namespace)
    assert line.proxy.fired == 1
    assert reflector.tally.watches >= 2
    assert reflector.tally.lists == 1


@pytest.mark.parametrize(
    ("told", "error", "lists"),
    [
        pytest.param(answer(b"<html>sign in</html>\n"), KubeError, 1, id="a page of a proxy"),
        pytest.param(answer(b"<html>sign in</html>"), KubeError, 1, id="one without a line's end"),
        pytest.param(answer(b'{"type":"ADDED","object":{}}\n'), KubeError, 1, id="no object"),
        pytest.param(answer(b'{"type":"HELLO","object":{}}\n'), KubeError, 1, id="no type"),
        pytest.param(answer(b'{"type":"ADD'), KubeError, 1, id="half a line"),
        pytest.param(answer(b"x" * (33 << 20)), KubeError, 1, id="a line without end"),
        pytest.param(answer(b""), KubeUnavailableError, 1, id="not a word"),
        pytest.param(answer(b"{}", 503), KubeUnavailableError, 1, id="unavailable"),
        pytest.param(answer(b"{}", 429), KubeUnavailableError, 1, id="too many requests"),
        pytest.param(answer(b"{}", 403), KubeDeniedError, 1, id="forbidden"),
        pytest.param(answer(b"{}", 410), KubeGoneError, 2, id="gone"),
        pytest.param(
            answer(b'{"type":"ERROR","object":{"code":410,"message":"too old"}}\n'),
            KubeGoneError,
            2,
            id="gone, told by an event",
        ),
        pytest.param(
            answer(b'{"type":"ERROR","object":{"code":500,"message":"oh"}}\n'),
            KubeGoneError,
            2,
            id="an event of another error",
        ),
        pytest.param(answer(b'{"type":"ERROR","object":7}\n'), KubeGoneError, 2, id="one that says nothing"),
        pytest.param(Reset(), KubeUnavailableError, 1, id="a reset"),
    ],
)
def test_what_is_no_watch_is_told_and_made_good_for(line, admin, namespace, follow, told, error, lists):
    admin.create(LEASES, lease("goes"), namespace)
    line.proxy.on(WATCH, told)
    faults = []

    class Noting(Reflector):
        def _failed(self, error):
            super()._failed(error)
            faults.append(error)

    reflector, mirror = Noting(line.client, LEASES, namespace=namespace, pace=QUICK), Mirror()
    reflector.listen(mirror)
    reflector.start()
    try:
        wait_until(lambda: faults, "the fault is told")
        admin.delete(LEASES, "goes", namespace)
        admin.create(LEASES, lease("comes"), namespace)
        agrees(reflector, mirror, admin, namespace)
        wait_until(lambda: reflector.fault is None, "no fault lasts")
        assert [type(each) for each in faults] == [error]
        assert reflector.tally.lists == lists
    finally:
        reflector.stop()


def test_pages_that_are_forgotten_between_two_requests_lead_to_a_list_in_one(line, admin, namespace, follow):
    for number in range(7):
        admin.create(LEASES, lease(f"n{number}"), namespace)
    line.proxy.on(NEXT_PAGE, answer(b'{"message":"the continue parameter is too old"}', 410))
    reflector, mirror = follow(line.client)
    agrees(reflector, mirror, admin, namespace)
    assert line.proxy.seen.count(LIST) == 2  # the page before, the one that was refused; then no limit
    assert (reflector.tally.lists, reflector.tally.failures) == (1, 1)


def test_a_watch_that_always_ends_at_once_becomes_no_hot_loop(line, follow):
    asked = []

    def note():
        asked.append(time.monotonic())

    line.proxy.on(WATCH, meanwhile(note, answer(b"")), times=6)
    follow(line.client, pace=Pace(first=0.05, longest=0.4))
    wait_until(lambda: len(asked) == 6, "six watches")
    gaps = [later - sooner for sooner, later in itertools.pairwise(asked)]
    for gap, shortest in zip(gaps, (0.05, 0.1, 0.2, 0.2, 0.2), strict=True):
        assert gap >= shortest


def test_a_bookmark_carries_a_quiet_kind_past_what_happens_elsewhere(admin, namespace, follow):
    reflector, mirror = follow(admin, pace=Pace(window=3, first=0.01))
    wait_until(lambda: reflector.tally.watches, "watched")
    elsewhere = admin.create(CONFIG_MAPS, {"metadata": {"name": "loud"}}, namespace)
    until = int(elsewhere["metadata"]["resourceVersion"])
    assert not list(admin.list(LEASES, namespace))  # has the API server's own cache look where etcd is
    wait_until(lambda: int(reflector.resource_version) >= until, "a bookmark")
    assert reflector.tally.bookmarks
    assert (reflector.tally.lists, reflector.tally.events, reflector.tally.failures) == (1, 0, 0)
    assert not mirror.changes


def test_silence_where_nothing_happens_is_no_fault_and_no_reason_to_list(admin, namespace, follow):
    reflector, mirror = follow(admin, pace=Pace(window=1, first=0.01))
    wait_until(lambda: reflector.tally.watches >= 3, "two watches have ended")
    admin.create(LEASES, lease("late"), namespace)
    agrees(reflector, mirror, admin, namespace)
    assert (reflector.tally.lists, reflector.tally.failures) == (1, 0)


def test_an_etcd_that_was_set_back_to_before_our_version_is_found_out(line, admin, namespace, follow):
    ahead = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9999999999"}}}\n'
    line.proxy.on(WATCH, answer(ahead))
    reflector, mirror = follow(line.client, pace=Pace(window=1, grace=0.2, first=0.01))
    wait_until(lambda: reflector.tally.bookmarks, "as if from a history that is undone")
    admin.create(LEASES, lease("unheard-of"), namespace)
    agrees(reflector, mirror, admin, namespace)
    wait_until(lambda: reflector.tally.lists == 2, "one list more, to its end")


def test_an_event_from_before_what_was_seen_leads_to_a_list(line, admin, namespace, follow):
    back = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}\n'
    line.proxy.on(WATCH, answer(back))
    reflector, mirror = follow(line.client)
    wait_until(lambda: reflector.tally.lists == 2, "listed anew")
    admin.create(LEASES, lease("after"), namespace)
    agrees(reflector, mirror, admin, namespace)


def test_without_the_right_to_watch_the_fault_says_so_until_it_is_granted(
    control_plane, account, admin, follow
):
    namespace = account.namespace
    with KubeClient(in_cluster(control_plane.environ(), mounted=account.directory)) as pod:
        reflector, mirror = follow(pod)
        wait_until(lambda: isinstance(reflector.fault, KubeDeniedError), "denied")
        assert 'cannot watch resource "leases"' in reflector.fault.message
        rule = {"apiGroups": ["*"], "resources": ["leases"], "verbs": ["list", "watch"]}
        account.set_rules([rule])
        admin.create(LEASES, lease("seen"), namespace)
        agrees(reflector, mirror, admin, namespace)
        reflector.stop()


def test_a_listener_that_fails_takes_nothing_from_the_others(admin, namespace, caplog):
    reflector, mirror = Reflector(admin, LEASES, namespace=namespace, pace=QUICK), Mirror()

    def fail(change):
        raise ZeroDivisionError

    reflector.listen(fail)
    reflector.listen(mirror)
    reflector.start()
    try:
        with pytest.raises(RuntimeError, match="missed changes"):
            reflector.listen(fail)
        assert reflector.wait_synced(60)
        admin.create(LEASES, lease("one"), namespace)
        agrees(reflector, mirror, admin, namespace)
        assert "a listener failed" in caplog.text
    finally:
        reflector.stop()


def test_an_error_of_our_own_is_told_and_followed_by_a_list(admin, namespace, follow, caplog):
    wrong = [True]

    def holder(each):
        if wrong:
            raise ZeroDivisionError
        return [each.spec.holder_identity]

    admin.create(LEASES, lease("one"), namespace)
    reflector, mirror = follow(admin, synced=False, indexes={"holder": holder})
    wait_until(lambda: isinstance(reflector.fault, ZeroDivisionError), "told")
    assert not reflector.is_current()
    wrong.clear()
    agrees(reflector, mirror, admin, namespace)
    assert reflector.cache.by("holder", "nobody") == (Key(namespace, "one"),)
    assert "an error of our own" in caplog.text


@pytest.mark.parametrize("fault", [None, Freeze(500), Reset()], ids=repr)
def test_stopping_ends_a_watch_at_once_however_silent_it_is(line, follow, fault):
    if fault:
        line.proxy.on(WATCH, fault, times=1000)
    reflector, _ = follow(line.client)
    wait_until(lambda: reflector.tally.watches or line.proxy.fired, "watched, or tried")
    reflector.stop(wait=30)
    assert not reflector.is_alive()


def test_stopping_does_not_wait_for_a_server_that_takes_a_request_and_keeps_silent(line, follow):
    line.proxy.on(WATCH, Freeze(0))
    reflector, _ = follow(line.client)
    wait_until(lambda: line.proxy.fired, "asked")
    reflector.stop(wait=0.1)
    assert reflector.is_alive()
    assert reflector.tally.watches == 0


def test_one_that_never_started_can_be_stopped(admin):
    reflector = Reflector(admin, LEASES)
    reflector.stop()
    assert not reflector.wait_synced(0)
    assert not reflector.is_current()


def test_after_a_restart_of_the_api_server_what_etcd_has_forgotten_is_seen_all_the_same(
    own_control_plane, namespace, follow
):
    api_server, etcd, admin = own_control_plane.api_server, own_control_plane.etcd, own_control_plane.client
    admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    for number in range(5):
        admin.create(LEASES, lease(f"n{number}"), namespace)
    reflector, mirror = follow(admin)
    before = reflector.resource_version
    api_server.kill()
    try:
        etcd.etcdctl("del", f"/registry/leases/{namespace}/n2")
        revision = etcd.etcdctl_json("get", "x")["header"]["revision"]
        etcd.etcdctl("compaction", str(revision))
        wait_until(lambda: isinstance(reflector.fault, KubeUnavailableError), "nobody answers")
    finally:
        api_server.start()
    admin.create(LEASES, lease("n9"), namespace)
    agrees(reflector, mirror, admin, namespace)
    assert names(reflector.cache.keys()) == ["n0", "n1", "n3", "n4", "n9"]
    wait_until(lambda: reflector.tally.lists >= 2, "the real 410")
    for kind in (LEASES, heads(LEASES)):
        watch = admin.watch(kind, namespace, resource_version=before, seconds=5, idle=10)
        with watch, pytest.raises(KubeGoneError) as caught:
            list(watch)
        assert "too old resource version" in caught.value.message


def test_after_any_faults_the_cache_is_what_a_list_says(line, admin, namespace, follow):
    chance = random.Random(5)
    healed, tried = threading.Event(), Counter()

    def fault(request):
        if healed.is_set() or (WATCH not in request and chance.random() < 0.5):
            return None
        made = chance.choice(
            [
                lambda: CutDown(chance.randrange(8000)),
                lambda: CutDown(chance.randrange(8000)),
                Reset,
                lambda: answer(b"<html>", 200),
                lambda: answer(b"{}", 503),
                lambda: answer(b"{}", 410),
                lambda: answer(b'{"type":"ERROR","object":{"code":410}}\n'),
                lambda: Answer(b"HTTP/1.1 200"),
            ]
        )()
        tried[type(made).__name__] += 1
        return made

    line.proxy.always(fault)
    reflector, mirror = follow(line.client, synced=False)
    alive = []
    while tried.total() < 40 or len(tried) < 3:
        deed = chance.random()
        if deed < 0.5 or not alive:
            alive.append(f"n{len(alive)}-{chance.randrange(10**9)}")
            admin.create(LEASES, lease(alive[-1]), namespace)
        elif deed < 0.8:
            holder = {"spec": {"holderIdentity": str(chance.random())}}
            admin.merge_patch(LEASES, chance.choice(alive), holder, namespace)
        else:
            admin.delete(LEASES, alive.pop(chance.randrange(len(alive))), namespace)
    healed.set()
    wanted = agrees(reflector, mirror, admin, namespace)
    assert sorted(alive) == sorted(key.name for key in wanted)
    assert len(tried) == 3
