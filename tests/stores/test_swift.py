"""SwiftStore on a real Swift: large objects of ours and of etcd-backup-restore, and faults on the line."""

import itertools
import json
from datetime import timedelta

import pytest

from rootcellar.errors import (
    AlreadyExistsError,
    NotFoundError,
    StoreError,
    TransientError,
    UnsupportedError,
    UsageError,
)
from rootcellar.stores import Create, Retention, RetryingStore
from rootcellar.stores.swift import segments
from rootcellar.stores.swift.listing import Listing
from rootcellar.stores.swift.options import SwiftOptions
from tests.stores.breaking import probed
from tests.stores.conformance import content, exploding
from tests.stores.places import QUICK, SMALL_PART, keys_of
from tests.stores.proxy import Answer, CutDown, CutUp, Proxy, Reset, refusal
from tests.stores.scripts import run_script
from tests.stores.swift_place import segments_in, swift_store, unused_segments

FOREVER = float("inf")
NOW = timedelta(0)


@pytest.fixture
def store(container):
    return swift_store(container, "etcd")


@pytest.fixture
def line(swift, container):
    """A store behind a proxy, which is `line.proxy`."""

    class Line:
        def __init__(self, proxy):
            self.proxy = proxy
            self.store = swift_store(container, "etcd", auth=f"{proxy.endpoint}/auth/v1.0")
            self.direct = swift_store(container, "etcd")

        def path(self, key):
            return f"/{container.name}/etcd/{key}".encode()

    with Proxy(swift.port) as proxy:
        yield Line(proxy)


def put_dynamic(container, name, *parts):
    """As etcd-backup-restore uploads."""
    for number, part in enumerate(parts, 1):
        container.ask("PUT", f"{name}/{number:010d}", part)
    container.ask("PUT", name, headers={"X-Object-Manifest": f"{container.name}/{name}"})


# large objects


def test_a_large_object_is_one_object_and_segments_that_no_listing_shows(container, store):
    store.put("v2/Full-1.gz", [content(2 * SMALL_PART + 1)])
    assert keys_of(store.list()) == ["v2/Full-1.gz"]
    assert keys_of(swift_store(container).list()) == ["etcd/v2/Full-1.gz"]
    assert len(segments_in(container)) == 3
    manifest = json.loads(container.ask("GET", "etcd/v2/Full-1.gz", query="?multipart-manifest=get"))
    assert [part["bytes"] for part in manifest] == [SMALL_PART, SMALL_PART, 1]


@pytest.mark.parametrize("delete", [lambda store: store.delete("a"), lambda store: store.delete_many(["a"])])
def test_deleting_a_large_object_deletes_its_segments_and_no_others(container, store, delete):
    for key in ("a", "b"):
        store.put(key, [content(SMALL_PART + 1)])
    delete(store)
    assert keys_of(store.list()) == ["b"]
    assert len(segments_in(container)) == 2
    assert b"".join(store.get("b")) == content(SMALL_PART + 1)


def test_replacing_a_large_object_deletes_the_old_segments(container, store):
    store.put("key", [content(SMALL_PART + 1, 1)])
    store.put("key", [content(SMALL_PART + 1, 2)])
    assert b"".join(store.get("key")) == content(SMALL_PART + 1, 2)
    assert unused_segments(container) == []


def test_segments_left_by_a_small_put_are_found_later(container, store):
    store.put("key", [content(SMALL_PART + 1)])
    store.put("key", [b"small"])
    assert store.abort_leftovers(timedelta(hours=1)) == 0
    assert len(unused_segments(container)) == 2
    assert store.abort_leftovers(NOW) == 1
    assert container.names() == ["etcd/key"]


def test_a_prefix_is_tidied_alone_and_a_parent_tidies_its_children(container):
    inner, other, outer = (swift_store(container, prefix) for prefix in ("a/etcd", "a/etcd2", "a"))
    for store in (inner, other):
        store.put("key", [content(SMALL_PART + 1)])
        store.put("kept", [content(SMALL_PART + 1)])
        store.put("key", [b"small"])
    assert inner.abort_leftovers(NOW) == 1
    assert outer.abort_leftovers(NOW) == 1
    assert keys_of(outer.list()) == ["etcd/kept", "etcd/key", "etcd2/kept", "etcd2/key"]
    assert b"".join(inner.get("kept")) == b"".join(other.get("kept")) == content(SMALL_PART + 1)


