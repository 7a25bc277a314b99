"""Files that bbolt wrote, and what our reader makes of a file, in the form of `boltcheck dump`."""

from __future__ import annotations

import hashlib
import json
import struct

from rootcellar.bolt.file import BoltFile

SMALL = {"key_size": [1, 40], "value_size": [0, 60]}


def bucket(name, keys, **spec):
    """A specification for `boltcheck make`."""
    return {"name": name, "keys": keys, **SMALL, **spec}


def make(boltcheck, path, *buckets, **spec):
    """Have bbolt write a file."""
    done = boltcheck("make", path, json.dumps({"seed": 1, "buckets": buckets, **spec}))
    assert done.returncode == 0, done.stderr
    return path


def dump(path):
    """What `boltcheck dump` says, by our own reader, but for the depths of trees."""
    with BoltFile(path) as file:
        found = []
        for name, inner in file.root().buckets():
            _dump(found, [name.hex()], inner)
        return {
            "page_size": file.meta.page_size,
            "size": file.size,
            "txid": file.meta.txid,
            "buckets": found,
        }


def _dump(found, path, bucket):
    at = len(found)
    found.append(None)
    digest, rows = hashlib.sha256(), 0
    for key, value in bucket.items():
        rows += 1
        for part in (key, value):
            digest.update(struct.pack(">I", len(part)) + part)
    for name, inner in bucket.buckets():
        _dump(found, [*path, name.hex()], inner)
    found[at] = {
        "path": path,
        "rows": rows,
        "hash": digest.hexdigest(),
        "sequence": bucket.sequence,
        "inline": bucket.is_inline,
    }


def bbolt_dump(boltcheck, path):
    """The same by bbolt."""
    done = boltcheck("dump", path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for each in found["buckets"]:
        del each["depth"]
    return found
