"""What tests of folds share: a chain worth folding, and what must hold of every store afterwards."""

from __future__ import annotations

from rootcellar.backup.capture.full import FullOptions
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from tests.backup import ebr_rules

BY = "tests/compact"


def chain(scene, *, compacts=True):
    """A full and two deltas that revise its keys, with a compaction in the last; the last revision."""
    scene.write(300)
    scene.full()
    scene.write(200)
    scene.capture()
    if compacts:
        scene.client.compact(scene.client.header().revision - 10, physical=True)
    last = scene.write(30)
    scene.capture()
    return last


def sound(scene, last):
    """Everything in the store agrees, EBR can restore it, and what it restores to is etcd's state."""
    catalogue = read_catalogue(scene.store)
    assert (catalogue.damaged, catalogue.lost) == ((), ())
    assert ebr_rules.check_prefix(scene.store) == []
    assert plan_chain(catalogue, Latest()).reach == last
    scene.must_equal(scene.restored(keep_history=False), last)


def a_sealed_chain(scene, *identities, suffix):
    """A full and a delta, sealed; the last revision."""
    sealed = {"how": FullOptions(suffix), "recipients": tuple(each.recipient for each in identities)}
    scene.write(40)
    scene.capture(full=True, **sealed)
    last = scene.write(9)
    scene.capture(**sealed)
    return last
