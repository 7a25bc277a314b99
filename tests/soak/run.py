"""The soak: `make soak`, or `python -m tests.soak.run --seconds 600 --seed 7 --store s3`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.ground import Ground
from tests.soak.observer import Observer
from tests.soak.proof import settle_and_prove
from tests.soak.storm import storm
from tests.soak.strikes import Strikes
from tests.soak.writers import Writers


def soak(directory, *, seed, seconds, store, samples, every=2.4, tell=sys.stdout.write):
    """Run it.  Raises AssertionError for whatever does not hold; returns (struck, proof)."""
    faults = storm(seed, seconds, store_is_a_server=store != "file", every=every)
    with Ground(directory, store=store) as ground, Observer(ground) as observer:
        strikes = Strikes(ground, observer)
        with Writers(ground.endpoints, seed) as writers:
            began = time.monotonic()
            strikes.run(faults)
            ended = time.monotonic()
            strikes.settle()
        settled = time.monotonic()
        proof = settle_and_prove(ground, observer, writers, samples=samples)
        tell(_figures(seed, strikes, observer, writers, proof, (began, ended, settled)))
    return strikes.struck, proof


def _figures(seed, strikes, observer, writers, proof, moments):
    began, ended, settled = moments
    struck, looks = strikes.struck, observer.looks
    unanswered = sum(map(len, writers.unknown.values()))
    tables = f"gaps {proof.gaps}, timelines {proof.timelines}, epochs {proof.epochs}"
    lines = [
        f"seed {seed}: {sum(struck.values())} faults in {ended - began:.0f} s, {settled - ended:.0f} s after",
        *(f"  {count:4d}  {kind}" for kind, count in sorted(struck.items())),
        f"acknowledged writes {len(writers.acknowledged):,}, unanswered {unanswered:,}",
        f"recovery point {proof.point:,}; fulls {proof.fulls}, deltas {proof.deltas}, {tables}",
        f"longest time without a newer recovery point {observer.longest_pause(began, ended):.0f} s",
        f"{looks['claims']} claims held against {looks['catalogues']} looks into the store",
        f"agents' memory {observer.peak:.0f} MiB at most",
    ]
    for each in proof.restores:
        found = f"{each.writes:,} writes and {each.keys} keys as acknowledged"
        equal = ", HashKV equal" if each.hashed else ""
        lines.append(f"restored at {each.revision:,} in {each.seconds:.1f} s: {found}{equal}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--store", choices=("s3", "file"), default="s3")
    parser.add_argument("--keep", action="store_true", help="keep logs and stores where it fails")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10_000)
    directory = Path(tempfile.mkdtemp(prefix="rootcellar-soak-"))
    sys.stdout.write(f"soak: --seed {seed} --seconds {given.seconds:g} --store {given.store}\n")
    sys.stdout.flush()
    try:
        struck, proof = soak(directory, seed=seed, seconds=given.seconds, store=given.store, samples=8)
        assert sum(struck.values()) >= given.seconds / 3, "fewer faults than one in three seconds"
        assert proof.gaps == 0
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
