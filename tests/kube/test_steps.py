"""Steps in order, what ends them, and where they stopped."""

from __future__ import annotations

import pytest

from rootcellar.errors import ConfigError
from rootcellar.kube.steps import Done, Requeue, Step, reached, run, tracing


def fail(_taken):
    raise ConfigError("there is no region")


def taking(name):
    return Step(name, lambda taken: taken.append(name))


def test_steps_are_taken_in_order_to_the_last():
    taken = []
    with tracing() as trace:
        assert run([taking("one"), taking("two")], taken) == Done()
        assert reached() == "two"
    assert taken == ["one", "two"]
    assert [(each.step, each.result) for each in trace.taken] == [("one", "done"), ("two", "done")]
    assert all(each.seconds >= 0 for each in trace.taken)


@pytest.mark.parametrize(("outcome", "result"), [(Requeue(5), "requeue"), (Done(), "done")])
def test_an_outcome_ends_them(outcome, result):
    taken = []
    with tracing() as trace:
        assert run([taking("one"), Step("wait", lambda _: outcome), taking("never")], taken) is outcome
    assert taken == ["one"]
    assert trace.taken[-1][::2] == ("wait", result)


def test_an_error_ends_them_and_tells_where():
    taken = []
    with tracing() as trace:
        with pytest.raises(ConfigError) as caught:
            run([taking("one"), Step("choose", fail), taking("never")], taken)
        assert reached() == "choose"
    assert caught.value.message == "there is no region"
    assert taken == ["one"]
    assert trace.taken[-1][::2] == ("choose", "config")
    assert reached() == ""


def test_steps_may_be_taken_where_nobody_follows_them():
    taken = []
    assert run([taking("one")], taken) == Done()
    assert taken == ["one"]
    assert reached() == ""


def test_the_steps_of_one_reconcile_are_not_those_of_the_next():
    with tracing():
        run([taking("one")], [])
    with tracing() as trace:
        assert reached() == ""
        assert trace.taken == []
