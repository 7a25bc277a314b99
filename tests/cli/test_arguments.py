"""The grammar of the command line, and which source of a value wins."""

from __future__ import annotations

import pytest

from rootcellar.cli import values
from rootcellar.cli.arguments import Arguments, sort
from rootcellar.cli.options import Command, Operand, Option, switch
from rootcellar.errors import UsageError

SIZE = Option("--size", values.size, "SIZE", "how large", env=True, setting="a.size", default="1KiB")
NAME = Option("--name", values.text, "NAME", "names", short="-n", repeated=True)
LOUD = switch("--loud", "louder")
EVERYWHERE = Option("--where", values.text, "PLACE", "anywhere")
STORE = Operand("STORE", values.text, "a store", optional=True)
THING = Operand("THING", values.count, "a number")
REST = Operand("REST", values.text, "more", repeated=True)
DO = Command("do", "does", "Does.", (STORE, THING), (SIZE, NAME, LOUD))
DO_ALL = Command("all things", "does all", "Does all.", (STORE, REST), ())
COMMANDS = (DO, DO_ALL)


def arguments(*words, environ=None, settings=None):
    found = sort(words, COMMANDS, (EVERYWHERE,))
    return Arguments(found, environ or {}, (settings or {}).get)


def refused(*words, **sources):
    with pytest.raises(UsageError) as caught:
        arguments(*words, **sources).get(SIZE)
    return caught.value


def test_options_and_operands_come_in_any_order():
    for words in (
        ("do", "here", "5", "--size", "2MiB", "--loud"),
        ("do", "--loud", "here", "--size=2MiB", "5"),
        ("--where", "x", "do", "--size", "2MiB", "--loud", "here", "5"),
    ):
        found = arguments(*words)
        assert found.operand(STORE) == "here"
        assert found.needed(THING) == 5
        assert found.get(SIZE) == 2 << 20
        assert found.has(LOUD)


def test_the_first_operand_may_be_left_out():
    found = arguments("do", "5")
    assert found.operand(STORE) is None
    assert found.needed(THING) == 5


def test_after_two_dashes_everything_is_an_operand():
    found = sort(["all", "things", "--", "here", "--loud", "-x"], COMMANDS, ())
    assert found.operands == ["here", "--loud", "-x"]


def test_a_lone_dash_is_an_operand():
    assert sort(["do", "-"], COMMANDS, ()).operands == ["-"]


def test_the_last_operand_may_repeat():
    assert arguments("all", "things", "here", "a", "b", "c").operands(REST) == ("a", "b", "c")


def test_a_value_may_begin_with_a_dash():
    assert arguments("do", "5", "-n", "-5").all(NAME) == ("-5",)


def test_a_repeatable_option_keeps_its_order():
    assert arguments("do", "5", "-n", "a", "--name=b").all(NAME) == ("a", "b")


def test_an_option_given_twice_is_refused():
    error = refused("do", "5", "--size", "1", "--size", "2")
    assert error.message == "--size is given twice"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["doo", "5"], "there is no verb 'doo'", "did you mean do?"),
        (["all", "thinks"], "there is no verb 'all thinks'", "did you mean all things?"),
        (["do", "5", "--sise", "1"], "do has no option --sise", "did you mean --size?"),
        (["--loud", "do"], "no option --loud", "options of a verb come behind it"),
        (["do", "5", "--loud=yes"], "--loud takes no value", "louder"),
        (["do", "5", "--size"], "--size needs a value", "write --size SIZE: how large"),
        (["do", "5", "--siz", "1"], "do has no option --siz", "did you mean --size?"),
        (["do", "a", "5", "b"], "'b' is one word too many", "write rootcellar do [STORE] THING"),
        (["do"], "THING is missing", "write rootcellar do [STORE] THING"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_way_out(words, message, hint):
    error = refused(*words)
    assert (error.message, error.hint) == (message, hint)


def test_a_flag_wins_over_the_environment_over_the_configuration_over_the_default():
    sources = {"environ": {"ROOTCELLAR_SIZE": "2KiB"}, "settings": {"a.size": "3KiB"}}
    assert arguments("do", "5", "--size", "4KiB", **sources).get(SIZE) == 4096
    assert arguments("do", "5", **sources).get(SIZE) == 2048
    assert arguments("do", "5", settings=sources["settings"]).get(SIZE) == 3072
    assert arguments("do", "5").get(SIZE) == 1024


def test_the_configuration_is_not_read_where_a_flag_says_it():
    def broken(_):
        raise AssertionError

    found = Arguments(sort(["do", "5", "--size", "1"], COMMANDS, ()), {}, broken)
    assert found.get(SIZE) == 1


def test_an_empty_variable_says_nothing():
    assert arguments("do", "5", environ={"ROOTCELLAR_SIZE": ""}).get(SIZE) == 1024


@pytest.mark.parametrize(
    ("words", "sources", "message"),
    [
        (["--size", "x"], {}, "--size is 'x', not a size such as 2GiB or 1048576"),
        (
            [],
            {"environ": {"ROOTCELLAR_SIZE": "x"}},
            "ROOTCELLAR_SIZE is 'x', not a size such as 2GiB or 1048576",
        ),
        (
            [],
            {"settings": {"a.size": "x"}},
            "a.size in the configuration is 'x', not a size such as 2GiB or 1048576",
        ),
    ],
)
def test_a_bad_value_is_told_with_its_source(words, sources, message):
    assert refused("do", "5", *words, **sources).message == message


def test_a_bad_operand_is_told_with_its_place():
    with pytest.raises(UsageError, match="THING is 'x', not a whole number"):
        arguments("do", "x").needed(THING)


def test_what_is_needed_is_asked_for_with_its_variable():
    needed = Option("--thing", values.text, "THING", "some thing", env=True)
    with pytest.raises(UsageError, match="--thing is needed") as caught:
        arguments("do", "5").need(needed)
    assert caught.value.hint == "--thing THING (or ROOTCELLAR_THING): some thing"
