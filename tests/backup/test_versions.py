from __future__ import annotations

import pytest

from rootcellar.backup.restore.versions import KNOWN, Minor, of_file, parse, target
from rootcellar.errors import TargetError, UsageError


@pytest.mark.parametrize("text", ["3.5", "3.5.35", "v3.5.35", " 3.5 ", "3.5.0-rc.1", "3.5.1+git"])
def test_a_version_is_read_to_its_minor(text):
    assert parse(text) == Minor(3, 5)
    assert str(parse(text)) == "3.5"


@pytest.mark.parametrize(
    "text", ["", "3", "3.", "three", "3.5.x", "3.5 or so", "3.\u0665", "3." + "9" * 5000]
)
def test_what_is_no_version_is_refused(text):
    with pytest.raises(UsageError, match="is no etcd version") as caught:
        parse(text)
    assert "3.5" in caught.value.hint


@pytest.mark.parametrize(
    ("storage", "cluster", "served", "has_term", "expected"),
    [
        ("3.6.0", "3.6.0", "", True, "3.6"),
        ("3.6.0", "3.5.0", "3.7.1", True, "3.6"),
        (None, "3.5.0", "3.6.2", True, "3.5"),  # one member of several has been replaced
        (None, "3.4.0", "", False, "3.4"),
        (None, "3.0.0", "3.6.13", True, "3.6"),
        (None, None, "3.7.0", True, "3.7"),
        (None, "3.0.0", "", True, "3.5"),
        (None, None, "", True, "3.5"),
        (None, None, "", False, "3.4"),
        (None, "3.3.0", "3.4.1", False, "3.3"),
        ("nonsense", "3.7.1", "", True, "3.7"),
        ("3." + "9" * 5000, None, "nonsense", False, "3.4"),
    ],
)
def test_the_writer_of_a_file_is_known_by_what_it_left_there(storage, cluster, served, has_term, expected):
    assert str(of_file(storage, cluster, served, has_term=has_term)) == expected


@pytest.mark.parametrize("source", KNOWN)
def test_the_same_minor_and_newer_ones_are_allowed_and_older_ones_are_not(source):
    assert target(None, source) == source
    for wanted in KNOWN:
        if wanted >= source:
            assert target(str(wanted), source) == wanted
        else:
            with pytest.raises(
                TargetError, match=f"from etcd {source}, which etcd {wanted} cannot serve"
            ) as caught:
                target(str(wanted), source)
            assert f"{source} or newer" in caught.value.hint


@pytest.mark.parametrize("wanted", ["3.3", "3.8", "4.0", "2.3"])
def test_an_etcd_that_was_never_tried_is_refused(wanted):
    with pytest.raises(TargetError, match="not supported") as caught:
        target(wanted, Minor(3, 4))
    assert "3.4, 3.5, 3.6, 3.7" in caught.value.hint


def test_a_backup_of_a_later_etcd_is_refused_rather_than_guessed_at():
    with pytest.raises(TargetError, match="not supported"):
        target(None, Minor(3, 8))
