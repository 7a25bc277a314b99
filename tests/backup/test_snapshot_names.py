from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.names import Kind
from rootcellar.errors import UsageError
from tests.backup import ebr_rules

REVISIONS = st.integers(min_value=0, max_value=2**63 - 1)
SUFFIXES = st.sampled_from(["", ".gz", ".zlib"])
# Pieces that make keys near the grammar: what parses is then neither rare nor everything.
PIECES = st.sampled_from(
    [
        "v1/",
        "v2/",
        "v1",
        "Full-",
        "Incr-",
        "-",
        "/",
        ".",
        "1",
        "0",
        "00000007",
        "9",
        "+",
        "_",
        "gz",
        "final",
        "x",
    ]
)
KEYS = st.one_of(
    st.lists(PIECES, max_size=14).map("".join),
    st.builds(
        "{}{}-{}-{}-{}{}".format,
        st.sampled_from(["v2/", "v1/Backup-7/", "v1/", "a/v2/", "v2/v1/", "v2//"]),
        st.sampled_from(["Full", "Incr", "full", "Chunk"]),
        st.sampled_from(["0", "00000000", "+1", "8", "", "\u0663", "1_0"]),
        st.sampled_from(["00000007", "7", "9223372036854775807", "9223372036854775808", " 7"]),
        st.sampled_from(["1565021494", "0", "x", "1.5"]),
        st.lists(
            st.sampled_from([".gz", ".final", ".Z", "/0000000001", "/a", "-", ".sha256", "."]), max_size=3
        ).map("".join),
    ),
)


@pytest.mark.parametrize(
    ("key", "kind", "start", "last", "suffix", "final"),
    [
        ("v2/Full-00000000-00009002-1565021494.gz", Kind.FULL, 0, 9002, ".gz", False),
        ("v2/Full-00000000-00009002-1565021494", Kind.FULL, 0, 9002, "", False),
        ("v2/Full-00000000-00009002-1565021494.final", Kind.FULL, 0, 9002, "", True),
        ("v2/Full-00000000-00009002-1565021494.gz.final", Kind.FULL, 0, 9002, ".gz", True),
        ("v2/Incr-00009003-00009120-1565021494.Z", Kind.DELTA, 9003, 9120, ".Z", False),
        ("v2/Incr-3607431064-3607435063-1565021494", Kind.DELTA, 3607431064, 3607435063, "", False),
        ("v1/Backup-1565021494/Full-0-9002-1565021494", Kind.FULL, 0, 9002, "", False),
    ],
)
def test_names_that_ebr_writes_are_read(key, kind, start, last, suffix, final):
    name = names.parse(key)
    assert (name.kind, name.start, name.last, name.suffix, name.final) == (kind, start, last, suffix, final)
    assert (name.created, name.key, name.directory + name.name) == (1565021494, key, key)
    assert name.is_snapshot


@given(REVISIONS, st.integers(min_value=0, max_value=2**40), SUFFIXES, st.booleans())
def test_a_full_that_we_write_is_read_as_the_same(last, created, suffix, final):
    name = names.full(last, created, suffix, final=final)
    assert names.parse(name.key) == name
    assert name.is_snapshot


@given(REVISIONS, REVISIONS, st.integers(min_value=0, max_value=2**40), SUFFIXES)
def test_a_delta_that_we_write_is_read_as_the_same(one, other, created, suffix):
    name = names.delta(min(one, other), max(one, other), created, suffix)
    assert names.parse(name.key) == name
    assert name.is_snapshot


def test_revisions_are_padded_to_eight_digits_and_wider_ones_printed_whole():
    assert names.delta(7, 12345678901, 5).key == "v2/Incr-00000007-12345678901-5.gz"


@pytest.mark.parametrize("suffix", [".Z", ".lz4", "gz", ".zlib.age"])
def test_a_suffix_that_is_not_written_is_refused(suffix):
    with pytest.raises(UsageError) as refused:
        names.full(1, 1, suffix)
    assert "gzip, zlib or none" in refused.value.hint


@pytest.mark.parametrize(("start", "last"), [(2, 1), (-1, 1), (1, 2**63)])
def test_revisions_that_cannot_be_are_refused(start, last):
    with pytest.raises(UsageError, match="no snapshot can hold revisions"):
        names.delta(start, last, 1)


