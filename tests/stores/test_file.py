"""What only a directory does: crashes at every step, symlinks, modes, file systems that lack something."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import (
    AlreadyExistsError,
    NotFoundError,
    TransientError,
    UnsupportedError,
    UsageError,
)
from rootcellar.stores import Create, FileStore, ReplaceIf, Retention, directories
from rootcellar.stores.file import LEFTOVER_AGE
from tests.stores.conformance import MANY, ODD_KEYS, put_all
from tests.stores.places import keys_of, temporaries
from tests.stores.scripts import race_to_create, run_script

ANCIENT = LEFTOVER_AGE + timedelta(minutes=1)

KILLED = """
    import os, signal, sys
    from rootcellar.stores import Create, FileStore

    root, verb, function, number, moment = sys.argv[1:]
    calls = 0

    def dying(real):
        def call(*arguments, **options):
            global calls
            calls += 1
            if calls == int(number) and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments, **options)
            if calls == int(number) and moment == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return call

    def chunks():
        yield b"new " * 500_000
        if function == "write":
            os.kill(os.getpid(), signal.SIGKILL)
        yield b"new"

    store = FileStore(root)
    store.list()
    if function != "write":
        setattr(os, function, dying(getattr(os, function)))
    if verb == "delete":
        store.delete("v2/key")
    else:
        store.put("v2/key", chunks(), condition=Create() if verb == "create" else None)
    print("survived")
