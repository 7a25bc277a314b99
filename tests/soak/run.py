"""The soak: `make soak`, or `python -m tests.soak.run --seconds 600 --seed 7 --store s3`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from testbed.cache import UnavailableError
from tests.soak.disk import own_namespace
from tests.soak.ground import KEEPS, Ground
from tests.soak.observer import Observer
from tests.soak.proof import settle_and_prove
from tests.soak.storm import storm
from tests.soak.strikes import Strikes
from tests.soak.writers import Writers

NO_MOUNTS = 77
"""How it ends where a process cannot have mounts of its own."""


def soak(directory, *, seed, seconds, store, samples, every=2.4, tell=sys.stdout.write):
    """Run it.  Raises AssertionError for whatever does not hold; returns (struck, proof)."""
    faults = storm(seed, seconds, store=store, every=every)
    keeps = sorted(KEEPS)[seed % len(KEEPS)]
    with Ground(directory, store=store, keeps=keeps) as ground, Observer(ground) as observer:
        strikes = Strikes(ground, observer)
        with Writers(ground.endpoints, seed) as writers:
            began = time.monotonic()
            strikes.run(faults)
            ended = time.monotonic()
            strikes.settle()
        settled = time.monotonic()
        proof = settle_and_prove(ground, observer, writers, samples=samples)
        tell(f"seed {seed}, retention by {keeps}: ")
        tell(_figures(ground, strikes, observer, writers, proof, (began, ended, settled)))
    return strikes.struck, proof


def _figures(ground, strikes, observer, writers, proof, moments):
    began, ended, settled = moments
    struck, looks = strikes.struck, observer.looks
    unanswered = sum(map(len, writers.unknown.values()))
    tables = f"gaps {proof.gaps}, timelines {proof.timelines}, epochs {proof.epochs}"
    lines = [
        f"{sum(struck.values())} faults in {ended - began:.0f} s, {settled - ended:.0f} s after",
        *(f"  {count:4d}  {kind}" for kind, count in sorted(struck.items())),
        f"acknowledged writes {len(writers.acknowledged):,}, unanswered {unanswered:,}",
        *_upkeep(ground),
        f"held at the end {proof.held}; the last prune took {proof.deleted} objects",
        f"recovery point {proof.point:,}; chains {proof.fulls}, deltas {proof.deltas}, {tables}",
        f"longest time without a newer recovery point {observer.longest_pause(began, ended):.0f} s",
        f"worst age of a recovery point {observer.oldest:.0f} s",
        f"{looks['claims']} claims held against {looks['catalogues']} looks into the store",
        f"agents' memory {observer.peak:.0f} MiB at most",
    ]
    lines += [_told(each) for each in proof.restores]
    lines += [f"{_told(each)}, from the mirror" for each in proof.mirrored]
    return "\n".join(lines) + "\n"


def _told(each):
    found = f"{each.writes:,} writes and {each.keys} keys as acknowledged"
    equal = ", HashKV equal" if each.hashed else ""
    return f"restored at {each.revision:,} in {each.seconds:.1f} s: {found}{equal}"


def _upkeep(ground):
    """What agents did beside deltas, by their logs."""
    events = [event for agent in ground.ours for event in agent.events]
    done, failed = Counter(), Counter()
    for event in events:
        if event["event"] in ("job-done", "job-failed"):
            (done if event["event"] == "job-done" else failed)[event["job"]] += 1
    gone = sum(
        int(event["outcome"].split()[0])
        for event in events
        if event["event"] == "job-done" and event["job"] == "prune"
    )
    folds = sum(
        event["event"] == "job-done" and event["job"] == "compact" and ", for " in event["outcome"]
        for event in events
    )
    fulls = sum(event["event"] == "stored" and "why" in event for event in events)
    yield f"fulls {fulls}, folds {folds}; prunes {done['prune']} with {gone} objects deleted"
    yield f"jobs done {', '.join(f'{name} {count}' for name, count in sorted(done.items()))}"
    yield f"jobs failed {', '.join(f'{name} {count}' for name, count in sorted(failed.items()))}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--store", choices=("s3", "file"), default="s3")
    parser.add_argument("--every", type=float, default=2.4, help="seconds from one fault to the next")
    parser.add_argument("--samples", type=int, default=8, help="restores beside that of the last point")
    parser.add_argument("--keep", action="store_true", help="keep logs and stores where it fails")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10_000)
    directory = Path(tempfile.mkdtemp(prefix="rootcellar-soak-"))
    sys.stdout.write(f"soak: --seed {seed} --seconds {given.seconds:g} --store {given.store}\n")
    sys.stdout.flush()
    if given.store == "file":
        try:
            own_namespace()
        except UnavailableError as error:
            sys.stderr.write(f"{error}\n")
            return NO_MOUNTS
    try:
        struck, proof = soak(
            directory,
            seed=seed,
            seconds=given.seconds,
            store=given.store,
            samples=given.samples,
            every=given.every,
        )
        assert sum(struck.values()) >= given.seconds / 3, "fewer faults than one in three seconds"
        assert sum(each.hashed for each in proof.restores) > len(proof.restores) / 2
    except BaseException:
        if given.keep:
            sys.stderr.write(f"kept: {directory}\n")
        else:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