@example("v2/Full-0-9-15.gz.sha256")
@example("v2/Full-0-9-15/a/b")
@example("v2/Full-0-9-15.gz/0000000001")
@example("v1/Backup-1/Full-0-9-15/0000000001")
@example("v1/Full-0-9-15")
@example("dev1/etcd/v2/Full-0-9-15")
@example("v2/Full-0-1_0-15")
@example("v2/Full-\u0660-9-15")  # a digit to Python and none to Go
@given(KEYS)
def test_every_key_is_read_as_ebr_reads_it(key):
    """Against the independent reading of EBR's grammar that the rules checker has."""
    name, seen = names.parse(key), ebr_rules.parse(key)
    assert (name is None) == (seen is None)
    if name is not None:
        assert seen == (key, name.kind, name.start, name.last, name.created, name.suffix, name.part)


@given(KEYS)
def test_only_what_a_writer_meant_is_a_snapshot(key):
    name = names.parse(key)
    if name is not None and name.is_snapshot:
        meant = f"{name.created}{name.suffix}{'.final' if name.final else ''}"
        assert key.removeprefix(name.directory).lstrip("+").endswith(meant)
        assert key.removeprefix(name.directory).count("-") == 3


@pytest.mark.parametrize(
    ("key", "extra"),
    [
        ("v2/Full-0-9-15.gz.sha256", ".sha256"),
        ("v2/Full-0-9-15.gz/a/b", "/a/b"),
        ("v2/Full-0-9-15.final.gz", ".final.gz"),
        ("v2/Full-0-9-15.final.final", ".final"),
    ],
)
def test_what_only_looks_like_a_snapshot_says_by_what(key, extra):
    name = names.parse(key)
    assert name.extra == extra
    assert not name.is_snapshot


def test_parts_are_told_from_snapshots():
    part = names.parse("v2/Full-0-9-15.gz/0000000001")
    assert part.part
    assert not part.is_snapshot


@pytest.mark.parametrize("prefix", ["", "a", "shoot--x/etcd-main", "v2", "dev1", "a-b-c-d/v2"])
def test_prefixes_that_ebr_can_use_are_fine(prefix):
    assert names.visibility_problem(prefix) is None


@pytest.mark.parametrize("prefix", ["dev1/etcd-main", "v1/etcd-main", "a/dev1/b/c"])
def test_prefixes_that_hide_a_backup_from_ebr_are_told(prefix):
    assert "ends in 'v1'" in names.visibility_problem(prefix)


SEALED = st.sampled_from(sorted(names.SEALED_SUFFIXES))


@given(REVISIONS, REVISIONS, st.integers(min_value=0, max_value=2**40), SEALED, st.booleans())
def test_a_sealed_name_is_read_as_the_same_and_is_nothing_to_ebr(one, other, created, suffix, final):
    for name in (
        names.full(one, created, suffix, final=final),
        names.delta(min(one, other), max(one, other), created, suffix),
    ):
        assert names.read(name.key) == names.parse_sealed(name.key) == name
        assert name.is_sealed
        assert name.is_encrypted == suffix.endswith(".age")
        assert names.parse(name.key) is None


def test_sealed_names_say_what_they_are():
    assert names.full(9, 15, ".zst.age").key == "sealed/snapshots/full_00000000_00000009_15.zst.age"
    assert names.delta(7, 9, 15, ".zst").key == "sealed/snapshots/delta_00000007_00000009_15.zst"
    assert names.full(9, 15, ".age", final=True).key == "sealed/snapshots/full_00000000_00000009_15.age.final"
    assert not names.full(9, 15).is_sealed


@pytest.mark.parametrize(
    "key",
    [
        "sealed/snapshots/full_00000000_00000009_15.zst/1",
        "sealed/snapshots/full_00000010_00000009_15.zst",
        "sealed/snapshots/full_0_9_15.zst",
        "sealed/full_00000000_00000009_15.zst",
        "x/sealed/snapshots/full_00000000_00000009_15.zst",
        "sealed/snapshots/full_00000000_9999999999999999999_15.zst",
        "sealed/snapshots/full_00000000_00000009_15.zst\n",
    ],
)
def test_what_is_not_spelled_like_one_is_no_sealed_name(key):
    assert names.parse_sealed(key) is None


def test_a_key_of_ebr_is_read_as_ever():
    assert names.read(names.full(9, 15).key) == names.full(9, 15)
