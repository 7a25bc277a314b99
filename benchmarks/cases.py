"""One measured thing per run, in a process of its own: `python -m benchmarks.cases NAME ARGUMENT...`.

Each prints one JSON object.  Wall time and memory of the whole process are taken from outside.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, Latest
from rootcellar.backup.objects import codecs
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.backup.restore.restore import restore as carry_out
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.stores.file import FileStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Answer = dict[str, object]


def restore(store: str, data_dir: str, what: str = "all") -> Answer:
    """A whole restore; `full`: of the newest full alone."""
    place = FileStore(Path(store))
    catalogue = read_catalogue(place)
    target: Latest | AtRevision = Latest()
    if what == "full":
        target = AtRevision(max(each.last for each in catalogue.snapshots if each.is_full))
    plan = plan_restore(catalogue, place.url, Wish(target, "bench", bump_revision=0, quota=0))
    done = carry_out(plan, place, {"default": Path(data_dir)})
    assert done is not None
    return {
        "seconds": done.seconds,
        "events": done.events,
        "size": done.size,
        "hash": done.hashkv.hash,
        "revision": done.revision,
    }


def stages(store: str, scratch: str) -> Answer:
    """What a restore of the full consists of, each stage alone: decompress, hash, write (with fsync)."""
    key = next(info.key for info in FileStore(Path(store)).list("v2/Full"))
    name = names.parse(key)
    assert name is not None
    path, target = Path(store) / key, Path(scratch) / "stage"

    def stored() -> Iterator[bytes]:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                yield chunk

    def decompressed() -> Iterator[bytes]:
        return codecs.decompress(stored(), name.suffix)

    seconds = {"decompress": _timed(lambda: sum(map(len, decompressed())))}
    plain = Path(scratch) / "plain"
    with plain.open("wb") as file:
        for chunk in decompressed():
            file.write(chunk)
    digest = hashlib.sha256()
    data = plain.read_bytes()
    plain.unlink()
    pieces = [data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20)]

    def hash_all() -> None:
        for piece in pieces:
            digest.update(piece)

    seconds["hash"] = _timed(hash_all)

    def write() -> None:
        with target.open("wb", buffering=0) as file:
            for piece in pieces:
                file.write(piece)
            os.fsync(file.fileno())

    seconds["write"] = _timed(write)
    target.unlink()
    return {"seconds": seconds, "size": len(data)}


def structure(database: str) -> Answer:
    """The structure proof and HashKV of a database file, read from the page cache."""
    with BoltFile(Path(database)) as file:
        hash_kv(file)
        return {
            "size": file.size,
            "check": min(_timed(lambda: check(file)) for _ in range(3)),
            "hash": min(_timed(lambda: hash_kv(file)) for _ in range(3)),
        }


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


CASES: dict[str, Callable[..., Answer]] = {"restore": restore, "stages": stages, "structure": structure}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))
