"""Grounds for plans: catalogues with a listing, made up or read, and what a plan leaves of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from rootcellar.backup.catalogue import keys, names
from rootcellar.backup.catalogue.catalogue import Catalogue
from rootcellar.backup.catalogue.records import Check, Finding, Hold, Link, Pin, Proof, Result, Tombstone
from rootcellar.backup.prune.retention import LimitBased
from rootcellar.backup.prune.values import Ground, Rules
from rootcellar.stores.protocol import ObjectInfo
from tests.backup.builders import EPOCH, moment

HOUR, DAY = 3600, 86_400


def rules(policy=None, **options):
    """Rules with times in seconds; by default one full is kept."""
    for name in ("deltas", "abandoned", "grace"):
        if options.get(name) is not None:
            options[name] = timedelta(seconds=options[name])
    return Rules(policy or LimitBased(1), **options)


def hold(key, through=None, nonce="1"):
    return Hold(nonce=nonce, key=key, reason="an audit", by="anna", created_at=moment(0), through=through)


def pin(key, until, through=None, nonce="1"):
    return Pin(nonce=nonce, key=key, by="restore", created_at=moment(0), until=moment(until), through=through)


def tombstone(snapshot):
    return Tombstone(key=snapshot.name.key, reason="old", by="a", epoch=1, created_at=moment(0))


def proof(*snapshots, check=Check.REPLAYED, result=Result.PASSED, at=0.0):
    return Proof(
        objects=tuple(Link(each.name.key, "b" * 64) for each in snapshots),
        revision=snapshots[-1].last,
        findings=(Finding(check, result),),
        started_at=moment(at),
        finished_at=moment(at),
        by="verify",
    )


def ground(*snapshots, documents=None, released=(), modified=None, **parts):
    """What lies there.  `documents` are further keys with their times, `modified` other times, in seconds."""
    ordered = sorted(snapshots, key=lambda each: (each.name.order, each.key))
    times = {each.key: each.name.created - EPOCH for each in snapshots} | (documents or {}) | (modified or {})
    for each in snapshots:
        if each.record is not None:
            times[keys.record(each.name)] = each.name.created - EPOCH
    for each in parts.get("tombstones", ()):
        times.setdefault(keys.tombstone(names.read(each.key)), 0)
    for each in parts.get("proofs", ()):
        times[keys.proof(names.read(each.objects[-1].key), each.finished_at, "00")] = 0
    listing = tuple(ObjectInfo(key, 100, moment(at)) for key, at in sorted(times.items()))
    parts = {name: tuple(value) if isinstance(value, list) else value for name, value in parts.items()}
    return Ground(Catalogue(tuple(ordered), **parts), listing, tuple(released))


def carried_out(before, plan):
    """The ground after a plan that nothing hindered."""
    gone = {key for each in plan.doomed for key in (each.key, *each.dependents)}
    gone |= {each.key for each in plan.swept}
    catalogue = before.catalogue
    buried = {each.key for each in catalogue.tombstones}
    stones = [
        tombstone(each.snapshot)
        for each in plan.doomed
        if each.snapshot is not None and each.snapshot.name.key not in buried
    ]
    made = tuple(ObjectInfo(keys.tombstone(names.read(each.key)), 100, moment(10**9)) for each in stones)
    listing = tuple(info for info in before.listing if info.key not in gone) + made
    there = {info.key for info in listing}
    return replace(
        before,
        listing=listing,
        released=tuple(each for each in before.released if keys.hold(each.nonce) in there),
        catalogue=replace(
            catalogue.without(gone),
            tombstones=tuple(
                each
                for each in (*catalogue.tombstones, *stones)
                if keys.tombstone(names.read(each.key)) in there
            ),
            proofs=tuple(
                each
                for each in catalogue.proofs
                if keys.proof(names.read(each.objects[-1].key), each.finished_at, "00") in there
            ),
            pins=tuple(
                each
                for each in catalogue.pins
                if keys.pin(each.until, each.nonce) in there
                or not any(key.startswith(keys.PINS) for key in gone)
            ),
            lost=tuple(each for each in catalogue.lost if keys.record(each.name) in there),
            strays=tuple(key for key in catalogue.strays if key in there),
            parts=tuple(key for key in catalogue.parts if key in there),
        ),
    )


def left(plan):
    """The names that stay."""
    return {each.snapshot.name.name for each in plan.snapshots if each.keep}


def fate(plan, snapshot):
    """The decision on one snapshot."""
    return next(each for each in plan.snapshots if each.key == snapshot.key)