"""

NEW = b"new " * 500_000 + b"new"


# The first fsync is of the file, the others are of v2 and of the root, which are there already.
BEFORE_PUBLISHING = [("write", 0, "-"), ("fsync", 1, "before"), ("fsync", 1, "after")]
OVERWRITING = [("rename", 1, "before")]
OVERWRITTEN = [("rename", 1, "after"), ("fsync", 2, "before"), ("fsync", 2, "after"), ("fsync", 3, "before")]
CREATING = [("link", 1, "before")]
CREATED = [("link", 1, "after"), ("fsync", 2, "before"), ("fsync", 2, "after"), ("fsync", 3, "before")]


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(root):
    return FileStore(root)


def killed(root, verb, function, number, moment):
    done = run_script(KILLED, root, verb, function, number, moment)
    assert done.returncode == -signal.SIGKILL, done.stderr


def usable_again(root):
    """Another process finds the store as it should be, and can sweep what is left."""
    store = FileStore(root)
    assert all(not key.startswith(".") for key in keys_of(store.list()))
    left = temporaries(root)
    assert store.abort_leftovers(timedelta(0)) == len(left)
    assert temporaries(root) == []
    store.put("v2/key", [b"later"])
    assert b"".join(store.get("v2/key")) == b"later"
    return left


@pytest.mark.parametrize("point", BEFORE_PUBLISHING + OVERWRITING, ids=str)
def test_killed_before_the_rename_the_old_object_stays(root, store, point):
    store.put("v2/key", [b"old"])
    killed(root, "overwrite", *point)
    assert b"".join(store.get("v2/key")) == b"old"
    assert keys_of(store.list()) == ["v2/key"]
    assert len(usable_again(root)) == 1


@pytest.mark.parametrize("point", OVERWRITTEN, ids=str)
def test_killed_after_the_rename_the_new_object_is_whole(root, store, point):
    store.put("v2/key", [b"old"])
    killed(root, "overwrite", *point)
    assert b"".join(store.get("v2/key")) == NEW
    assert usable_again(root) == []


@pytest.mark.parametrize("point", BEFORE_PUBLISHING + CREATING, ids=str)
def test_killed_before_the_link_nothing_is_there(root, store, point):
    store.put("v2/other", [b"other"])
    killed(root, "create", *point)
    with pytest.raises(NotFoundError):
        store.stat("v2/key")
    assert keys_of(store.list()) == ["v2/other"]
    assert len(usable_again(root)) == 1


@pytest.mark.parametrize("point", CREATED, ids=str)
def test_killed_after_the_link_the_object_is_whole(root, store, point):
    store.put("v2/other", [b"other"])
    killed(root, "create", *point)
    assert b"".join(store.get("v2/key")) == NEW
    with pytest.raises(AlreadyExistsError):
        store.put("v2/key", [b"second"], condition=Create())
    usable_again(root)


@pytest.mark.parametrize(
    "point", [("mkdir", 1, "before"), ("mkdir", 1, "after"), ("mkdir", 2, "after")], ids=str
)
def test_killed_while_directories_are_made_nothing_is_there(root, point):
    killed(root, "create", *point)
    assert keys_of(FileStore(root).list()) == []
    assert usable_again(root) == []


@pytest.mark.parametrize(
    ("point", "there"),
    [
        (("unlink", 1, "before"), True),
        (("unlink", 1, "after"), False),
        (("fsync", 1, "before"), False),
        (("rmdir", 1, "before"), False),
        (("rmdir", 1, "after"), False),
        (("fsync", 2, "before"), False),
    ],
    ids=str,
)
def test_killed_while_deleting_the_object_is_there_or_not(root, store, point, there):
    store.put("v2/key", [b"old"])
    killed(root, "delete", *point)
    assert keys_of(store.list()) == (["v2/key"] if there else [])
    store.delete("v2/key")
    assert keys_of(store.list()) == []
    usable_again(root)


def test_a_put_sweeps_what_a_dead_writer_left_a_day_ago(root, store):
    killed(root, "create", "write", 0, "-")
    (left,) = temporaries(root)
    store.put("v2/a", [b"x"])
    assert temporaries(root) == [left]
    then = time.time() - ANCIENT.total_seconds()
    os.utime(left, (then, then))
    FileStore(root).put("v2/b", [b"x"])
    assert temporaries(root) == []


def test_a_writer_that_lives_is_never_swept(root, store):
    swept = []

    def slowly():
        yield b"some"
        (left,) = temporaries(root)
        then = time.time() - ANCIENT.total_seconds()
        os.utime(left, (then, then))
        swept.append(FileStore(root).abort_leftovers(timedelta(0)))
        FileStore(root).put("v2/neighbour", [b"x"])
        yield b"thing"

    store.put("v2/key", slowly())
    assert swept == [0]
    assert b"".join(store.get("v2/key")) == b"something"


def test_many_processes_create_and_one_wins(root):
    won = race_to_create(root, "", 4, 50)
    assert sorted(int(number) for numbers in won for number in numbers) == list(range(50))
    store = FileStore(root)
    for racer, numbers in enumerate(won):
        assert {b"".join(store.get(f"v2/{number}")) for number in numbers} <= {str(racer).encode()}


def test_putting_and_deleting_fight_over_a_directory_and_nobody_is_hurt(store):
    """A delete removes the directory that it empties, perhaps just when a put has made it."""

    def cycle(number):
        for _ in range(60):
            store.put(f"a/b/{number}", [b"x"])
            store.delete(f"a/b/{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(cycle, range(4)))
    assert keys_of(store.list()) == []


# directories


def test_empty_directories_are_removed_and_the_root_stays(root, store):
    store.put("a/b/c/d", [b"x"])
    store.put("a/x", [b"x"])
    store.delete("a/b/c/d")
    assert sorted(path.name for path in (root / "a").iterdir()) == ["x"]
    store.delete("a/x")
    assert [path.name for path in root.iterdir()] == [".lock"]


def test_only_the_owner_can_read(root, store):
    before = os.umask(0)
    try:
        store.put("v2/key", [b"x"])
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}
    assert modes == {"store": 0o700, ".lock": 0o600, "v2": 0o700, "key": 0o600}


def test_an_object_cannot_be_where_a_directory_is(store):
    store.put("a/b", [b"x"])
    with pytest.raises(UsageError, match="directory of other keys"):
        store.put("a", [b"x"])
    with pytest.raises(UsageError, match="an object, not a directory"):
        store.put("a/b/c", [b"x"])
    store.delete("a")
    store.delete("a/b/c")
    assert keys_of(store.list()) == ["a/b"]


@pytest.mark.parametrize(
    "key", ["../secret", "/etc/passwd", "a/../../secret", "", "a//b", ".lock", ".put-1", "a/."]
)
def test_no_key_leads_out_of_the_store(tmp_path, store, key):
    (tmp_path / "secret").write_bytes(b"secret")
    store.put("a/b", [b"x"])
    for attempt in (store.stat, lambda key: list(store.get(key)), store.delete):
        with pytest.raises(UsageError, match="leads out of the store"):
            attempt(key)
    assert (tmp_path / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("prefix", ["../", "/etc/", "a/../../"])
def test_no_listing_leads_out_of_the_store(store, prefix):
    with pytest.raises(UsageError, match="leads out of the store"):
        list(store.list(prefix))


def test_a_symlink_in_the_store_is_refused(tmp_path, root, store):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_bytes(b"secret")
    store.put("a/b", [b"x"])
    (root / "link").symlink_to(outside)
    (root / "a" / "file").symlink_to(outside / "key")
    for key in ("link/key", "a/file"):
        for attempt in (
            store.stat,
            lambda key: list(store.get(key)),
            lambda key: store.put(key, [b"x"]),
            lambda key: store.put(key, [b"x"], condition=ReplaceIf("x")),
            store.delete,
        ):
            with pytest.raises(UsageError, match="is a symlink"):
                attempt(key)
    with pytest.raises(UsageError, match="is a symlink"):
        list(store.list())
    with pytest.raises(UsageError, match="is a symlink"):
        list(store.list("link/"))
    assert (outside / "key").read_bytes() == b"secret"
    with pytest.raises(AlreadyExistsError):
        store.put("a/file", [b"x"], condition=Create())


def test_the_root_itself_may_be_a_symlink(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    FileStore(tmp_path / "link").put("a/b", [b"x"])
    assert keys_of(FileStore(tmp_path / "real").list()) == ["a/b"]


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="is no directory"):
        list(FileStore(tmp_path / "file").list())
    with pytest.raises(UsageError, match="not a directory"):
        FileStore(tmp_path / "file").put("a", [b"x"])


def test_a_root_that_is_a_dangling_symlink_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(NotFoundError):
        FileStore(tmp_path / "link").put("a", [b"x"])


def test_what_is_no_object_is_not_listed(root, store):
    store.put("a/b", [b"x"])
    os.mkfifo(root / "a" / "pipe")
    (root / "a" / os.fsdecode(b"caf\xe9")).write_bytes(b"not UTF-8")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "key").write_bytes(b"x")
    assert keys_of(store.list()) == ["a/b"]
    with pytest.raises(NotFoundError):
        list(store.get("a/pipe"))


@pytest.mark.parametrize("page", [1, 2, 3, 7])
def test_a_directory_larger_than_a_page_is_listed_in_order(store, monkeypatch, page):
    monkeypatch.setattr(directories, "PAGE", page)
    put_all(store, ODD_KEYS)
    ordered = sorted(ODD_KEYS, key=str.encode)
    assert keys_of(store.list()) == ordered
    assert keys_of(store.list(after=ordered[9])) == ordered[10:]


def test_what_is_deleted_during_a_listing_is_skipped(store):
    put_all(store, MANY[:50])
    listing = store.list()
    first = next(listing).key
    store.delete_many(MANY[10:])
    assert {first, *keys_of(listing)} <= {*MANY[:50]}


segment = st.text("ab-.!0é", min_size=1, max_size=3).filter(lambda text: not text.startswith("."))
some_keys = st.sets(st.lists(segment, min_size=1, max_size=3).map("/".join), max_size=12)


@given(some_keys, st.text("ab-.!0é/", max_size=5), st.data())
def test_any_listing_is_the_sorted_keys(tmp_path_factory, keys, after, data):
    keys = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    store = FileStore(tmp_path_factory.mktemp("any"))
    for key in keys:
        store.put(key, [b""])
    prefix = data.draw(st.sampled_from(["", *keys])).rpartition("/")[0]
    prefix = f"{prefix}/" if prefix else ""
    expected = [key for key in sorted(keys, key=str.encode) if key.encode() > after.encode()]
    assert keys_of(store.list(after=after)) == expected
    assert keys_of(store.list(prefix, after=after)) == [key for key in expected if key.startswith(prefix)]


# reading


def test_a_reader_keeps_the_object_it_began_to_read(store):
    old = b"old" * 1_000_000
    store.put("key", [old])
    chunks = store.get("key")
    begun = next(chunks)
    store.put("key", [b"new"])
    store.delete("key")
    assert begun + b"".join(chunks) == old


def test_a_file_that_shrinks_under_the_reader_is_cut_short(root, store):
    store.put("key", [b"x" * 3_000_000])
    chunks = store.get("key")
    next(chunks)
    os.truncate(root / "key", 10)
    with pytest.raises(TransientError, match="cut short"):
        list(chunks)


# what a file store has not


def test_versions_and_retention_are_unsupported(store):
    store.put("key", [b"x"])
    for attempt in (
        lambda: list(store.versions()),
        lambda: store.retention("key"),
        lambda: store.set_retention("key", Retention(legal_hold=True)),
        lambda: store.stat("key", version="1"),
        lambda: list(store.get("key", version="1")),
        lambda: store.delete("key", version="1"),
    ):
        with pytest.raises(UnsupportedError, match="a file store has no"):
            attempt()
    assert keys_of(store.list()) == ["key"]
