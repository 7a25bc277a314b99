"""What a failure below a store means, and the one way in which that becomes an error.

Each provider has a table of its own of what its service says; the rows of all of them are a `Meaning`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Self, TypeVar

from rootcellar.errors import RootcellarError, StoreError

if TYPE_CHECKING:
    from types import TracebackType

E = TypeVar("E", bound=RootcellarError)

Meaning = tuple[type[StoreError], str, str | None]
"""The class of the error, what happened, and a hint."""

SOMEBODY: Final = "look at the network, and for a proxy that answers in the store's place"
"""The hint where an answer can hardly be the store's own."""

UNTRUSTED: Final[Meaning] = (
    StoreError,
    "the store's certificate is not trusted",
    "give its authority (ca=/path/to/ca.pem)",
)


def meant(
    meaning: tuple[type[E], str, str | None],
    where: str,
    operation: str,
    cause: BaseException | None = None,
) -> E:
    """The error that says so of `where`; `cause` is what the service or the library said."""
    kind, text, hint = meaning
    error = kind(f"{where}: {text}", hint=hint, operation=operation)
    if cause is not None:
        error.__cause__ = cause
    return error


def flat(error: Exception) -> str:
    """What a library says, as a part of a message."""
    text = " ".join(str(error).split()).rstrip(".")
    return text[:1].lower() + text[1:] or type(error).__name__


class Translation(ABC):
    """`with SUBCLASS("put", where):` turns what the libraries below raise into the error that it means."""

    def __init__(self, operation: str, where: str) -> None:
        self._operation = operation
        self._where = where

    @abstractmethod
    def meaning(self, error: Exception) -> tuple[type[RootcellarError], str, str | None] | None:
        """None for what is no failure of the store: it goes on as it is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, RootcellarError):
            found = self.meaning(error)
            if found is not None:
                raise meant(found, self._where, self._operation) from error
