"""A directory on file systems that lack something, are full, or belong to somebody else."""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rootcellar.errors import AlreadyExistsError, DeniedError, StoreError, TransientError, UnsupportedError
from rootcellar.stores import Create, FileStore, ReplaceIf
from tests.stores.places import keys_of, temporaries
from tests.stores.scripts import run_script


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(root):
    return FileStore(root)


@pytest.fixture
def no_links(monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)


@pytest.fixture
def no_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_without_hard_links_one_creator_wins_by_the_lock(store, no_links):
    barrier = threading.Barrier(8, timeout=60)

    def create(number):
        barrier.wait()
        try:
            store.put("key", [bytes([number])], condition=Create())
        except AlreadyExistsError:
            return None
        return number

    with ThreadPoolExecutor(8) as threads:
        (winner,) = [number for number in threads.map(create, range(8)) if number is not None]
    assert b"".join(store.get("key")) == bytes([winner])
    assert store.probe().conditional_create


def test_without_locks_replace_if_is_unsupported_and_the_probe_says_so(store, no_locks):
    old = store.put("key", [b"old"])
    with pytest.raises(UnsupportedError, match="without file locks"):
        store.put("key", [b"new"], condition=ReplaceIf(old.etag))
    found = store.probe()
    assert found.conditional_create
    assert not found.conditional_replace


def test_without_links_and_locks_create_compares_first_and_the_probe_says_so(store, no_links, no_locks):
    store.put("key", [b"first"], condition=Create())
    with pytest.raises(AlreadyExistsError):
        store.put("key", [b"second"], condition=Create())
    assert not store.probe().conditional_create
    assert b"".join(store.get("key")) == b"first"


def test_a_share_that_cannot_sync_directories_is_usable(root, store, monkeypatch):
    real = os.fsync

    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not for directories")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    store.put("v2/key", [b"x"])
    assert keys_of(store.list()) == ["v2/key"]
    store.delete("v2/key")
    assert keys_of(store.list()) == []


UNPRIVILEGED = """
    import os, sys
    from rootcellar.errors import StoreError
    from rootcellar.stores import FileStore

    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    store = FileStore(sys.argv[1])
    for attempt in (
        lambda: [info.key for info in store.list()],
        lambda: store.put("v2/new", [b"x"]),
        lambda: list(store.get("v2/key")),
    ):
        try:
            print(attempt())
        except StoreError as error:
            print(type(error).__name__)
"""


@pytest.fixture
def foreign_root():
    """A store that another user can reach but not change; pytest's own directories are for their owner
    only.
    """
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    for below in directory.iterdir():
        below.chmod(0o700)  # or only root can remove what is in it
    shutil.rmtree(directory)


def test_what_is_not_ours_is_denied(foreign_root):
    FileStore(foreign_root).put("v2/key", [b"x"])
    (foreign_root / "v2").chmod(0o555)
    (foreign_root / "v2" / "key").chmod(0o000)
    done = run_script(UNPRIVILEGED, foreign_root)
    assert done.stdout.split("\n")[:3] == ["['v2/key']", "DeniedError", "DeniedError"], done.stderr


def test_a_mount_points_lost_and_found_is_no_obstacle(foreign_root):
    FileStore(foreign_root).put("v2/key", [b"x"])
    (foreign_root / "v2").chmod(0o755)
    (foreign_root / "lost+found").mkdir(0o000)
    done = run_script(UNPRIVILEGED, foreign_root)
    assert done.stdout.startswith("['v2/key']\n"), done.stderr


def test_a_full_disk_is_told_and_leaves_nothing(root, store):
    script = """
        import resource, signal, sys
        from rootcellar.errors import StoreError
        from rootcellar.stores import FileStore

        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            FileStore(sys.argv[1]).put("v2/key", iter([b"x" * 700_000] * 4))
        except StoreError as error:
            print(type(error).__name__, error)
    """
    store.put("v2/other", [b"x"])
    done = run_script(script, root)
    assert done.stdout.strip().endswith("v2/key: File too large"), done.stderr
    assert keys_of(store.list()) == ["v2/other"]
    assert temporaries(root) == []


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, StoreError, "no space left"),
        (errno.EDQUOT, StoreError, "the disk quota is used up"),
        (errno.EROFS, DeniedError, "the file system is read-only"),
        (errno.EIO, StoreError, "Input/output error"),
        (errno.ESTALE, TransientError, "the network file system lost the file"),
    ],
)
def test_a_failing_fsync_fails_the_put(root, store, monkeypatch, number, kind, words):
    def fail(fd):
        raise OSError(number, os.strerror(number))

    store.put("v2/key", [b"old"])
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match=words) as caught:
        store.put("v2/key", [b"new"])
    assert type(caught.value) is kind
    assert b"".join(store.get("v2/key")) == b"old"
    assert temporaries(root) == []
