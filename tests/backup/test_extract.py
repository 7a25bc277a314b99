import base64
import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.browse import browse, extract
from rootcellar.backup.browse.browse import Found
from rootcellar.errors import TargetError
from rootcellar.mvcc.history import KeyRange
from rootcellar.mvcc.kubernetes import recognise
from rootcellar.mvcc.record import KeyValue


def found(key, value=b"", lease=0):
    return Found(KeyValue(key, 2, 3, 1, value, lease), recognise(value))


def one_line(each, **options):
    (line,) = extract.lines([each], **options)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line)


def test_a_line_of_text_is_readable():
    assert one_line(found(b"/a", b"two\nlines \xc3\xa9")) == {
        "key": "/a",
        "value": "two\nlines é",
        "createRevision": 2,
        "modRevision": 3,
        "version": 1,
    }


def test_bytes_that_are_no_text_are_base64():
    for raw in (b"\xff", b"\x00", b"a\x1b[31m", "\u202e".encode(), b"\xed\xa0\x80"):
        line = one_line(found(raw, raw))
        assert (line["keyBase64"], line["valueBase64"]) == (base64.b64encode(raw).decode(),) * 2
        assert {"key", "value"}.isdisjoint(line)


def test_an_empty_value_is_text_and_none_when_not_asked_for():
    assert one_line(found(b"k"))["value"] == ""
    assert {"value", "valueBase64"}.isdisjoint(one_line(found(b"k", b"\xff"), values=False))


def test_a_lease_is_spelled_as_etcdctl_does():
    assert one_line(found(b"k", lease=0x694D71DDACFDA227))["lease"] == "694d71ddacfda227"
    assert one_line(found(b"k", lease=-2))["lease"] == "fffffffffffffffe"


def test_what_kubernetes_stored_is_named_in_its_own_spelling():
    value = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"d","labels":{"a":"b"}}}'
    assert one_line(found(b"/registry/pods/d/p", value))["kubernetes"] == {
        "encoding": "json",
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "d",
        "name": "p",
        "labels": {"a": "b"},
    }
    encrypted = one_line(found(b"k", b"k8s:enc:aescbc:v1:key1:\x00"))["kubernetes"]
    assert encrypted == {"encoding": "encrypted", "provider": "aescbc", "keyName": "key1"}


def test_a_tree_holds_each_value_in_a_private_file_under_its_keys_name(tmp_path):
    top = tmp_path / "out"
    pairs = {b"/registry/pods/a": b"1", b"/registry/pods/a/b": b"2", b"plain": b"3", b"%41": b"4", b"/": b"5"}
    written = dict(extract.tree([found(*pair) for pair in pairs.items()], top))
    assert {key: path.read_bytes() for key, path in written.items()} == pairs
    assert {str(path.relative_to(top)) for path in written.values()} == {
        "%/registry/pods/a.value",
        "%/registry/pods/a/b.value",
        "plain.value",
        "%2541.value",
        "%/%.value",
    }
    assert stat.S_IMODE((top / "plain.value").stat().st_mode) == 0o600
    assert stat.S_IMODE((top / "%" / "registry").stat().st_mode) == 0o700


def test_a_tree_is_only_written_where_nothing_is(tmp_path):
    (tmp_path / "there").touch()
    with pytest.raises(TargetError, match="is not empty"):
        list(extract.tree([found(b"k")], tmp_path))
    with pytest.raises(TargetError, match="there/below: Not a directory"):
        list(extract.tree([found(b"k")], tmp_path / "there" / "below"))


def test_a_key_too_long_for_a_file_system_is_kept_by_its_hash(tmp_path):
    keys = [b"x" * 300, b"/".join([b"y" * 200] * 20), b"\xff" * 100]
    written = list(extract.tree([found(key, key) for key in keys], tmp_path))
    assert [path.parent.name for _, path in written] == ["%long"] * 3
    assert [path.read_bytes() for _, path in written] == keys


segments = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [b"", b".", b"..", b".hidden", b"a", b"A", b"a.value", b".value", b"%", b"%2E", b"%long"]
    ),
)


@given(st.lists(st.lists(segments, min_size=1, max_size=4).map(b"/".join), unique=True, max_size=12))
def test_no_key_leads_out_of_the_tree_hides_or_meets_another(tmp_path_factory, keys):
    top = tmp_path_factory.mktemp("tree") / "out"
    written = dict(extract.tree([found(key, key) for key in sorted(keys)], top))
    assert {key: path.read_bytes() for key, path in written.items()} == {key: key for key in keys}
    assert {path for path in top.rglob("*") if path.is_file()} == set(written.values())
    for path in written.values():
        assert path.resolve().is_relative_to(top.resolve())
        assert not any(part.startswith(".") for part in path.relative_to(top).parts)


@given(st.binary(max_size=20), st.binary(max_size=40))
def test_any_key_and_value_come_back_from_a_line(key, value):
    line = one_line(found(key, value))
    for name, wanted in (("key", key), ("value", value)):
        encoded = line.get(f"{name}Base64")
        assert (line[name].encode() if encoded is None else base64.b64decode(encoded)) == wanted


def test_a_backups_keys_extract_in_order(ebr_backup):
    with browse.opened(ebr_backup.store) as backup:
        within = KeyRange.prefix(b"/leased/")
        read = [json.loads(line) for line in extract.lines(browse.keys(backup, within))]
        assert [each["key"] for each in read] == sorted(each["key"] for each in read)
        assert all("lease" in each for each in read)
        assert bool(read) == bool(ebr_backup.expected["leases"])
