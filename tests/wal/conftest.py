"""Logs made record by record, as etcd writes them."""

import pytest

from rootcellar.wal.frames import CRC, ENTRY, METADATA, SNAPSHOT, STATE, FrameWriter
from rootcellar.wal.messages import ConfState, HardState, Metadata, SnapshotMark, encode_entry
from rootcellar.wal.segments import segment_name

MEMBER, CLUSTER = 0x5C76A90AE78BCEE7, 0x2C535A0000C53066


class LogMaker:
    """Writes a WAL.  `cut` begins the next segment; `boundaries` are where frames begin and end in it."""

    def __init__(self, directory):
        self.directory = directory
        self.directory.mkdir()
        self._frames = FrameWriter()
        self._sequence = -1
        self.cut(0)
        self.mark(0, 0)

    def cut(self, index, cluster=CLUSTER):
        self._sequence += 1
        self.path = self.directory / segment_name(self._sequence, index)
        self.boundaries = [0]
        self.record(CRC)
        self.record(METADATA, Metadata(MEMBER, cluster).encode())

    def record(self, record_type, data=None):
        self.raw(self._frames.frame(record_type, data))

    def raw(self, data):
        with self.path.open("ab") as file:
            file.write(data)
            self.boundaries.append(file.tell())

    def entry(self, index, term=1, data=b"x", entry_type=0):
        self.record(ENTRY, encode_entry(entry_type, term, index, data))

    def state(self, commit, term=1, vote=MEMBER):
        self.record(STATE, HardState(term, vote, commit).encode())

    def mark(self, index, term=1, voters=(MEMBER,)):
        self.record(SNAPSHOT, SnapshotMark(index, term, ConfState(voters) if index else None).encode())


@pytest.fixture
def log(tmp_path):
    return LogMaker(tmp_path / "wal")
