"""What every BucketAdmin keeps to, whatever the provider.

A suite is a subclass with a fixture `place`: `place.admin()` manages a bucket that is not there yet, the same
each time; `place.store(prefix)` is a store in it, and `place.found()` what lies in it, seen from behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rootcellar.errors import NotEmptyError, NotFoundError
from rootcellar.stores import Bandwidth
from rootcellar.stores.admin.ownership import FOLDER
from rootcellar.stores.admin.values import BucketWish, Claim, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.stores import Store
    from rootcellar.stores.admin.protocol import BucketAdmin

WISH = BucketWish()
SINCE = datetime(2026, 11, 21, tzinfo=UTC)
SEED = Claim("seed-1/bucket", created=True, since=SINCE)
OTHER = Claim("seed-2/bucket", created=False, since=SINCE)


@dataclass(frozen=True)
class Place:
    admin: Callable[[], BucketAdmin]
    store: Callable[[str], Store]
    found: Callable[[], list[str]]


def fill(place, *keys):
    store = place.store("")
    for key in keys:
        store.put(key, [key.encode()])


class Contract:
    @pytest.fixture
    def admin(self, place):
        return place.admin()

    @pytest.fixture
    def made(self, admin):
        assert admin.create(WISH) is Outcome.CREATED
        return admin

    # making it

    def test_a_bucket_is_made_once_and_then_adopted(self, place, admin):
        assert admin.look() is None
        assert admin.create(WISH) is Outcome.CREATED
        assert admin.look() is not None
        assert place.admin().create(WISH) is Outcome.ADOPTED
        fill(place, "shoot--a/v2/x")
        assert place.admin().create(WISH) is Outcome.ADOPTED
        assert place.found() == ["shoot--a/v2/x"]

    def test_what_was_hardened_needs_no_second_time(self, made):
        first = made.harden(WISH, made.look())
        assert first.refused == ()
        again = made.harden(WISH, made.look())
        assert (again.done, again.refused) == ((), ())

    def test_a_dry_run_changes_nothing(self, made):
        before = made.look()
        told = made.harden(WISH, before, dry_run=True)
        assert made.look() == before
        assert made.harden(WISH, before).done == told.done

    # marks

    def test_an_owners_first_mark_holds(self, place, made):
        assert made.claims() == ()
        assert made.claim(SEED) == SEED
        later = Claim(SEED.owner, created=False, since=datetime.now(UTC))
        assert place.admin().claim(later) == SEED
        assert made.claim(OTHER) == OTHER
        assert place.admin().claims() == (SEED, OTHER)
        assert made.look().claims == (SEED, OTHER)

    def test_a_mark_is_released_alone(self, made):
        made.claim(SEED)
        made.claim(OTHER)
        made.release(SEED.owner)
        made.release(SEED.owner)
        assert made.claims() == (OTHER,)

    # what lies in it

    def test_prefixes_are_the_first_parts_without_marks(self, place, made):
        made.claim(SEED)
        assert list(made.prefixes()) == []
        fill(place, "shoot--a/etcd-main/v2/x", "shoot--a/y", "shoot--a--b/v2/x", "loose")
        assert sorted(made.prefixes()) == ["loose", "shoot--a--b/", "shoot--a/"]

    def test_only_what_lies_below_the_prefix_goes(self, place, made):
        made.claim(SEED)
        kept = ["shoot--a--b/v2/x", "shoot--a-b/x", "shoot--a.x/y", "shoot--ab/x", "shoot--b/shoot--a/x"]
        fill(place, *kept, "shoot--a/v2/x", "shoot--a/v2/y", "shoot--a/shoot--a--b/x")
        done = made.delete_objects("shoot--a")
        assert done.gone
        assert done.deleted >= 3
        assert [key for key in place.found() if not key.startswith(FOLDER)] == sorted(kept)
        assert made.claims() == (SEED,)
        assert made.delete_objects("shoot--a").gone

    def test_a_deletion_tells_how_far_it_is_and_goes_on(self, place, made):
        fill(place, *(f"a/{number:02}" for number in range(12)))
        told = []
        rate = Bandwidth(4.0, clock=_Timeless())
        part = made.delete_objects(
            "a", progress=told.append, stop=lambda: bool(told) and told[-1].deleted >= 4, rate=rate
        )
        assert not part.complete
        assert 4 <= part.deleted < 12
        assert [each.deleted for each in told] == sorted(each.deleted for each in told)
        assert len(place.found()) == 12 - part.deleted
        done = place.admin().delete_objects("a", go_on=part)
        assert done.gone
        assert done.deleted == 12
        assert place.found() == []

    def test_emptying_leaves_the_marks(self, place, made):
        made.claim(SEED)
        fill(place, "shoot--a/x", "loose")
        assert made.empty().gone
        assert list(made.prefixes()) == []
        assert made.claims() == (SEED,)

    def test_deleting_in_no_bucket_is_an_error(self, admin):
        with pytest.raises(NotFoundError):
            admin.delete_objects("shoot--a")

    # the end of it

    def test_a_bucket_is_deleted_only_empty(self, place, made):
        made.claim(SEED)
        fill(place, "shoot--a/x")
        with pytest.raises(NotEmptyError, match="shoot--a/x lies in it"):
            made.delete_bucket()
        assert "shoot--a/x" in place.found()
        assert made.claims() == (SEED,)
        assert made.empty().gone
        made.delete_bucket()
        assert made.look() is None
        made.delete_bucket()

    def test_no_credentials_are_made_unless_the_provider_says_so(self, made):
        assert made.generated() is None


class _Timeless:
    """A clock whose waits pass at once."""

    def __init__(self):
        self._now = 0.0

    def monotonic(self):
        return self._now

    def sleep(self, seconds):
        self._now += seconds
