"""Failures of stores, as our errors."""

import pytest

from rootcellar.errors import DeniedError, NotFoundError
from rootcellar.stores.meaning import Translation, flat, meant


class translated(Translation):  # noqa: N801 - as the providers' are called
    def meaning(self, error):
        return (DeniedError, "not today", "come again") if isinstance(error, OSError) else None


def test_an_error_says_where_what_and_what_to_do_and_keeps_what_the_store_said():
    cause = Exception("403 Forbidden")
    error = meant((DeniedError, "access denied", "look at the role"), "s3://bucket/key", "put", cause)
    assert type(error) is DeniedError
    assert (error.message, error.hint, error.operation) == (
        "s3://bucket/key: access denied",
        "look at the role",
        "put",
    )
    assert error.__cause__ is cause


def test_what_a_library_raises_becomes_the_error_that_it_means():
    said = PermissionError(13, "no")
    with pytest.raises(DeniedError, match=r"^place: not today$") as caught, translated("get", "place"):
        raise said
    assert caught.value.__cause__ is said
    assert caught.value.operation == "get"


def test_what_is_no_failure_of_the_store_goes_on_as_it_is():
    for said in (KeyError("a bug"), NotFoundError("told already"), KeyboardInterrupt()):
        with pytest.raises(type(said)) as caught, translated("get", "place"):
            raise said
        assert caught.value is said


@pytest.mark.parametrize(("said", "words"), [("Two\n lines.", "two lines"), ("", "ValueError")])
def test_words_of_a_library_are_a_part_of_a_sentence(said, words):
    assert flat(ValueError(said)) == words
