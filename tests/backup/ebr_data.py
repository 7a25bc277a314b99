"""Where the backups that EBR wrote lie; see tests/data/ebr/README.md."""

from __future__ import annotations

from pathlib import Path

EBR = Path(__file__).parents[1] / "data" / "ebr"
EBR_NAMES = ("gzip-3.4", "gzip-3.5", "lzw-3.5", "none-compacted-3.5", "zlib-leases-3.5")
EBR_PREFIX = "cluster-a/etcd-main"
