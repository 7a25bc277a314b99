"""Run the bars and print a table: `make bench`, or `python -m benchmarks.run --size R` for the whole
workload.

Ours and the yardstick run one after the other in the same run, on the same data; ratios are what counts, as
machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import workload
from benchmarks.measure import Measured, measure
from benchmarks.table import Row, show
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess, find_etcd
from testbed import binaries

PYTHON = sys.executable
MIB = 1 << 20
ETCD_FLAGS = ["--unsafe-no-fsync", "--quota-backend-bytes=8589934592", "--log-level=error"]
RESTORE_MIB = 220
"""A sixth of the 1,320 MB that etcdbrctl takes for R; see docs/proposals/02."""


def main() -> int:
    """Make the workload, run every case, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=workload.SIZES, default="small")
    parser.add_argument("--etcd", default="3.5", choices=binaries.LINES, help="the line of etcd to use")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    size = workload.SIZES[given.size]
    etcd = binaries.etcd(given.etcd)
    with tempfile.TemporaryDirectory(prefix="rootcellar-bench-", dir=given.scratch) as directory:
        scratch = Path(directory)
        rows = _bars(scratch, size, etcd, given.runs)
    print(f"\n{size.name}: {size.keys:,} keys of {size.value:,} bytes,", end=" ")
    print(f"then {size.revisions:,} revisions of one event of {size.event} bytes")
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, etcd {etcd.version};", end=" ")
    print(f"medians of {given.runs}\n")
    if size.is_bar:
        return show(rows)
    show([row._replace(holds=None) for row in rows])
    print("\nThe bars are for --size R: here the start of the interpreter is most of the time.")
    return 0


def _bars(scratch: Path, size: workload.Size, etcd: binaries.EtcdBinaries, runs: int) -> list[Row]:
    store = scratch / "store"
    capture, save = _captured(scratch, store, size, etcd, runs)
    replays = [_replay(store, etcd, scratch) for _ in range(max(1, runs - 2))]
    restores = [_case("restore", store, _fresh(scratch / "restored")) for _ in range(runs)]
    stages = [_case("stages", store, scratch) for _ in range(runs)]
    fulls = [_case("restore", store, _fresh(scratch / "restored"), "full") for _ in range(runs)]
    large = _structure(scratch / "restored" / "member" / "snap" / "db")
    slowest = _median([max(answer["seconds"].values()) for answer, _ in stages])
    full = _median([answer["seconds"]["total"] for answer, _ in fulls])
    ours, theirs = _median([run.seconds for _, run in restores]), _median([run.seconds for run in replays])
    peak, their_peak = max(run.peak for _, run in restores), max(run.peak for run in replays)
    events = _median([answer["events"] / answer["seconds"]["deltas"] for answer, _ in restores])
    capture_s, save_s = _median([run.seconds for run in capture]), _median([run.seconds for run in save])
    capture_peak = max(run.peak for run in capture)
    return [
        _ratio("restore, wall time against replay", ours, theirs, 1 / 6, "s"),
        Row(
            "restore, peak memory",
            f"{peak:.0f} MiB (replay: {their_peak:.0f})",
            f"{RESTORE_MIB} MiB",
            peak < RESTORE_MIB,
        ),
        _ratio("restore of the full alone against its slowest stage", full, slowest, 1.3, "s"),
        _ratio("capture of the full with gzip against save", capture_s, save_s, 1.5, "s"),
        Row("capture, peak memory", f"{capture_peak:.0f} MiB", "180 MiB", capture_peak < 180),
        Row("deltas applied, with fsync", f"{events:,.0f} events/s", "200,000 events/s", events >= 200_000),
        _speed(f"structure proof, values of {size.value:,} bytes", large, 500),
        *([_small_values(scratch, etcd), _updates(scratch)] if size.is_bar else []),
        _help(runs),
    ]