def test_a_large_object_may_have_any_name(container, store):
    key = "/".join(["é b%"[: 1 + number % 4] * 40 for number in range(6)])
    store.put(key, [content(SMALL_PART + 1)])
    assert keys_of(store.list()) == [key]
    assert store.abort_leftovers(NOW) == 0
    assert b"".join(store.get(key, start=SMALL_PART)) == content(SMALL_PART + 1)[-1:]
    store.delete(key)
    assert container.names() == []


def test_a_killed_upload_leaves_nothing_visible_and_is_tidied(container, swift):
    """Killed between the segments and the manifest: the crash comment in `upload`."""
    script = """
        import os, signal, sys
        from rootcellar.stores.swift import upload
        from rootcellar.stores import EnvironmentCredentials, open_store

        ask = upload.Upload._ask
        def killed(self, name, headers, body, query=None):
            if query and "probe" not in name:
                os.kill(os.getpid(), signal.SIGKILL)
            return ask(self, name, headers, body, query)
        upload.Upload._ask = killed
        os.environ |= {"T_USERNAME": sys.argv[2], "T_PASSWORD": sys.argv[3]}
        store = open_store(sys.argv[1], credentials=EnvironmentCredentials("T_"))
        store.put("key", [b"x" * (5 << 20), b"y"])
    """
    url = f"swift://{container.name}/etcd?auth={container.auth}&part-size=5MiB"
    assert run_script(script, url, container.user, container.password).returncode == -9
    store = swift_store(container, "etcd")
    assert keys_of(store.list()) == []
    with pytest.raises(NotFoundError):
        store.stat("key")
    assert len(segments_in(container)) == 2
    assert store.abort_leftovers(timedelta(hours=1)) == 0
    assert store.abort_leftovers(NOW) == 1
    assert container.names() == []


@pytest.mark.parametrize(
    "call", ["delete('key')", "delete_many(['key'])", "put('key', [b'x' * (5 << 20), b'y'])"]
)
def test_a_killed_delete_or_replacement_leaves_no_half_of_an_object(container, call):
    """Killed between the manifest and the old segments: the crash comments in `store` and `upload`."""
    script = """
        import os, signal, sys
        from rootcellar.stores.swift import segments
        from rootcellar.stores import EnvironmentCredentials, open_store

        os.environ |= {"T_USERNAME": sys.argv[2], "T_PASSWORD": sys.argv[3]}
        store = open_store(sys.argv[1], credentials=EnvironmentCredentials("T_"))
        store.probe()
        remove = segments.remove
        def killed(client, names, operation):
            names = list(names)
            if any(".segments/" in name for name in names):
                os.kill(os.getpid(), signal.SIGKILL)
            return remove(client, names, operation)
        segments.remove = killed
        store.CALL
    """.replace("CALL", call)
    store = swift_store(container, "etcd")
    store.put("key", [content(SMALL_PART + 1)])
    store.put("other", [content(SMALL_PART + 1)])
    url = f"swift://{container.name}/etcd?auth={container.auth}&part-size=5MiB"
    assert run_script(script, url, container.user, container.password).returncode == -9
    left = ["key", "other"] if call.startswith("put") else ["other"]
    assert keys_of(store.list()) == left
    assert all(sum(map(len, store.get(key))) == SMALL_PART + 1 for key in left)
    assert len(unused_segments(container)) == 2
    assert store.abort_leftovers(NOW) == 1
    assert unused_segments(container) == []
    assert all(sum(map(len, store.get(key))) == SMALL_PART + 1 for key in left)


def test_a_lost_segment_is_told(container, store):
    store.put("key", [content(SMALL_PART + 1)])
    container.ask("DELETE", segments_in(container)[1])
    with pytest.raises(StoreError, match="a segment of it is missing") as caught:
        list(store.get("key", start=SMALL_PART))
    assert not isinstance(caught.value, TransientError)


# what etcd-backup-restore has written


def test_a_dynamic_large_object_is_read_as_one(container, store):
    put_dynamic(container, "etcd/v2/Full-00000000-00000001-1.gz", b"01234", b"56789")
    put_dynamic(container, "etcd/v2/Full-00000000-00000001-10.gz", b"another")
    infos = list(store.list())
    assert [(info.key[-5:], info.size) for info in infos] == [("-1.gz", 10), ("10.gz", 7)]
    assert [store.stat(info.key) for info in infos] == infos
    key = infos[0].key
    assert b"".join(store.get(key, start=3, end=7, etag=infos[0].etag)) == b"3456"
    assert keys_of(store.list(after=key)) == [infos[1].key]


