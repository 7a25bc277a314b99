from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rootcellar.stores.file import FileStore
from tests.backup.ebr_data import EBR, EBR_NAMES, EBR_PREFIX

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class EbrBackup:
    """A backup that EBR wrote, in a directory of the test's own."""

    root: Path
    store: FileStore
    expected: dict[str, Any]


@pytest.fixture(params=EBR_NAMES)
def ebr_backup(request, tmp_path) -> EbrBackup:
    root = tmp_path / "ebr"
    shutil.copytree(EBR / request.param / "store" / EBR_PREFIX, root)
    expected = json.loads((EBR / request.param / "expected.json").read_text())
    return EbrBackup(root, FileStore(root), expected)


@pytest.fixture
def store(tmp_path) -> FileStore:
    return FileStore(tmp_path / "store")
