"""A bucket as Gardener has it in Azure: a resource group, a storage account and a container, made together.

The group and the container are called as the bucket; the account, whose name all of Azure shares, by a hash
of it.  Those who use the bucket are given a key of the account (`generated`), and the keys can be rotated.

Deleted are the container, then the account and the group, these only where our tag says that they were made
for the bucket.  Where the account has other containers nothing is deleted at all: somebody else has come to
use it.  The group goes only if nothing else is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from rootcellar.errors import NotEmptyError, NotFoundError, StoreError, TransientError
from rootcellar.stores.admin.azure.container import ContainerAdmin
from rootcellar.stores.admin.azure.keys import Key, by_age, to_replace
from rootcellar.stores.admin.azure.management import GROUPS, STORAGE, Cloud, Management, cloud
from rootcellar.stores.admin.common import Bucket
from rootcellar.stores.admin.values import Aspect, Immutability
from rootcellar.stores.azure.options import AzureOptions
from rootcellar.stores.backoff import Attempts, Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rootcellar.stores.admin.deletion import Heap
    from rootcellar.stores.admin.provider_config import Rotation
    from rootcellar.stores.admin.values import BucketState, BucketWish, Change, Outcome
    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.protocol import Store
    from rootcellar.stores.wire import Wire

T = TypeVar("T")

TAG: Final = "rootcellar.dev-made-for"
_STRONG = {"TLS1_2", "TLS1_3"}


def account_name(bucket: str) -> str:
    """As Gardener's extension for Azure names the account of a bucket."""
    return f"bkp{hashlib.sha256(bucket.encode()).hexdigest()[:15]}"


@dataclass(frozen=True, slots=True)
class Site:
    """Where the bucket is.  `account` is the one that a generated secret names already, if any; `endpoint`
    the blob service, where it is not the cloud's own.
    """

    bucket: str
    region: str
    cloud: str | None = None
    account: str | None = None
    endpoint: str | None = None
    rotation: Rotation | None = None


@dataclass(frozen=True, slots=True)
class _OneKey:
    """A storage key as a source of credentials."""

    account: str
    key: str = field(repr=False)

    def load(self) -> Mapping[str, str]:
        return {"storageAccount": self.account, "storageKey": self.key}

    def stamp(self) -> object:
        return None


