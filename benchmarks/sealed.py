"""What zstd and encryption cost: a full captured and restored in the clear, as zstd, and encrypted.

`python -m benchmarks.sealed --size R` prints the table; medians, and the highest peak of all runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import workload
from benchmarks.measure import Measured, measure
from rootcellar.backup.objects.sealing.keyring import Identity, write_identity
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess, find_etcd
from testbed import binaries

HOWS = {"gzip": ("gzip", False), "zstd": ("zstd", False), "gzip, encrypted": ("gzip", True)} | {
    "zstd, encrypted": ("zstd", True)
}
_FLAGS = ["--unsafe-no-fsync", "--quota-backend-bytes=8589934592", "--log-level=error"]


def main() -> int:
    """Fill an etcd, capture and restore it each way in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=workload.SIZES, default="small")
    parser.add_argument("--etcd", default="3.5", choices=binaries.LINES)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    etcd = binaries.etcd(given.etcd)
    with tempfile.TemporaryDirectory(prefix="rootcellar-bench-", dir=given.scratch) as directory:
        scratch = Path(directory)
        configs = _configured(scratch)
        captures: dict[str, list[Measured]] = {how: [] for how in HOWS}
        with (
            EtcdProcess(find_etcd(etcd.etcd), scratch / "source", flags=_FLAGS) as process,
            EtcdClient([process.client_url]) as client,
        ):
            process.wait_ready(client)
            workload.fill(client, workload.SIZES[given.size])
            for _ in range(given.runs):
                for how in HOWS:
                    shutil.rmtree(scratch / how, ignore_errors=True)
                    words = ["snapshot", "full", "@main", "--endpoints", process.client_url]
                    captures[how].append(_rootcellar(configs[how], *words, "--compression", HOWS[how][0]))
        restores: dict[str, list[Measured]] = {how: [] for how in HOWS}
        for _ in range(given.runs):
            for how in HOWS:
                data = scratch / "data"
                shutil.rmtree(data, ignore_errors=True)
                words = ["restore", "@main", "--data-dir", str(data), "--quota", "0", "--trial"]
                restores[how].append(_rootcellar(configs[how], *words))
        print(f"{given.size}, {os.cpu_count()} cores, medians of {given.runs}\n")
        print("| full as | stored | capture | | restore | |\n|---|---|---|---|---|---|")
        for how in HOWS:
            objects = (path for path in (scratch / how).rglob("*ull*") if path.suffix != ".json")
            stored = sum(path.stat().st_size for path in objects if path.is_file()) / (1 << 20)
            print(f"| {how} | {stored:.0f} MiB | {_told(captures[how])} | {_told(restores[how])} |")
    return 0


def _configured(scratch: Path) -> dict[str, Path]:
    """A configuration for each way to write."""
    identity = Identity.new()
    write_identity(identity, scratch / "key")
    paths = {}
    for how, (_, encrypts) in HOWS.items():
        paths[how] = scratch / f"{how}.yaml"
        wish = f", encryption: {{recipients: [{identity.recipient}]}}" if encrypts else ""
        store = f"name: main, url: 'file://{scratch / how}', identities: {{file: {scratch / 'key'}}}{wish}"
        paths[how].write_text(f"stores: [{{{store}}}]\n")
    return paths


def _rootcellar(config: Path, *words: str) -> Measured:
    return measure([sys.executable, "-m", "rootcellar", *words, "--config", str(config)])


def _told(runs: list[Measured]) -> str:
    return f"{statistics.median(run.seconds for run in runs):.2f} s | {max(run.peak for run in runs):.0f} MiB"


if __name__ == "__main__":
    sys.exit(main())
