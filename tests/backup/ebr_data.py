"""The backups that EBR wrote; see tests/data/ebr/README.md.

A copy for this process, because who reads a backup pins it there meanwhile.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

_COPY = tempfile.TemporaryDirectory(prefix="rootcellar-ebr-")
atexit.register(_COPY.cleanup)

EBR = Path(shutil.copytree(Path(__file__).parents[1] / "data" / "ebr", Path(_COPY.name) / "ebr"))
EBR_NAMES = ("gzip-3.4", "gzip-3.5", "lzw-3.5", "none-compacted-3.5", "zlib-leases-3.5")
EBR_PREFIX = "cluster-a/etcd-main"