class AccountAdmin(Bucket):
    """The bucket at `site`.  `credentials` are of a service principal: clientID, clientSecret (or tokenPath),
    subscriptionID, tenantID.
    """

    def __init__(
        self,
        site: Site,
        credentials: Credentials,
        *,
        backoff: Backoff | None = None,
        wire: Wire | None = None,
    ) -> None:
        self._site = site
        self._account = site.account or account_name(site.bucket)
        super().__init__(f"azure://{self._account}/{site.bucket}", backoff or Backoff())
        self._cloud: Cloud = cloud(site.cloud, site.region)
        self._management = Management(self._cloud, credentials, wire)
        self._group = f"/resourceGroups/{quote(site.bucket, safe='')}"
        provider = f"{self._group}/providers/Microsoft.Storage/storageAccounts"
        self._resource = f"{provider}/{self._account}"
        self._policy = (
            f"{self._resource}/blobServices/default/containers/{site.bucket}/immutabilityPolicies/default"
        )
        self._blobs: ContainerAdmin | None = None

    def look(self) -> BucketState | None:
        account = self._get(self._resource, STORAGE)
        if account is None:
            return None
        found = self._container().look()
        if found is None:
            return None
        said = account.get("properties", {})
        policy = self._immutability()[0]
        unsaid = dict(found.unsaid)
        unsaid.pop(Aspect.IMMUTABILITY, None)
        return replace(
            found,
            name=self._url,
            region=str(account.get("location", self._site.region)),
            encrypted_transport=said.get("supportsHttpsTrafficOnly") is True
            and said.get("minimumTlsVersion") in _STRONG,
            public_access_blocked=found.public_access_blocked is True
            and said.get("allowBlobPublicAccess") is False,
            immutability=policy,
            unsaid=unsaid,
        )

    def create(self, wish: BucketWish) -> Outcome:
        """Group, account, container, each only if it is missing: a repeated call goes on where a killed one
        ended.  What counts as made is the container.
        """
        if self._get(self._group, GROUPS) is None:
            body = {"location": wish.region or self._site.region, "tags": {TAG: self._site.bucket}}
            self._put(self._group, GROUPS, body)
        if self._get(self._resource, STORAGE) is None:
            self._put(self._resource, STORAGE, self._wanted_account(wish))
        self._await_account()
        return self._container().create(wish)

    def _wanted_account(self, wish: BucketWish) -> dict[str, Any]:
        properties: dict[str, Any] = {
            "accessTier": "Cool",
            "supportsHttpsTrafficOnly": True,
            "minimumTlsVersion": "TLS1_2",
            "allowBlobPublicAccess": False,
        }
        rotation = self._site.rotation
        if rotation is not None and rotation.expire is not None:
            properties["keyPolicy"] = {"keyExpirationPeriodInDays": rotation.expire.days}
        return {
            "location": wish.region or self._site.region,
            "kind": "StorageV2",
            "sku": {"name": "Standard_ZRS"},
            "tags": {TAG: self._site.bucket},
            "properties": properties,
        }

    def _await_account(self) -> None:
        def once() -> None:
            account = self._get_once(self._resource, STORAGE) or {}
            state = account.get("properties", {}).get("provisioningState")
            if state != "Succeeded":
                message = f"{self._url}: the storage account is not ready yet ({state or 'not seen'})"
                raise TransientError(message, operation="create bucket")

        self._retried(once)

    def _change(self, change: Change, wish: BucketWish, state: BucketState) -> None:
        del state  # the policy is read a moment before it is changed, for its etag
        match change.aspect:
            case Aspect.PUBLIC_ACCESS:
                self._patch({"allowBlobPublicAccess": False})
                self._container().close()
            case Aspect.TRANSPORT:
                self._patch({"supportsHttpsTrafficOnly": True, "minimumTlsVersion": "TLS1_2"})
            case Aspect.IMMUTABILITY:
                self._keep(wish.immutability)

    def _patch(self, properties: dict[str, Any]) -> None:
        body = {"properties": properties}
        self._retried(lambda: self._management.ask("PATCH", self._resource, "harden", STORAGE, body=body))

    def _keep(self, wanted: Immutability | None) -> None:
        """First the policy, then its lock, which nobody can take back.  Killed in between, the next look
        finds it unlocked.  Etags are the policy's own, from its body.
        """
        found, etag = self._immutability()
        if wanted is None:
            self._on_policy("DELETE", "", etag)
            return
        days = {"properties": {"immutabilityPeriodSinceCreationInDays": wanted.days}}
        if found is None or found.period != timedelta(days=wanted.days):
            if found is not None and found.locked:
                self._on_policy("POST", "/extend", etag, days)
            else:
                days["properties"]["allowProtectedAppendWrites"] = False
                self._on_policy("PUT", "", etag, days)
        found, etag = self._immutability()
        if wanted.locked and found is not None and not found.locked:
            self._on_policy("POST", "/lock", etag)
        self._blobs = None  # it knows the period

    def _on_policy(self, method: str, deed: str, etag: str, body: Mapping[str, Any] | None = None) -> None:
        headers = {"If-Match": etag} if etag else {}
        path = f"{self._policy}{deed}"
        self._retried(
            lambda: self._management.ask(method, path, "harden", STORAGE, body=body, headers=headers)
        )

    def _immutability(self) -> tuple[Immutability | None, str]:
        """The container's policy and its etag; Azure tells of none as one of no days."""
        found = self._get(self._policy, STORAGE) or {}
        said = found.get("properties", {})
        days = said.get("immutabilityPeriodSinceCreationInDays") or 0
        if not days:
            return None, ""
        locked = str(said.get("state", "")).lower() == "locked"
        return Immutability(timedelta(days=days), locked=locked), str(found.get("etag", ""))

    # keys

    def keys(self) -> list[Key]:
        """Newest first.  Raises NotFoundError without an account."""
        path = f"{self._resource}/listKeys"
        found = self._retried(lambda: self._management.ask("POST", path, "list keys", STORAGE))
        try:
            keys = [
                Key(str(each["keyName"]), str(each["value"]), _moment(each.get("creationTime")))
                for each in found["keys"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise TransientError(f"{self._url}: keys that cannot be read", operation="list keys") from error
        return by_age(keys)

    def generated(self) -> Mapping[str, str] | None:
        """The newest key.  None without an account."""
        try:
            key = self.keys()[0]
        except NotFoundError:
            return None
        return {"storageAccount": self._account, "storageKey": key.value, "domain": self._cloud.blobs}

    def rotate(self, published: str | None, now: datetime, *, forced: bool = False) -> bool:
        """Make the older key anew if it is time, or `forced`.  `published` is the storageKey that is in use.
        Returns whether: then `generated` is to be published.

        Killed before that, the newest key is not the published one: no other is made anew until it is.
        """
        key = to_replace(self.keys(), published, self._site.rotation, now, forced=forced)
        if key is None:
            return False
        # Not repeated here: an answer may be lost of a request that was carried out, and a second one would
        # do it again.
        path, body = f"{self._resource}/regenerateKey", {"keyName": key.name}
        self._management.ask("POST", path, "rotate keys", STORAGE, body=body)
        self._blobs = None
        return True

    # the end of it

    def delete_bucket(self) -> None:
        """The container first, with the checks of every bucket; killed behind it, the rest goes with the next
        call.  Raises NotEmptyError also where the account, which would go with it, has other containers.
        """
        account = self._get(self._resource, STORAGE)
        if account is not None:
            goes_too = self._is_made_here(account)
            if goes_too:
                self._refuse_other_containers()
            self._container().delete_bucket()
            if goes_too:
                self._refuse_other_containers()  # that may have taken a while
                self._delete(self._resource, STORAGE)
        group = self._get(self._group, GROUPS)
        if group is not None and self._is_made_here(group) and not self._others_in_group():
            self._delete(self._group, GROUPS)

    def _is_made_here(self, resource: Mapping[str, Any]) -> bool:
        return (resource.get("tags") or {}).get(TAG) == self._site.bucket

    def _refuse_other_containers(self) -> None:
        path = f"{self._resource}/blobServices/default/containers"
        others = self._others(path, STORAGE, self._site.bucket)
        if others:
            raise NotEmptyError(
                f"{self._url}: the storage account {self._account} has other containers, such as {others[0]}",
                hint="delete them first, if nobody needs them: the account goes with its bucket",
                operation="delete bucket",
            )

    def _others_in_group(self) -> bool:
        return bool(self._others(f"{self._group}/resources", GROUPS, self._account))

    def _others(self, path: str, version: str, own: str) -> list[str]:
        """Names of what is listed there beside our own.  A second page is of others for certain."""
        found = self._retried(lambda: self._management.ask("GET", path, "delete bucket", version))
        if not isinstance(found.get("value"), list):
            raise TransientError(f"{self._url}: an answer that is no list", operation="delete bucket")
        names = [str(each.get("name")) for each in found["value"]]
        return [name for name in names if name != own] + (["more"] if found.get("nextLink") else [])

    def _delete(self, path: str, version: str) -> None:
        """Azure takes its time to delete: what it has accepted is asked for until it is gone."""

        def ask() -> None:
            with contextlib.suppress(NotFoundError):
                self._management.ask("DELETE", path, "delete bucket", version)

        self._retried(ask)

        def once() -> None:
            if self._get_once(path, version) is not None:
                raise TransientError(f"{self._url}: Azure is still deleting", operation="delete bucket")

        self._retried(once)

    def _container(self) -> ContainerAdmin:
        """The container, through the newest key.  Raises NotFoundError without an account."""
        if self._blobs is None:
            key = self.keys()[0].value
            options = AzureOptions(
                self._account, self._site.bucket, domain=self._cloud.blobs, endpoint=self._site.endpoint
            )
            period = self._immutability()[0]
            self._blobs = ContainerAdmin(
                options,
                _OneKey(self._account, key),
                backoff=self._backoff,
                period=period.period if period else None,
            )
        return self._blobs

    def below(self, prefix: str) -> Store:
        return self._container().below(prefix)

    def ours(self) -> Store:
        return self._container().ours()  # which is another one after its keys were rotated

    def _heap(self) -> Heap:
        return self._container().heap()

    def _first_parts(self) -> Iterator[str]:
        yield from self._container().prefixes()

    def _remove(self) -> None:
        raise StoreError("the container is deleted by its own")  # delete_bucket is another one here

    def _is_there(self) -> bool:
        return self.look() is not None

    # requests

    def _get(self, path: str, version: str) -> dict[str, Any] | None:
        return self._retried(lambda: self._get_once(path, version))

    def _get_once(self, path: str, version: str) -> dict[str, Any] | None:
        try:
            return self._management.ask("GET", path, "look", version)
        except NotFoundError:
            return None

    def _put(self, path: str, version: str, body: Mapping[str, Any]) -> None:
        self._retried(lambda: self._management.ask("PUT", path, "create bucket", version, body=body))

    def _retried(self, work: Callable[[], T]) -> T:
        return Attempts(self._backoff).run(work)


def _moment(text: Any) -> datetime | None:
    return datetime.fromisoformat(str(text)) if text else None