def _captured(
    scratch: Path, store: Path, size: workload.Size, etcd: binaries.EtcdBinaries, runs: int
) -> tuple[list[Measured], list[Measured]]:
    """Fill a real etcd, capture it (and save it with etcdctl) `runs` times, then ten deltas behind it."""
    saves, captures = [], []
    with (
        EtcdProcess(find_etcd(etcd.etcd), scratch / "source", flags=ETCD_FLAGS) as process,
        EtcdClient([process.client_url]) as client,
    ):
        process.wait_ready(client)
        workload.fill(client, size)
        for _ in range(runs):
            shutil.rmtree(store, ignore_errors=True)
            saved = scratch / "saved.db"
            saved.unlink(missing_ok=True)
            command = [str(etcd.etcdctl), f"--endpoints={process.client_url}", "snapshot", "save", str(saved)]
            saves.append(measure(command))
            saved.unlink()
            captures.append(_rootcellar("snapshot", "full", str(store), "--endpoints", process.client_url))
        for part in range(workload.DELTAS):
            workload.change(client, size, part)
            _rootcellar("snapshot", "delta", str(store), "--endpoints", process.client_url)
    shutil.rmtree(scratch / "source")
    return captures, saves


def _small_values(scratch: Path, etcd: binaries.EtcdBinaries) -> Row:
    """The structure proof where elements are many and small."""
    data_dir = scratch / "small-values"
    with (
        EtcdProcess(find_etcd(etcd.etcd), data_dir, flags=ETCD_FLAGS) as process,
        EtcdClient([process.client_url]) as client,
    ):
        process.wait_ready(client)
        workload.fill(client, workload.SMALL_VALUES)
    row = _speed(
        f"structure proof, values of {workload.SMALL_VALUES.value} bytes",
        _structure(data_dir / "member" / "snap" / "db"),
        250,
    )
    shutil.rmtree(data_dir)
    return row


def _structure(database: Path) -> float:
    """MB/s."""
    answer, _ = _case("structure", database)
    return float(answer["size"] / answer["check"] / 1e6)


def _speed(what: str, speed: float, bar: int) -> Row:
    return Row(what, f"{speed:,.0f} MB/s", f"{bar} MB/s", speed >= bar)


def _updates(scratch: Path) -> Row:
    """Five million updates with compactions recorded."""
    store = scratch / "updates"
    measure([PYTHON, "-m", "benchmarks.updates", str(store)])
    answer, run = _case("restore", store, _fresh(scratch / "restored"))
    figure = f"{answer['size'] / MIB:,.0f} MiB, in {run.seconds:.0f} s and {run.peak:.0f} MiB of memory"
    return Row("5 million updates over 10,000 keys", figure, "2,048 MiB", answer["size"] < 2048 * MIB)


def _replay(store: Path, etcd: binaries.EtcdBinaries, scratch: Path) -> Measured:
    place = _fresh(scratch / "replay")
    place.mkdir()
    return measure([PYTHON, "-m", "benchmarks.yardstick", str(store), str(etcd.etcd.parent), str(place)])


def _rootcellar(*arguments: str) -> Measured:
    return measure([PYTHON, "-m", "rootcellar", *arguments])


def _case(*arguments: object) -> tuple[dict[str, Any], Measured]:
    measured = measure([PYTHON, "-m", "benchmarks.cases", *map(str, arguments)])
    return json.loads(measured.output), measured


def _help(runs: int) -> Row:
    """`--help` against the start of a bare interpreter, which no program in Python can beat."""
    bare = _median([measure([PYTHON, "-c", "pass"]).seconds for _ in range(2 * runs)])
    helped = _median([_rootcellar("--help").seconds for _ in range(2 * runs)])
    figure = f"{1000 * helped:.0f} ms (bare interpreter {1000 * bare:.0f} ms)"
    return Row("`--help`", figure, "150 ms", helped < 0.15)


def _ratio(what: str, ours: float, theirs: float, bar: float, unit: str) -> Row:
    return Row(
        what,
        f"{ours:.2f} against {theirs:.2f} {unit}: {ours / theirs:.2f}",
        f"{bar:.2f}",
        ours / theirs <= bar,
    )


def _fresh(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    return path


def _median(values: list[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    sys.exit(main())
