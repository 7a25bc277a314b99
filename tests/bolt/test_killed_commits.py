"""A commit killed at any write, or in the middle of one, leaves the old state or the new one, whole."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from rootcellar.bolt.append import Transaction
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from tests.backup.killing import Killer
from tests.bolt.files import bbolt_dump, bucket, dump, make
from tests.bolt.test_appending import contents, rows


@pytest.fixture(scope="module")
def killer():
    with Killer() as killer:
        yield killer


@pytest.fixture
def sound(boltcheck, tmp_path):
    shape = bucket("key", 500, key_size=[17, 18], sequential=True, transactions=4)
    return make(boltcheck, tmp_path / "sound", shape, bucket("meta", 3), page_size=4096, unsynced=True)


def change(path, *, both_metas):
    after = max(contents(path)[b"key"])
    with Transaction(path) as transaction:
        transaction.edge(b"key").append(*rows(after, 700, 1, (0, 300)))
        transaction.replace(b"new", [(b"k", bytes(30_000))])
        transaction.replace(b"meta", [(b"a", b"b")])
        transaction.commit(both_metas=both_metas)


def change_until(path, at, torn, both_metas):
    """Die before write or sync number `at`, or in the middle of it."""
    count = 0

    def dying(real, half):
        def call(*arguments):
            nonlocal count
            count += 1
            if count > at:
                if torn:
                    half(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments)

        return call

    write, pwrite, fsync = Transaction.write_pages, os.pwrite, os.fsync

    Transaction.write_pages = dying(write, lambda self, image: write(self, image[: len(image) // 2 + 7]))
    os.pwrite = dying(pwrite, lambda handle, data, where: pwrite(handle, data[:60], where))
    os.fsync = dying(fsync, lambda _handle: None)
    change(path, both_metas=both_metas)


@pytest.mark.parametrize("both_metas", [False, True])
@pytest.mark.parametrize("torn", [False, True])
def test_a_killed_commit_leaves_the_old_or_the_new_state(
    boltcheck, killer, sound, tmp_path, torn, both_metas
):
    old = contents(sound)
    path = tmp_path / "db"
    shutil.copyfile(sound, path)
    change(path, both_metas=both_metas)
    new = contents(path)
    assert len(new[b"key"]) == len(old[b"key"]) + 700

    outcomes = []
    for at in range(1000):
        shutil.copyfile(sound, path)
        if not killer.run(change_until, path, at, torn, both_metas):
            break
        outcomes.append(contents(path))
        assert outcomes[-1] in (old, new)
        with BoltFile(path) as file:
            check(file)
        assert dump(path) == bbolt_dump(boltcheck, path)
        # Whoever comes next can go on: what was left behind is overwritten.
        change(path, both_metas=False)
        assert len(contents(path)[b"key"]) == len(outcomes[-1][b"key"]) + 700
        assert boltcheck("check", path).returncode == 0
    assert outcomes[0] == old
    assert outcomes[-1] == new
    assert len(outcomes) > 5
