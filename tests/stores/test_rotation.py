"""What is made of credentials that change."""

import pytest

from rootcellar.errors import ConfigError, TransientError
from rootcellar.stores.rotation import Rotating
from tests.stores.clouds import Values


class Swapped(Values):
    """Credentials whose files are gone where they have no values."""

    def load(self):
        if not self.values:
            raise ConfigError("no credentials")
        return super().load()


def made_of(values):
    return (values["key"],)


def test_it_is_made_once_and_anew_when_the_credentials_change():
    source, asked = Swapped({"key": "a"}), []
    rotating = Rotating(source, lambda values: (asked.append(1), values["key"])[1])
    assert [rotating.current(), rotating.current()] == ["a", "a"]
    source.rotate(key="b")
    assert [rotating.current(), rotating.current()] == ["b", "b"]
    assert len(asked) == 2


def test_the_last_one_serves_while_files_are_swapped_but_not_past_its_end():
    source, good = Swapped({"key": "a"}), [True]
    rotating = Rotating(source, made_of, lambda _: good[0])
    first = rotating.current()
    source.rotate()
    assert rotating.current() is first
    good[0] = False
    with pytest.raises(ConfigError, match="no credentials"):
        rotating.current()
    source.rotate(key="b")
    assert rotating.current() == ("b",)


def test_new_ones_with_the_stamp_of_the_old_are_seen_where_they_were_gone_in_between():
    source = Swapped({"key": "a"})
    rotating = Rotating(source, made_of)
    assert rotating.current() == ("a",)
    before = source.stamp()
    source.rotate()
    assert rotating.current() == ("a",)
    source.rotate(key="b")
    source.stamp = lambda: before  # within one tick of the file system's clock
    assert rotating.current() == ("b",)


def test_there_is_nothing_to_serve_before_the_first_is_made():
    with pytest.raises(ConfigError, match="no credentials"):
        Rotating(Swapped(), made_of).current()


def test_one_that_was_refused_is_made_again_and_a_later_one_is_not():
    rotating = Rotating(Swapped({"key": "a"}), made_of)
    first = rotating.current()
    rotating.refused(first)
    second = rotating.current()
    assert second is not first
    rotating.refused(first)  # as another thread says of the same one
    assert rotating.current() is second


def test_one_that_is_due_serves_to_its_end_where_no_other_is_to_be_had(monkeypatch):
    now, serves, asked, away = [1000.0], [True], [], TransientError("away")
    monkeypatch.setattr("rootcellar.stores.rotation.monotonic", lambda: now[0])

    def make(values):
        asked.append(values["key"])
        if away is not None and len(asked) > 1:
            raise away
        return (values["key"],)

    source = Values({"key": "a"})
    rotating = Rotating(source, make, lambda _: False, lambda _: serves[0])
    first = rotating.current()
    assert rotating.current() is first
    assert rotating.current() is first
    assert len(asked) == 2, "asked again after a pause only"
    now[0] += 31
    assert rotating.current() is first
    assert len(asked) == 3
    serves[0] = False
    with pytest.raises(TransientError, match="away"):
        rotating.current()
    away = None
    assert rotating.current() is not first


def test_one_of_former_credentials_does_not_hide_that_no_other_is_to_be_had():
    def make(values):
        if values["key"] == "b":
            raise TransientError("away")
        return (values["key"],)

    source = Values({"key": "a"})
    rotating = Rotating(source, make)
    rotating.current()
    source.rotate(key="b")
    with pytest.raises(TransientError, match="away"):
        rotating.current()


def test_what_changes_while_it_is_read_is_read_again():
    class Busy(Values):
        def load(self):
            found = super().load()
            if self.changes == 0:
                self.rotate(key="new")
            return found

    assert Rotating(Busy({"key": "old"}), made_of).current() == ("new",)
