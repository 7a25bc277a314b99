"""One bucket of Google Cloud Storage, managed.

Google encrypts everything, and drops unfinished uploads after a week by itself: that is said, not asked.
Changes carry the bucket's metageneration, so that somebody else's change in between is not undone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rootcellar.errors import (
    AlreadyExistsError,
    ConfigError,
    DeniedError,
    LockedError,
    NotEmptyError,
    NotFoundError,
    StoreError,
    TransientError,
)
from rootcellar.stores.admin.common import Bucket
from rootcellar.stores.admin.deletion import BATCH, Entry, Page, Refusal
from rootcellar.stores.admin.parallel import each_removed
from rootcellar.stores.admin.values import UNKNOWN, Aspect, BucketState, Immutability, Outcome
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.credentials import AMBIENT
from rootcellar.stores.gcs import locks
from rootcellar.stores.gcs.client import Client
from rootcellar.stores.gcs.errors import status
from rootcellar.stores.gcs.store import GcsStore
from rootcellar.stores.retry import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rootcellar.stores.admin.values import BucketWish, Change, Claim, Unknown
    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.gcs.options import GcsOptions
    from rootcellar.stores.protocol import Store
    from rootcellar.stores.wire import Wire

_UPLOADS_END = timedelta(days=7)
_JSON = {"Content-Type": "application/json"}


class GcsAdmin(Bucket):
    """The bucket that `options` name, in the project of the credentials."""

    def __init__(
        self,
        options: GcsOptions,
        credentials: Credentials = AMBIENT,
        *,
        backoff: Backoff | None = None,
        wire: Wire | None = None,
    ) -> None:
        super().__init__(f"gs://{options.bucket}", backoff or Backoff())
        self._name = options.bucket
        self._buckets = f"{options.service}/storage/v1/b"
        self._options, self._credentials, self._wire = options, credentials, wire
        self._client = Client(replace(options, prefix=""), credentials, wire)

    def look(self) -> BucketState | None:
        found = self._told()
        if found is None:
            return None
        access = found.get("iamConfiguration", {}).get("publicAccessPrevention")
        unsaid = {} if access else {Aspect.PUBLIC_ACCESS: "the store answers without it"}
        return BucketState(
            self._url,
            found["location"].lower() if found.get("location") else UNKNOWN,
            self._claims(),
            bool(found.get("versioning", {}).get("enabled")),
            _policy(found),
            access == "enforced" if access else UNKNOWN,
            encrypted=True,
            uploads_aborted_after=_UPLOADS_END,
            unsaid=unsaid,
        )

    def create(self, wish: BucketWish) -> Outcome:
        """Asked for first; a crash after the request leaves a bucket, which the next call adopts."""
        if self._told() is not None:
            self._refuse_strangers()
            return Outcome.ADOPTED
        attempts = Attempts(self._backoff)
        while True:
            try:
                self._make(wish)
            except StoreError as error:
                if status(error) == 409:
                    self._refuse_strangers()
                    return Outcome.CREATED if attempts.failures else Outcome.ADOPTED
                if not isinstance(error, TransientError):
                    raise
                attempts.failed(error)
            else:
                return Outcome.CREATED

    def _make(self, wish: BucketWish) -> None:
        """Soft deletion is off: what is deleted shall not be kept, and paid for, behind our back."""
        body: dict[str, Any] = {
            "name": self._name,
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
            "softDeletePolicy": {"retentionDurationSeconds": "0"},
        }
        if wish.region is not None:
            body["location"] = wish.region
        query = {"project": self._project()}
        data = json.dumps(body).encode()
        self._client.ask("POST", self._buckets, "create bucket", query=query, headers=_JSON, body=data)

    def _refuse_strangers(self) -> None:
        """AlreadyExistsError for a bucket that is not in our project; who cannot know is believed."""
        try:
            query = {"project": self._project(), "prefix": self._name, "fields": "items(name)"}
            found = Attempts(self._backoff).run(
                lambda: self._client.ask("GET", self._buckets, "list buckets", query=query)
            )
        except (ConfigError, DeniedError):
            return
        if all(each.get("name") != self._name for each in found.get("items", [])):
            raise AlreadyExistsError(
                f"{self._url}: the bucket is in another project",
                hint="names of buckets are shared by all projects: look whose it is, or take another",
                operation="create bucket",
            )

    def _project(self) -> str:
        values = self._credentials.load()
        told = values.get("projectID")
        if not told:
            try:
                told = json.loads(values.get("googleCredentials", "{}")).get("project_id")
            except (ValueError, AttributeError) as error:
                raise ConfigError("the Google credentials are no JSON object") from error
        if not told:
            raise ConfigError(
                "nothing says in which project the bucket is", hint="projectID beside the credentials"
            )
        return str(told)

    def _told(self) -> dict[str, Any] | None:
        """The bucket's metadata; None for no bucket."""
        try:
            return Attempts(self._backoff).run(lambda: self._client.ask("GET", self._client.bucket, "look"))
        except NotFoundError:
            return None

    def _is_there(self) -> bool:
        return self._told() is not None

    def _claims(self) -> tuple[Claim, ...] | Unknown:
        try:
            return self.claims()
        except DeniedError:
            return UNKNOWN

    def _change(self, change: Change, wish: BucketWish, state: BucketState) -> None:
        match change.aspect:
            case Aspect.PUBLIC_ACCESS:
                self._patch({"iamConfiguration": {"publicAccessPrevention": "enforced"}})
            case Aspect.VERSIONING:
                self._patch({"versioning": {"enabled": True}})
            case Aspect.IMMUTABILITY:
                self._keep(wish.immutability, state.immutability)

    def _keep(self, wanted: Immutability | None, found: Immutability | Unknown | None) -> None:
        """First the policy, then its lock, which nobody can take back.  Killed in between, the next look
        finds it unlocked.
        """
        if wanted is None:
            self._patch({"retentionPolicy": None})
            return
        if not isinstance(found, Immutability) or found.period != wanted.period:
            seconds = str(int(wanted.period.total_seconds()))
            self._patch({"retentionPolicy": {"retentionPeriod": seconds}})
        if wanted.locked and not (isinstance(found, Immutability) and found.locked):
            self._with_generation("POST", f"{self._client.bucket}/lockRetentionPolicy", b"")

    def _patch(self, body: dict[str, Any]) -> None:
        self._with_generation("PATCH", self._client.bucket, json.dumps(body).encode())

    def _with_generation(self, method: str, address: str, body: bytes) -> None:
        def once() -> None:
            found = self._client.ask("GET", self._client.bucket, "harden")
            query = {"ifMetagenerationMatch": str(found.get("metageneration", "1"))}
            try:
                self._client.send(method, address, "harden", query=query, headers=_JSON, body=body)
            except AlreadyExistsError as error:  # 412
                message = f"{self._url}: somebody else changed the bucket in between"
                raise TransientError(message, operation="harden") from error

        Attempts(self._backoff).run(once)

    def below(self, prefix: str) -> Store:
        options = replace(self._options, prefix=prefix)
        store = GcsStore(options, self._credentials, backoff=self._backoff, wire=self._wire)
        return RetryingStore(store, self._backoff)

    def _heap(self) -> _Generations:
        return _Generations(self._client, self._url)

    def _first_parts(self) -> Iterator[str]:
        heap = self._heap()
        token = ""
        while True:
            asked = token
            found = Attempts(self._backoff).run(lambda: heap.listed("", asked, delimiter="/"))  # noqa: B023 - run here
            yield from found.get("prefixes", [])
            yield from dict.fromkeys(each["name"] for each in found.get("items", []))
            token = found.get("nextPageToken", "")
            if not token:
                return

    def _remove(self) -> None:
        try:
            self._client.send("DELETE", self._client.bucket, "delete bucket")
        except StoreError as error:
            if status(error) == 409:
                raise NotEmptyError(
                    f"{self._url}: the bucket is not empty",
                    hint="look for another writer",
                    operation="delete bucket",
                ) from error
            raise


