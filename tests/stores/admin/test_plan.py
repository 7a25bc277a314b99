"""Drift: what is changed, what is refused, what is left alone."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import ConfigError, LockedError, UnsupportedError
from rootcellar.stores.admin.plan import drift
from rootcellar.stores.admin.values import UNKNOWN, Aspect, BucketState, BucketWish, Immutability

DAY = timedelta(days=1)
HARD = BucketState(
    "s3://b",
    region="eu-west-1",
    versioning=True,
    immutability=None,
    public_access_blocked=True,
    encrypted=True,
    encrypted_transport=True,
    uploads_aborted_after=7 * DAY,
)

switches = st.sampled_from([True, False, UNKNOWN])
immutabilities = st.builds(Immutability, st.integers(1, 9).map(lambda days: days * DAY), st.booleans())
states = st.builds(
    BucketState,
    st.just("s3://b"),
    versioning=switches,
    immutability=st.one_of(st.none(), st.just(UNKNOWN), immutabilities),
    public_access_blocked=switches,
    encrypted=switches,
    encrypted_transport=switches,
    uploads_aborted_after=st.one_of(st.none(), st.just(UNKNOWN), st.just(7 * DAY), st.just(90 * DAY)),
)
wishes = st.builds(
    BucketWish,
    immutability=st.one_of(st.none(), immutabilities),
    versioning=st.booleans(),
    public_access_blocked=st.booleans(),
    encrypted=st.booleans(),
    encrypted_transport=st.booleans(),
    weaken=st.booleans(),
)


def applied(state, wish, plan):
    fields = {
        Aspect.PUBLIC_ACCESS: {"public_access_blocked": True},
        Aspect.TRANSPORT: {"encrypted_transport": True},
        Aspect.ENCRYPTION: {"encrypted": True},
        Aspect.VERSIONING: {"versioning": True},
        Aspect.LEFTOVERS: {"uploads_aborted_after": wish.uploads_aborted_after},
        Aspect.IMMUTABILITY: {"immutability": wish.immutability},
    }
    for change in plan.changes:
        state = replace(state, **fields[change.aspect])
    return state


@given(states, wishes)
def test_what_was_changed_is_not_changed_again(state, wish):
    plan = drift(state, wish)
    assert drift(applied(state, wish, plan), wish).changes == ()


@given(states, wishes)
def test_nothing_locked_is_weakened(state, wish):
    after = applied(state, wish, drift(state, wish)).immutability
    before = state.immutability
    if isinstance(before, Immutability) and before.locked:
        assert after.locked
        assert after.period >= before.period
    if isinstance(before, Immutability) and not wish.weaken:
        assert after.period >= before.period


@given(states, wishes)
def test_a_wish_is_met_or_refused_or_unknown(state, wish):
    plan = drift(state, wish)
    after = applied(state, wish, plan)
    if wish.immutability is not None and after.immutability != wish.immutability:
        assert plan.refused
    for name in ("public_access_blocked", "encrypted", "encrypted_transport", "versioning"):
        if getattr(wish, name):
            assert getattr(after, name) in {True, UNKNOWN}


def test_what_is_as_it_should_be_needs_nothing():
    assert drift(HARD, BucketWish(region="eu-west-1", versioning=True)).changes == ()


def test_public_access_is_taken_away_first():
    plan = drift(replace(HARD, public_access_blocked=False, encrypted=False), BucketWish())
    assert [str(change) for change in plan.changes] == [
        "public access: off -> on",
        "encryption at rest: off -> on",
    ]


def test_another_region_is_refused():
    plan = drift(HARD, BucketWish(region="us-east-1"))
    assert [type(error) for error in plan.refused] == [ConfigError]
    assert "lies in eu-west-1, not in us-east-1" in plan.refused[0].message


def test_what_nobody_asked_for_is_left_as_it_is():
    found = replace(HARD, versioning=False, immutability=Immutability(9 * DAY))
    assert drift(found, BucketWish()).changes == ()
    assert drift(found, BucketWish()).refused == ()


@pytest.mark.parametrize(
    ("found", "wanted", "weaken", "refused", "changed"),
    [
        (None, Immutability(DAY), False, None, True),
        (Immutability(DAY), Immutability(2 * DAY), False, None, True),
        (Immutability(DAY), Immutability(DAY, locked=True), False, None, True),
        (Immutability(2 * DAY), Immutability(DAY), False, LockedError, False),
        (Immutability(2 * DAY), Immutability(DAY), True, None, True),
        (Immutability(2 * DAY), None, True, None, True),
        (Immutability(2 * DAY, locked=True), None, True, None, False),
        (Immutability(2 * DAY, locked=True), Immutability(DAY, locked=True), True, LockedError, False),
        (Immutability(2 * DAY, locked=True), Immutability(2 * DAY), True, LockedError, False),
        (Immutability(2 * DAY, locked=True), Immutability(3 * DAY, locked=True), False, None, True),
        (UNKNOWN, Immutability(DAY), False, UnsupportedError, False),
    ],
)
def test_immutability_grows_and_shrinks_only_where_it_may(found, wanted, weaken, refused, changed):
    plan = drift(replace(HARD, immutability=found), BucketWish(immutability=wanted, weaken=weaken))
    assert [type(error) for error in plan.refused] == ([refused] if refused else [])
    assert bool(plan.changes) == changed


def test_a_period_is_never_rounded_down():
    assert Immutability(timedelta(hours=25)).days == 2
    assert Immutability(timedelta(hours=24)).days == 1


def test_a_region_in_capitals_is_the_same_region():
    """As Google has them."""
    assert drift(HARD, BucketWish(region="EU-West-1")).refused == ()
