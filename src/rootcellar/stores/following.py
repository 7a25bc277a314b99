"""A store whose credentials say more than keys: endpoint, region, authority, encryption key.

Keys and tokens rotate inside the providers.  All else is what a provider is made of, and followed here by
making another one.  A call that is under way ends on the one that it began with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.rotation import Rotating

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.protocol import Store

T = TypeVar("T")

_KEYS = (
    "accessKeyID",
    "roleARN",
    "storageKey",
    "sasToken",
    "googleCredentials",
    "username",
    "applicationCredentialSecret",
)
_ROLE = ("roleARN", "tokenPath")  # who we are, but read once by botocore


class FollowingStore(StoreDecorator, Generic[T]):
    """What `open_` makes of what `find` says.  Raises what both raise.

    `find` is asked again when `credentials` may have changed.  Where they cannot be meant by then, or hold no
    key any more, as in the middle of an exchange of files, what was opened last serves.
    """

    def __init__(self, credentials: Credentials, find: Callable[[], T], open_: Callable[[T], Store]) -> None:
        self._find = find
        self._open = open_
        self._last: tuple[object, Store] | None = None
        self._keyed = False
        self._stores = Rotating(credentials, self._opened)
        self._stores.current()

    @property
    def inner(self) -> Store:  # type: ignore[override]  # nobody sets it: each call asks which one it is
        return self._stores.current()

    def _opened(self, values: Mapping[str, str]) -> Store:
        """Only one thread is here at a time."""
        keyed = any(values.get(name) for name in _KEYS)
        if self._keyed and not keyed:
            raise ConfigError("the credentials hold no key any more")
        try:
            found = self._find()
        except UsageError as error:
            if self._last is None:
                raise
            raise ConfigError(error.message, hint=error.hint) from error
        made_of = (found, keyed, [values.get(name) for name in _ROLE])
        if self._last is None or self._last[0] != made_of:
            self._last, self._keyed = (made_of, self._open(found)), keyed
        return self._last[1]
