import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.kube.kinds import untyped
from rootcellar.kube.rbac import CLUSTER, OWN, READ, Right, grants, places, rules, text

THINGS = untyped("example.dev", "v1", "things")


def test_resources_with_the_same_verbs_share_a_rule_and_everything_is_sorted():
    rights = [
        Right("example.dev", "things", ("watch", "get", "list"), "to know them"),
        Right("", "secrets", ("get",), "for credentials"),
        Right("example.dev", "parts", READ, "to know them, too"),
    ]
    assert rules(rights, CLUSTER) == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        {"apiGroups": ["example.dev"], "resources": ["parts", "things"], "verbs": ["get", "list", "watch"]},
    ]


def test_verbs_of_several_rights_to_one_resource_come_together():
    rights = [
        Right("", "secrets", ("patch",), "finalizers"),
        Right("", "secrets", ("get",), "credentials"),
        Right("", "secrets", ("get", "create"), "more of them"),
    ]
    assert rules(rights, CLUSTER) == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "patch"]}
    ]


def test_what_is_granted_of_all_objects_is_not_granted_of_named_ones_again():
    rights = [
        Right("", "secrets", ("get", "patch"), "all"),
        Right("", "secrets", ("get", "delete"), "two of them", names=("b", "a")),
        Right("", "secrets", ("get",), "one of them", names=("c",)),
    ]
    assert rules(rights, CLUSTER) == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"], "resourceNames": ["a", "b"]},
    ]


def test_a_right_holds_where_it_says_and_nowhere_else():
    rights = [
        Right("", "secrets", ("get",), "everywhere"),
        Right("", "secrets", ("delete",), "at home", where=OWN),
        Right("", "secrets", ("create",), "elsewhere", where="generated"),
    ]
    assert places(rights) == ("cluster", "generated", "own")
    assert [rules(rights, where)[0]["verbs"] for where in places(rights)] == [["get"], ["create"], ["delete"]]


def test_a_right_to_a_kind_or_below_it_takes_its_group_and_plural():
    assert Right.to(THINGS, "get", why="x") == Right("example.dev", "things", ("get",), "x")
    below = Right.to(THINGS, "patch", why="x", below="status", where=OWN)
    assert below == Right("example.dev", "things/status", ("patch",), "x", OWN)


def test_the_text_has_each_reason_beside_its_rule_and_reads_back_as_the_rules():
    rights = [
        Right("", "secrets", ("get",), "to read credentials"),
        Right("", "secrets", ("patch",), "to keep them", where=OWN),
    ]
    written = text(rights)
    assert yaml.safe_load(written) == {where: rules(rights, where) for where in (CLUSTER, OWN)}
    above = {line: written.splitlines()[number + 1] for number, line in enumerate(written.splitlines()[:-1])}
    assert above["# to read credentials"] == above["# to keep them"] == "- apiGroups:"


@pytest.mark.parametrize(
    ("right", "told"),
    [
        (lambda: Right("*", "secrets", ("get",), ""), "no wildcards"),
        (lambda: Right("", "*", ("get",), ""), "no wildcards"),
        (lambda: Right("", "secrets", ("*",), ""), "has no verb *"),
        (lambda: Right("", "secrets", ("read",), ""), "has no verb read"),
        (lambda: Right("", "secrets", ("create",), "", names=("a",)), "no name restricts create of secrets"),
    ],
)
def test_a_right_that_grants_more_than_it_says_is_refused(right, told):
    with pytest.raises(ValueError) as refused:
        right()
    assert told in str(refused.value)


RIGHTS = st.lists(
    st.builds(
        Right,
        st.sampled_from(["", "a.dev"]),
        st.sampled_from(["x", "y"]),
        st.sets(st.sampled_from(["get", "list", "patch"]), min_size=1).map(tuple),
        st.sampled_from(["why", "because"]),
        names=st.sets(st.sampled_from(["n", "m"])).map(tuple),
    ),
    max_size=6,
)


@given(RIGHTS)
def test_rules_allow_what_the_rights_allow_and_nothing_else(rights):
    made = rules(rights, CLUSTER)

    def allowed(group, resource, verb, name):
        return any(
            group in rule["apiGroups"]
            and resource in rule["resources"]
            and verb in rule["verbs"]
            and name in rule.get("resourceNames", [name])
            for rule in made
        )

    def wanted(group, resource, verb, name):
        return any(
            (group, resource) == (right.group, right.resource)
            and verb in right.verbs
            and (not right.names or name in right.names)
            for right in rights
        )

    for group in ("", "a.dev"):
        for resource in ("x", "y"):
            for verb in ("get", "list", "patch"):
                for name in ("n", "m", "other"):
                    asked = (group, resource, verb, name)
                    assert allowed(*asked) == wanted(*asked)
    assert grants(rights, CLUSTER) == grants(rights[::-1], CLUSTER)