def test_a_listing_holds_what_the_next_names_need_and_asks_for_nothing_twice(line, container, monkeypatch):
    monkeypatch.setattr(segments, "PAGE", 2)
    names = ["Full-1", "Full-1-0", "Full-10", *(f"Incr-{number}" for number in range(6))]
    for name in names:
        put_dynamic(container, f"etcd/v2/{name}", b"01234", b"56789", b"a")
    listing = Listing(line.store._client, "etcd/", QUICK)  # noqa: SLF001 - what it holds is seen nowhere else
    held = []
    for info, name in zip(listing.objects("", ""), sorted(names), strict=True):
        assert (info.key, info.size > 0) == (f"v2/{name}", True)
        held.append(len(listing._heads))  # noqa: SLF001 - as above
    assert max(held) <= 4
    assert line.proxy.seen.count(b"HEAD ") == len(names)


def test_a_dynamic_large_object_is_deleted_with_its_segments(container, store):
    for number in (1, 10, 11):
        put_dynamic(container, f"etcd/v2/Full-{number}", b"body", b"more")
    store.delete("v2/Full-1")
    assert store.delete_many(["v2/Full-11"]) == {}
    assert [name.removeprefix("etcd/v2/") for name in container.names()] == [
        "Full-10",
        "Full-10/0000000001",
        "Full-10/0000000002",
    ]
    assert b"".join(store.get("v2/Full-10")) == b"bodymore"


def test_segments_of_an_upload_that_etcd_backup_restore_gave_up_are_leftovers(container, store):
    put_dynamic(container, "etcd/v2/Incr-1", b"whole")
    container.ask("PUT", "etcd/v2/Incr-2/0000000001", b"given up")
    container.ask("PUT", "etcd/v2/other/0000000001", b"nobody's")
    assert store.abort_leftovers(timedelta(hours=1)) == 0
    assert store.abort_leftovers(NOW) == 1
    assert keys_of(store.list()) == ["v2/Incr-1", "v2/other/0000000001"]
    assert b"".join(store.get("v2/Incr-1")) == b"whole"


# faults

BREAKS = [CutUp(0), CutUp(3_000), CutDown(0), CutDown(30), Reset(), refusal(503, "x"), refusal(500, "x")]


def named(fault):
    return f"{type(fault).__name__} {getattr(fault, 'after', '')}{getattr(fault, 'data', b'')[9:12].decode()}"


@pytest.mark.parametrize("fault", BREAKS, ids=named)
def test_a_put_survives(line, container, fault):
    line.store.probe()
    line.proxy.on(b"PUT " + b"/v1/AUTH_testbed" + line.path("small"), fault)
    line.proxy.on(b"/00000001 HTTP", fault)
    line.proxy.on(b"multipart-manifest=put", fault)
    line.store.put("small", iter([b"small"]))
    line.store.put("large", iter([content(SMALL_PART + 99)]))
    assert line.proxy.fired == 3
    assert b"".join(line.direct.get("small")) == b"small"
    assert b"".join(line.direct.get("large")) == content(SMALL_PART + 99)
    assert unused_segments(container) == []


@pytest.mark.parametrize("fault", [refusal(500, "x"), refusal(503, "x"), CutDown(0)], ids=named)
def test_a_probe_survives_one_break_of_each_request_and_leaves_no_object(line, container, fault):
    found, broken = probed(line.store, line.proxy, fault)
    assert found == line.direct.probe()
    assert broken == 6
    assert container.names() == []


@pytest.mark.parametrize("size", [5, SMALL_PART + 5])
def test_a_create_whose_answer_was_lost_has_won(line, size):
    """The second attempt is refused, by the object that the first has made."""
    line.store.probe()
    line.proxy.on(b"If-None-Match: *", CutDown(0))
    said = line.store.put("key", [content(size)], condition=Create())
    assert line.proxy.fired == 1
    assert said == line.direct.stat("key") if size > 5 else said.etag == line.direct.stat("key").etag


def test_a_create_is_refused_by_swift_itself_where_another_came_in_between(line, container):
    line.store.probe()

    def meanwhile():
        line.direct.put("key", [b"other"])
        yield content(SMALL_PART)
        yield b"more"

    chunks = itertools.chain([content(SMALL_PART), b"x"], meanwhile())
    with pytest.raises(AlreadyExistsError, match="another object is there"):
        line.store.put("key", chunks, condition=Create())
    assert b"".join(line.direct.get("key")) == b"other"
    assert unused_segments(container) == []


