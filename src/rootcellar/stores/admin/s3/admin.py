"""One S3 bucket, managed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from rootcellar.errors import AlreadyExistsError, DeniedError, NotFoundError, StoreError, TransientError
from rootcellar.stores.admin.common import Bucket
from rootcellar.stores.admin.s3.contents import Contents
from rootcellar.stores.admin.s3.settings import Settings
from rootcellar.stores.admin.values import UNKNOWN, Aspect, BucketState, Outcome
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.credentials import AMBIENT
from rootcellar.stores.retry import RetryingStore
from rootcellar.stores.s3.client import ClientSource
from rootcellar.stores.s3.errors import code, translated, whole
from rootcellar.stores.s3.store import S3Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.stores.admin.values import BucketWish, Change, Claim, Unknown
    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.protocol import Store
    from rootcellar.stores.s3.options import S3Options

FIRST_REGION: Final = "us-east-1"
"""The region that has no name in requests: a bucket's location is empty there."""


class S3Admin(Bucket):
    """The bucket that `options` name.

    Only AWS is told where to put it: what other servers call a region, or whether they know any, differs.
    """

    def __init__(
        self, options: S3Options, credentials: Credentials = AMBIENT, *, backoff: Backoff | None = None
    ) -> None:
        super().__init__(f"{options.scheme}://{options.bucket}", backoff or Backoff())
        self._options = replace(options, prefix="")
        self._credentials = credentials
        self._client = ClientSource(self._options, credentials)

    def look(self) -> BucketState | None:
        region = self._region()
        if region is None:
            return None
        settings = Settings(self._client(), self._options.bucket, self._url, self._backoff)
        said = region if isinstance(region, str) else ""
        # A rule against unencrypted requests would keep out whoever comes without: perhaps ourselves.
        encrypts = urlsplit(self._options.endpoint or "https://").scheme == "https"
        if not encrypts:
            settings.unsaid[Aspect.TRANSPORT] = "its endpoint is not encrypted"
        locks = self._options.scheme == "s3"
        if not locks:  # OSS has locks of its own, and not the question among those of S3 that it knows
            settings.unsaid[Aspect.IMMUTABILITY] = "its S3 interface has no object lock"
        return BucketState(
            self._url,
            region,
            self._claims(),
            settings.versioning(),
            settings.immutability() if locks else UNKNOWN,
            settings.public_access_blocked(),
            settings.encrypted(),
            settings.encrypted_transport(said) if encrypts else UNKNOWN,
            settings.uploads_aborted_after(),
            settings.unsaid,
        )

    def create(self, wish: BucketWish) -> Outcome:
        """Asked for first: to repeat a creation resets an existing bucket's access list in AWS's oldest
        region.

        A crash after the request leaves a bucket of this account, which the next call adopts.
        """
        if self._is_there():
            self._refuse_strangers()
            return Outcome.ADOPTED
        attempts = Attempts(self._backoff)
        while True:
            try:
                self._make(wish)
            except TransientError as error:
                attempts.failed(error)
            except AlreadyExistsError as error:
                if code(error) == "BucketAlreadyOwnedByYou":
                    # It was not there a moment ago: either an attempt of ours arrived, or a twin was faster.
                    return Outcome.CREATED if attempts.failures else Outcome.ADOPTED
                if attempts.failures and self._is_ours():
                    return Outcome.CREATED  # not all servers tell the two apart
                raise
            else:
                return Outcome.CREATED

    def _make(self, wish: BucketWish) -> None:
        arguments: dict[str, Any] = {"Bucket": self._options.bucket}
        region = wish.region or self._options.region or FIRST_REGION
        if self._options.endpoint is None and region != FIRST_REGION:
            arguments["CreateBucketConfiguration"] = {"LocationConstraint": region}
        if wish.immutability is not None:
            arguments["ObjectLockEnabledForBucket"] = True
        with translated("create bucket", self._url):
            self._client().create_bucket(**arguments)

    def _refuse_strangers(self) -> None:
        """Somebody else's bucket may be open to us.  Who may not list the account's buckets is believed: this
        one was given to him as it is.
        """
        try:
            ours = self._is_ours()
        except DeniedError:
            return
        if not ours:
            raise AlreadyExistsError(
                f"{self._url}: the bucket is another account's",
                hint="names of buckets are shared by all accounts: look whose it is, or take another",
                operation="create bucket",
            )

    def _is_ours(self) -> bool:
        def once() -> bool:
            more: dict[str, Any] = {}
            while True:
                with translated("list buckets", self._url):
                    answer: Any = whole(self._client().list_buckets(**more), "Buckets")
                if any(each["Name"] == self._options.bucket for each in answer["Buckets"]):
                    return True
                if not answer.get("ContinuationToken"):
                    return False
                more = {"ContinuationToken": answer["ContinuationToken"]}

        return Attempts(self._backoff).run(once)

    def _is_there(self) -> bool:
        return self._region() is not None

    def _region(self) -> str | Unknown | None:
        """Where the bucket lies; None for no bucket."""

        def once() -> str | Unknown | None:
            try:
                with translated("look", self._url):
                    answer: Any = self._client().head_bucket(Bucket=self._options.bucket)
            except (NotFoundError, DeniedError):
                return self._said_in_full()
            told = answer.get("BucketRegion")
            return str(told) if told else UNKNOWN

        return Attempts(self._backoff).run(once)

    def _said_in_full(self) -> Unknown | None:
        """None for no bucket.  A HEAD of 404 may be anybody's, and one of 403 means a wrong key as well as a
        right one that is not allowed this: only an answer with a body says which.
        """
        try:
            with translated("look", self._url):
                whole(self._client().list_objects_v2(Bucket=self._options.bucket, MaxKeys=1), "IsTruncated")
        except DeniedError as error:
            if code(error) not in {"AccessDenied", "403"}:
                raise
            raise DeniedError(
                f"{self._url}: access denied, or the bucket is another account's",
                hint="look at the credentials, and whether the name is taken by somebody else",
                operation="look",
            ) from error.__cause__
        except NotFoundError as error:
            if code(error) == "NoSuchBucket":
                return None
            raise TransientError(
                f"{self._url}: an answer that is not the store's", operation="look"
            ) from error
        return UNKNOWN  # somebody made it, or let us in, meanwhile

    def _claims(self) -> tuple[Claim, ...] | Unknown:
        try:
            return self.claims()
        except DeniedError:
            return UNKNOWN

    def _change(self, change: Change, wish: BucketWish, state: BucketState) -> None:
        settings = Settings(self._client(), self._options.bucket, self._url, self._backoff)
        region = state.region if isinstance(state.region, str) else ""
        match change.aspect:
            case Aspect.PUBLIC_ACCESS:
                settings.block_public_access()
            case Aspect.TRANSPORT:
                settings.encrypt_transport(region)
            case Aspect.ENCRYPTION:
                settings.encrypt()
            case Aspect.VERSIONING:
                settings.keep_versions()
            case Aspect.LEFTOVERS if wish.uploads_aborted_after is not None:
                settings.abort_uploads(wish.uploads_aborted_after)
            case Aspect.IMMUTABILITY:
                if state.versioning is not True:
                    settings.keep_versions()
                settings.lock(wish.immutability)

    def below(self, prefix: str) -> Store:
        options = replace(self._options, prefix=prefix)
        return RetryingStore(S3Store(options, self._credentials, backoff=self._backoff), self._backoff)

    def _heap(self) -> Contents:
        return Contents(self._client(), self._options.bucket, self._url)

    def _first_parts(self) -> Iterator[str]:
        contents = self._heap()
        token = ""
        while True:
            asked = token
            parts, token = Attempts(self._backoff).run(lambda: contents.first_parts(asked))  # noqa: B023 - run here
            for part in parts:
                # Servers that keep objects in directories show empty ones for a while; AWS has none.
                if part.endswith("/") and self._options.endpoint is not None:
                    below = part
                    if not Attempts(self._backoff).run(lambda: contents.page(below, "")).entries:  # noqa: B023
                        continue
                yield part
            if not token:
                return

    def _remove(self) -> None:
        try:
            with translated("delete bucket", self._url):
                self._client().delete_bucket(Bucket=self._options.bucket)
        except StoreError as error:
            if isinstance(error, NotFoundError) and code(error) != "NoSuchBucket":
                raise TransientError(error.message, operation="delete bucket") from error
            raise
