"""A prune killed at everything it writes, on a file system and on S3; what the next prune makes of it.

The points are those that `prune` names.
"""

from __future__ import annotations

import itertools
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.catalogue import fence, keys, ledger
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, Latest, plan_chain
from rootcellar.backup.prune.prune import prune
from rootcellar.stores.file import FileStore
from tests.backup.killing import Killer
from tests.backup.prune_scene import FULLS, KEEP_ONE, contents, fill, must_restore, prune_and_die
from tests.stores.places import s3_store

_prefixes = itertools.count(1)
_MONTH = timedelta(days=30)
LAST = FULLS[-1] + 60


@pytest.fixture(scope="module")
def killer():
    with Killer() as killer:
        yield killer


def prepare(store, scratch):
    """Chains, a held one among them, and one of everything that is swept."""
    fill(store, scratch)
    now = datetime.now(UTC)
    first = next(each for each in read_catalogue(store).snapshots if each.is_full)
    ledger.write_hold(store, first, reason="an audit", by="anna", now=now, through=60)
    released = ledger.write_hold(store, second_full(store), reason="x", by="anna", now=now)
    ledger.release_hold(store, released, reason="done", by="anna", now=now)
    ledger.write_pin(store, first, by="a", now=now, until=now - timedelta(days=1))
    for number in range(9):
        fence.claim_epoch(store, f"agent/{number}", now)
    store.put("v2/Full-00000000-00000009-1700000000.gz.sha256", [b"a sidecar"])
    store.put("v2/Incr-00000007-00000009-1700000000.gz", [b"an orphan"])


def second_full(store):
    return [each for each in read_catalogue(store).snapshots if each.is_full][1]


def later():
    """A month on, so that orphans, strays and what else has a grace is due, too."""
    return datetime.now(UTC) + _MONTH


def finished(store):
    """All that is left once nothing is due, whoever swept: epochs count up, tombstones say when."""
    return {
        key: raw
        for key, raw in contents(store, "").items()
        if not key.startswith((keys.EPOCHS, keys.TOMBSTONES))
    }


def sound(store, kept):
    """What stays was not touched, and leads where it led."""
    assert kept.items() <= contents(store).items()
    catalogue = read_catalogue(store)
    assert (catalogue.lost, catalogue.damaged) == ((), ())
    assert plan_chain(catalogue, Latest()).reach == LAST
    assert plan_chain(catalogue, AtRevision(60)).full.last == FULLS[0]


STEPS = pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.long)])
"""Every sixth death in each run of the tests, all of them in the long one."""


@STEPS
def test_a_prune_killed_at_any_touch_of_the_file_system_is_finished_by_the_next(killer, tmp_path, step):
    template = tmp_path / "template"
    prepare(FileStore(template), tmp_path)
    whole = tmp_path / "whole"
    shutil.copytree(template, whole)
    assert not killer.run(prune_and_die, whole, None, "after", KEEP_ONE, _MONTH)
    end, kept = finished(FileStore(whole)), contents(FileStore(whole))
    assert len(kept) == 6
    deaths = 0
    for at in itertools.count(0, step):
        root = tmp_path / f"at-{at}"
        shutil.copytree(template, root)
        store = FileStore(root)
        if not killer.run(prune_and_die, root, None, "after", KEEP_ONE, _MONTH, at=at):
            break
        deaths += 1
        sound(store, kept)
        prune(store, KEEP_ONE, writer="tests/1", clock=later)
        sound(store, kept)
        assert finished(store) == end, f"killed at touch {at}"
        if deaths % 10 == 1:
            must_restore(store, root, 60, LAST)
        shutil.rmtree(root)
    assert deaths > 80 // step


@STEPS
def test_a_prune_killed_at_any_call_of_s3_is_finished_by_the_next(killer, bucket, tmp_path, step):
    source = FileStore(tmp_path / "source")
    prepare(source, tmp_path)
    objects = contents(source, "")
    end = kept = None
    deaths = 0
    for at in itertools.chain([None], itertools.count(1, step)):
        place = bucket, f"prune-crash-{next(_prefixes)}"
        store = s3_store(*place)
        for key, raw in objects.items():
            store.put(key, [raw])
        if at is None:
            prune(store, KEEP_ONE, writer="tests/1", clock=later)
            end, kept = finished(store), contents(store)
            continue
        if not killer.run(prune_and_die, place, at, "after", KEEP_ONE, _MONTH):
            break
        deaths += 1
        sound(store, kept)
        prune(store, KEEP_ONE, writer="tests/1", clock=later)
        sound(store, kept)
        assert finished(store) == end, f"killed after call {at}"
    must_restore(store, tmp_path, 60, LAST)
    assert deaths > 25 // step