def test_a_put_that_is_refused_for_good_removes_its_segments(line, container):
    line.store.probe()
    line.proxy.on(b"/00000002 HTTP", refusal(403, "x"), times=FOREVER)
    with pytest.raises(StoreError, match="access denied"):
        line.store.put("key", iter([content(3 * SMALL_PART)]))
    assert container.names() == []


def test_segments_stay_where_the_manifest_may_yet_appear(line, container):
    """An answer of 503 may come although some of Swift's servers have stored it."""
    line.store.probe()
    line.proxy.on(b"multipart-manifest=put", refusal(503, "x"), times=FOREVER)
    with pytest.raises(TransientError, match="overloaded") as caught:
        line.store.put("key", iter([content(SMALL_PART + 1)]))
    assert any("left to abort_leftovers" in note for note in caught.value.__notes__)
    assert len(segments_in(container)) == 2
    assert line.direct.abort_leftovers(NOW) == 1
    assert container.names() == []


def test_a_source_that_fails_leaves_no_segments_on_a_bad_line(line, container):
    line.store.probe()
    line.proxy.on(b"bulk-delete", Reset(), times=2)
    with pytest.raises(KeyError):
        line.store.put("key", exploding(content(SMALL_PART), content(SMALL_PART), error=KeyError))
    assert line.proxy.fired == 2
    assert container.names() == []


@pytest.mark.parametrize("after", [2_000, 700_000, SMALL_PART + 9_000])
def test_a_broken_download_goes_on_where_it_broke(line, after):
    body = content(SMALL_PART + 2_000_000)
    line.direct.put("key", [body])
    line.proxy.on(b"GET /v1/AUTH_testbed" + line.path("key"), CutDown(after), times=2)
    assert b"".join(RetryingStore(line.store, QUICK).get("key")) == body
    assert line.proxy.fired == 2


def test_half_a_line_of_an_answer_is_not_believed(line):
    """The object has 1234 bytes; the connection breaks within that number."""
    line.store.probe()
    half = Answer(b'HTTP/1.1 200 OK\r\nEtag: "e"\r\nX-Timestamp: 1795285162.17670\r\nContent-Length: 12')
    line.proxy.on(b"HEAD ", half)
    with pytest.raises(TransientError):
        line.store.stat("key")
    assert line.proxy.fired == 1


def test_bytes_of_two_objects_are_never_mixed(line):
    line.direct.put("key", [b"old!" * 1_000_000])
    line.proxy.on(b"GET /v1/AUTH_testbed" + line.path("key"), CutDown(2_000_000))
    chunks = line.store.get("key")
    read = [next(chunks)]
    line.direct.put("key", [b"new!" * 1_000_000])
    with pytest.raises(NotFoundError, match="replaced by another object"):
        read.extend(chunks)
    assert set(b"".join(read)) == set(b"old!")


def test_a_swift_without_bulk_delete_is_asked_one_by_one(line):
    for key in ("a", "b", "c"):
        line.direct.put(key, [b"x"])
    line.proxy.on(b"bulk-delete", refusal(405, "x"), times=FOREVER)
    assert line.store.delete_many(["a", "b", "gone"]) == {}
    assert keys_of(line.direct.list()) == ["c"]


# what it cannot do


def test_a_missing_container_is_told(container):
    store = swift_store(type(container)("nothing-here", container.auth))
    with pytest.raises(NotFoundError, match="no such container"):
        store.put("key", [b"x"])
    with pytest.raises(NotFoundError):
        list(store.list())


def test_versions_and_locks_are_unsupported(store):
    store.put("key", [b"x"])
    for ask in (
        lambda: list(store.versions()),
        lambda: store.stat("key", version="1"),
        lambda: store.retention("key"),
        lambda: store.set_retention("key", Retention(legal_hold=True)),
    ):
        with pytest.raises(UnsupportedError, match="a Swift store has no"):
            ask()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prefix": "/a"}, "is no prefix"),
        ({"auth": "keystone:5000"}, "auth is no address"),
        ({"auth": "https://me:word@host/v3"}, "auth holds a credential"),
        ({"part_size": 5}, "is not allowed"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        SwiftOptions("container", **settings)
