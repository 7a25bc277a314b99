"""The work queue, against a model and with threads."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rootcellar.errors import (
    ConfigError,
    DeniedError,
    KubeConflictError,
    KubeDeniedError,
    KubeExistsError,
    KubeUnavailableError,
    ThrottledError,
    TransientError,
)
from rootcellar.kube.pace import BUG, CONFLICT, EXPONENTIAL, LONG, THROTTLED, Pace, pace_for
from rootcellar.kube.queue import WorkQueue

KEYS = st.sampled_from("abcde")


class Hands:
    """A clock that is set by hand, and a chance that is always the longest pause."""

    def __init__(self):
        self.now = 1000.0
        self.queue = WorkQueue(clock=lambda: self.now, chance=lambda: 1.0)


@pytest.fixture
def hands():
    return Hands()


def taken(queue):
    """All keys that are to be had now, each done at once."""
    found = []
    while (key := queue.get(0)) is not None:
        found.append(key)
        queue.done(key)
    return found


class QueueModel(RuleBasedStateMachine):
    """Whatever is called in whatever order: no key twice, none lost, none before its time."""

    @initialize()
    def begin(self):
        self.hands = Hands()
        self.queue = self.hands.queue
        self.due, self.later, self.running = set(), {}, set()
        self.dirty = set()

    def promote(self):
        for key in [key for key, at in self.later.items() if at <= self.hands.now]:
            del self.later[key]
            self.want(key)

    def want(self, key):
        (self.dirty if key in self.running else self.due).add(key)

    @rule(key=KEYS)
    def add(self, key):
        self.queue.add(key)
        self.want(key)

    @rule(key=KEYS, seconds=st.floats(0, 10))
    def add_after(self, key, seconds):
        self.queue.add_after(key, seconds)
        at = self.hands.now + seconds
        self.later[key] = min(at, self.later.get(key, at))

    @rule(key=KEYS, first=st.floats(0.001, 1), longest=st.floats(1, 5))
    def retry(self, key, first, longest):
        seconds = self.queue.retry(key, Pace(first, longest))
        assert first <= seconds <= longest
        at = self.hands.now + seconds
        self.later[key] = min(at, self.later.get(key, at))

    @rule(key=KEYS)
    def forget(self, key):
        self.queue.forget(key)

    @rule(seconds=st.floats(0, 12))
    def pass_time(self, seconds):
        self.hands.now += seconds

    @rule()
    def get(self):
        self.promote()
        key = self.queue.get(0)
        if key is None:
            assert not self.due
            return
        assert key in self.due
        assert key not in self.running
        self.due.remove(key)
        self.later.pop(key, None)
        self.running.add(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data):
        key = data.draw(st.sampled_from(sorted(self.running)))
        # What came due while it was with the worker is noticed by whoever looks next.
        self.promote()
        assert self.queue.depth == len(self.due) + len(self.dirty)
        self.queue.done(key)
        self.running.remove(key)
        if key in self.dirty:
            self.dirty.remove(key)
            self.due.add(key)

    @invariant()
    def the_depth_is_what_waits(self):
        self.promote()
        assert self.queue.depth == len(self.due) + len(self.dirty)
        assert self.queue.running == len(self.running)


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(stateful_step_count=25)


def test_a_key_that_is_added_often_is_handed_out_once(hands):
    for _ in range(3):
        hands.queue.add("a")
        hands.queue.add("b")
    assert taken(hands.queue) == ["a", "b"]


def test_a_key_that_is_added_while_it_is_worked_on_comes_once_more_and_not_before_that_is_done(hands):
    hands.queue.add("a")
    assert hands.queue.get(0) == "a"
    hands.queue.add("a")
    hands.queue.add("a")
    assert hands.queue.get(0) is None
    hands.queue.done("a")
    assert taken(hands.queue) == ["a"]


def test_a_key_that_always_comes_again_lets_all_others_have_their_turn(hands):
    for key in "abc":
        hands.queue.add(key)
    order = []
    for _ in range(6):
        order.append(key := hands.queue.get(0))
        if key == "a":
            hands.queue.add("a")
        hands.queue.done(key)
    assert order == ["a", "b", "c", "a", "a", "a"]


def test_of_several_moments_the_earliest_counts(hands):
    hands.queue.add_after("a", 10)
    hands.queue.add_after("a", 5)
    hands.queue.add_after("a", 20)
    hands.now += 4.9
    assert taken(hands.queue) == []
    hands.now += 0.1
    assert taken(hands.queue) == ["a"]
    hands.now += 100
    assert taken(hands.queue) == []


def test_a_key_that_was_worked_on_forgets_when_it_was_to_come_again(hands):
    hands.queue.add_after("a", 10)
    hands.queue.add("a")
    assert taken(hands.queue) == ["a"]
    hands.now += 10
    assert taken(hands.queue) == []


def test_a_moment_that_is_set_while_a_key_is_worked_on_counts(hands):
    hands.queue.add("a")
    key = hands.queue.get(0)
    hands.queue.add_after("a", 10)
    hands.queue.done(key)
    hands.now += 10
    assert taken(hands.queue) == ["a"]


def test_pauses_double_up_to_the_longest_for_each_key_alone(hands):
    pauses = [hands.queue.retry("a") for _ in range(20)]
    assert pauses[:4] == [0.005, 0.01, 0.02, 0.04]
    assert pauses[-1] == 1000
    assert hands.queue.retry("b") == 0.005
    hands.queue.forget("a")
    assert hands.queue.retry("a") == 0.005
    assert hands.queue.retries == 22


def test_another_kind_of_failure_begins_with_its_first_pause(hands):
    for _ in range(10):
        hands.queue.retry("a", CONFLICT)
    assert hands.queue.retry("a", LONG) == 5
    assert hands.queue.retry("a", LONG) == 10


def test_pauses_grow_also_where_two_kinds_of_failure_take_turns(hands):
    pauses = [hands.queue.retry("a", pace) for _ in range(20) for pace in (THROTTLED, EXPONENTIAL)]
    assert pauses[:6] == [1, 0.005, 2, 0.01, 4, 0.02]
    assert pauses[-2:] == [1000, 1000]
    hands.queue.forget("a")
    assert [hands.queue.retry("a", pace) for pace in (THROTTLED, EXPONENTIAL)] == [1, 0.005]


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 30))
def test_the_jitter_shortens_a_pause_by_at_most_a_quarter(chance, times):
    queue = WorkQueue(chance=lambda: chance)
    for _ in range(times):
        queue.retry("a")
    length = min(1000, 0.005 * 2**times)
    assert 0.75 * length <= queue.retry("a") <= length


def test_moments_that_are_moved_again_and_again_do_not_pile_up(hands):
    for number in range(10_000):
        hands.queue.add_after("a", 10_000 - number)
    assert len(hands.queue._heap) < 100  # noqa: SLF001  nothing else shows it
    hands.now += 1
    assert taken(hands.queue) == ["a"]


def test_the_oldest_is_as_old_as_the_wait_for_a_worker(hands):
    assert hands.queue.oldest == 0
    hands.queue.add("a")
    hands.now += 3
    hands.queue.add("b")
    hands.now += 4
    assert hands.queue.oldest == 7
    hands.queue.get(0)
    assert hands.queue.oldest == 4


def test_one_that_waits_is_woken_by_a_key_and_by_the_end():
    queue = WorkQueue()
    found = []

    def work():
        while (key := queue.get()) is not None:
            found.append(key)
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    queue.add("now")
    queue.add_after("soon", 0.05)
    _wait_for(lambda: sorted(found) == ["now", "soon"], 30)
    assert queue.drain(30)
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()


def _wait_for(condition, seconds):
    pause = threading.Event()
    for _ in range(int(seconds / 0.005) + 1):
        if condition():
            return
        pause.wait(0.005)
    raise TimeoutError


def test_many_workers_never_have_one_key_at_the_same_time_and_lose_none():
    queue = WorkQueue()
    has, twice, wanted, seen = set(), [], Counter(), Counter()
    guard = threading.Lock()

    def work():
        while (key := queue.get()) is not None:
            with guard:
                if key in has:
                    twice.append(key)
                has.add(key)
                seen[key] = wanted[key]
            with guard:
                has.discard(key)
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for number in range(20_000):
        key = number % 17
        with guard:
            wanted[key] += 1
        queue.add(key)

    def is_all_seen():
        with guard:
            return seen == wanted

    # Each key was seen after the last time that it was wanted.
    _wait_for(is_all_seen, 60)
    assert queue.drain(30)
    for worker in workers:
        worker.join(30)
    assert not twice


def test_the_end_waits_for_what_is_worked_on_and_hands_out_nothing_more(hands):
    for key in "ab":
        hands.queue.add(key)
    key = hands.queue.get(0)
    assert not hands.queue.drain(0)
    assert hands.queue.get() is None
    hands.queue.add("c")
    threading.Timer(0.05, hands.queue.done, [key]).start()
    assert hands.queue.drain(30)
    assert hands.queue.get() is None


@pytest.mark.parametrize(
    ("error", "pace"),
    [
        (KubeConflictError("changed"), CONFLICT),
        (KubeExistsError("there is one"), CONFLICT),
        (KubeUnavailableError("away"), EXPONENTIAL),
        (TransientError("reset"), EXPONENTIAL),
        (ThrottledError("slow down"), THROTTLED),
        (KubeDeniedError("no right"), LONG),
        (DeniedError("wrong key"), LONG),
        (ConfigError("no region"), LONG),
        (ZeroDivisionError(), BUG),
    ],
)
def test_what_went_wrong_decides_how_long_is_waited(error, pace):
    assert pace_for(error) is pace
