from __future__ import annotations

import sys

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.documents import put_once
from rootcellar.stores.file import FileStore
from tests.backup.builders import full
from tests.backup.killing import Killer


def count_records(directory):
    sys.setswitchinterval(1e-6)
    assert len(read_catalogue(FileStore(directory)).lost) == 20


def test_a_fresh_process_reads_many_documents_at_once(tmp_path):
    """Msgspec learns a class at its first use, and crashes the process where two threads meet there."""
    store = FileStore(tmp_path)
    for last in range(20):
        record = full(last + 1, recorded=True).record
        put_once(store, f"catalogue/records/full_00000000_{last + 1:08d}_1700000000.gz.json", record)
    with Killer() as killer:
        for _ in range(30):
            assert not killer.run(count_records, tmp_path)