class _Generations:
    """All generations of all objects, live or not."""

    def __init__(self, client: Client, where: str) -> None:
        self._client = client
        self._where = where

    def listed(self, prefix: str, token: str, *, delimiter: str = "") -> dict[str, Any]:
        query = {"versions": "true", "maxResults": str(BATCH)}
        query |= {name: value for name, value in (("prefix", prefix), ("pageToken", token)) if value}
        if delimiter:
            query["delimiter"] = delimiter
        found = self._client.ask("GET", f"{self._client.bucket}/o", "list", query=query)
        if found.get("kind") != "storage#objects":
            raise TransientError(f"{self._where}: an answer that is no listing", operation="list")
        return found

    def page(self, prefix: str, token: str) -> Page:
        found = self.listed(prefix, token)
        entries = [Entry(each["name"], str(each["generation"])) for each in found.get("items", [])]
        return Page(entries, found.get("nextPageToken", ""))

    def remove(self, entries: Sequence[Entry]) -> Mapping[Entry, Refusal]:
        return each_removed(self._remove_one, self._explained, entries)

    def _remove_one(self, entry: Entry) -> None:
        query = {"generation": entry.version} if entry.version is not None else {}
        address = self._client.object(entry.key)
        self._client.send("DELETE", address, "delete", key=entry.key, query=query)

    def _explained(self, entry: Entry, error: StoreError) -> Refusal:
        """A locked object says until when."""
        if not isinstance(error, LockedError):
            return Refusal(error)
        try:
            kept = locks.read(self._client, entry.key, entry.version)
        except TransientError as unheard:
            return Refusal(unheard)
        except StoreError:
            return Refusal(error)
        return Refusal(error, None if kept.legal_hold else kept.until)

    def tidy(self, prefix: str) -> int:
        """Nobody can list unfinished uploads: they end by themselves."""
        del prefix
        return 0


def _policy(found: Mapping[str, Any]) -> Immutability | None:
    policy = found.get("retentionPolicy") or {}
    if not policy.get("retentionPeriod"):
        return None
    period = timedelta(seconds=int(policy["retentionPeriod"]))
    return Immutability(period, locked=bool(policy.get("isLocked")))
