"""What people write, as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.cli import values
from rootcellar.cli.columns import key as shown_key

SECOND = values.SECOND
NOW = 1_800_000_000 * SECOND


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("2GiB", 2 << 30),
        ("2g", 2 << 30),
        ("1.5 MiB", 3 << 19),
        ("10KB", 10240),
    ],
)
def test_sizes_are_powers_of_1024(text, value):
    assert values.size(text) == value


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1XB", "1 2", "0x10", "1e3"])
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match="not a size"):
        values.size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172800), ("1w", 604800), ("250ms", 0.25)],
)
def test_durations_are_numbers_with_units(text, seconds):
    assert values.span(text) == seconds * SECOND


@pytest.mark.parametrize("text", ["300000d", "9" * 400 + "w"])
def test_a_duration_beyond_all_counting_is_refused(text):
    with pytest.raises(ValueError, match="longer than 292 years"):
        values.span(text)


@pytest.mark.parametrize("text", ["", "10", "m", "10x", "1h30", "10 parsecs"])
def test_other_durations_are_refused(text):
    with pytest.raises(ValueError, match="not a duration"):
        values.span(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-21T09:32:13Z", 1795253533 * SECOND),
        ("2026-11-21 09:32:13 UTC", 1795253533 * SECOND),
        ("2026-11-21T10:32:13+01:00", 1795253533 * SECOND),
        ("2026-11-21T04:02:13-0530", 1795253533 * SECOND),
        ("2026-11-21T09:32Z", 1795253520 * SECOND),
        ("2026-11-21T09:32:13.000000001Z", 1795253533 * SECOND + 1),
        ("2026-11-21T09:32:13.5Z", 1795253533 * SECOND + SECOND // 2),
        ("now", NOW),
        ("10m ago", NOW - 600 * SECOND),
        ("1h 30m ago", NOW - 5400 * SECOND),
    ],
)
def test_times_are_nanoseconds(text, moment):
    assert values.moment(text, now=lambda: NOW) == moment


def test_a_time_without_a_zone_is_nobody_s_time():
    with pytest.raises(ValueError, match="without a zone: add Z for UTC"):
        values.moment("2026-11-21T09:32:13")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "ago", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "12:00Z"]
)
def test_other_times_are_refused(text):
    with pytest.raises(ValueError, match=r"time|duration"):
        values.moment(text)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)), st.integers(-840, 840))  # noqa: DTZ001 - aware below
def test_any_moment_is_read_back_to_the_microsecond(at, offset):
    aware = at.replace(tzinfo=timezone(timedelta(minutes=offset)))
    exact = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert values.moment(aware.isoformat()) == exact


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("latest", values.Point()),
        ("123456", values.Point(revision=123456)),
        ("1_000_000", values.Point(revision=1_000_000)),
        ("2026-11-21T09:32:13Z", values.Point(moment=1795253533 * SECOND)),
    ],
)
def test_a_point_is_a_revision_a_time_or_the_latest(text, point):
    assert values.point(text) == point


def test_what_is_no_point_is_told_all_it_could_be():
    with pytest.raises(ValueError, match="neither a revision, nor `latest`, nor a time"):
        values.point("soon")


@pytest.mark.parametrize("text", ["-1", "x", "", "1.5", "99999999999999999999", "9223372036854775808"])
def test_what_etcd_cannot_count_is_no_revision(text):
    with pytest.raises(ValueError, match=r"whole number|count"):
        values.count(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("/registry/x", b"/registry/x"),
        (r"a\xff\\b", b"a\xff\\b"),
        ("schlüssel", "schlüssel".encode()),
        (r"\x00", b"\0"),
    ],
)
def test_a_key_may_hold_any_byte(text, key):
    assert values.key(text) == key


@pytest.mark.parametrize("text", ["a\\b", "\\x1", "\\xzz", "a\\"])
def test_a_backslash_alone_is_refused(text):
    with pytest.raises(ValueError, match="a backslash is written"):
        values.key(text)


@given(st.binary(max_size=40))
def test_a_key_shown_on_a_terminal_has_nothing_that_it_would_obey(raw):
    shown = shown_key(raw)
    assert shown.isprintable()


@given(st.binary(min_size=1, max_size=40))
def test_a_key_can_be_given_back_as_it_is_shown(raw):
    assert values.key(shown_key(raw)) == raw


def test_a_path_may_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert values.path("~/x") == Path("/somewhere/x")


def test_names_are_parted_by_commas():
    assert values.names("a, b,,c") == ("a", "b", "c")
    with pytest.raises(ValueError, match="empty"):
        values.names(" , ")
