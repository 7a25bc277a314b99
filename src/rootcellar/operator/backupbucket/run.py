"""One bucket under reconcile: what the operator was told, and what is known of the bucket so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rootcellar.errors import ConfigError, KubeNotFoundError
from rootcellar.kube.kinds import Key
from rootcellar.operator.backupbucket.findings import SETTINGS
from rootcellar.operator.shared.gardener import GARDEN, GENERATED_IN
from rootcellar.operator.shared.place import Asked, located, principal
from rootcellar.operator.shared.subject import SeenSecret, Subject
from rootcellar.stores.admin.opening import open_admin
from rootcellar.stores.admin.provider_config import ProviderConfig, check_endpoint, decode
from rootcellar.stores.admin.values import BucketWish

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from rootcellar.operator.backupbucket.types import BackupBucket
    from rootcellar.operator.shared.place import SecretCredentials
    from rootcellar.stores.admin.azure.account import AccountAdmin, Site
    from rootcellar.stores.admin.protocol import BucketAdmin
    from rootcellar.stores.admin.values import BucketState, Claim
    from rootcellar.stores.backoff import Backoff

FINALIZER: Final = "extensions.gardener.cloud/backupbucket"
EMPTY: Final = "rootcellar.dev/empty-on-deletion"
"""`true` has the objects of a bucket deleted with it."""
KEEP: Final = "rootcellar.dev/keep-on-deletion"
"""`true` has the bucket outlive its object, with all that lies in it."""
DRY_RUN: Final = "rootcellar.dev/dry-run"
"""`true` has it told, in the condition `Planned`, what would be done; nothing is."""
COLLECT: Final = "rootcellar.dev/collect-left"
"""`true` has what forced deletions of entries left in the bucket deleted once its locks have ended."""
ROTATE: Final = "azure.provider.extensions.gardener.cloud/rotate"
"""`true` has the older key of the storage account made anew and published, whatever its age."""

_AGAIN = timedelta(hours=12)


def _account(site: Site, credentials: SecretCredentials, backoff: Backoff | None) -> AccountAdmin:
    # Imports urllib3, which only who serves azure needs.
    from rootcellar.stores.admin.azure.account import AccountAdmin  # noqa: PLC0415

    return AccountAdmin(site, credentials, backoff=backoff)


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """What an operator was told.  `owner` tells this cluster from all others for ever; `endpoints` are those
    that a providerConfig may name.  `directory` and `tokens` are `Asked`'s.  A bucket that is well is looked
    at `again` after that time.  `backoff` is for requests to stores; `account` opens storage accounts.
    """

    types: Collection[str]
    classes: Collection[str]
    owner: str
    directory: Path
    tokens: Path
    endpoints: Collection[str] = ()
    again: timedelta = _AGAIN
    backoff: Backoff | None = None
    account: Callable[[Site, SecretCredentials, Backoff | None], AccountAdmin] = _account


@dataclass(slots=True)
class Run:
    """One reconcile of one bucket."""

    subject: Subject[BackupBucket]
    settings: BucketSettings
    seen: SeenSecret | None = None
    config: ProviderConfig = field(default_factory=ProviderConfig)
    state: BucketState | None = None
    claim: Claim | None = None
    account: AccountAdmin | None = None
    published: SeenSecret | None = None
    is_republished: bool = False
    _admin: BucketAdmin | None = None

    @property
    def bucket(self) -> BackupBucket:
        return self.subject.object

    @property
    def name(self) -> str:
        return self.subject.key.name

    @property
    def owner(self) -> str:
        """Whose mark the bucket has for this object."""
        return f"{self.settings.owner}/{self.name}"

    @property
    def generates(self) -> bool:
        """Whether there is, or may be, a generated secret."""
        return self.bucket.spec.type in {"azure", "local"}

    @property
    def was_there(self) -> bool:
        """Whether the bucket was once there and marked: only then are its settings told."""
        return any(found.type == SETTINGS for found in self.bucket.status.conditions)

    def says(self, annotation: str) -> bool:
        """Whether an annotation is `true`."""
        return self.bucket.metadata.annotations.get(annotation) == "true"

    def configure(self, *, is_strict: bool = True) -> None:
        """Raises ConfigError for a providerConfig that is not allowed here, or, where that matters, cannot be
        meant: under deletion nobody may change it any more, and most of it counts for nothing.
        """
        spec = self.bucket.spec
        try:
            self.config = decode(spec.type, spec.provider_config, strict=is_strict)
        except ConfigError:
            if is_strict:
                raise
        check_endpoint(self.config.endpoint, self.settings.endpoints)

    def open(self) -> None:
        """Nothing is asked of the store yet.  Raises ConfigError, UsageError."""
        asked = self._asked()
        if self.bucket.spec.type == "azure" and "storageAccount" not in asked.secret.data:
            self._admin = self.account = self._open_account(asked)
            return
        place = located(self.bucket.spec.type, asked)
        self._admin = open_admin(place.url, credentials=place.credentials, backoff=self.settings.backoff)

    def _asked(self) -> Asked:
        if self.seen is None:
            raise RuntimeError("the secret has not been read yet")
        return Asked(
            self.name,
            self.bucket.spec.region,
            self.seen.secret,
            self.settings.directory,
            self.settings.tokens,
            endpoint=self.config.endpoint or "",
        )

    def _open_account(self, asked: Asked) -> AccountAdmin:
        """A whole storage account, by the identity that may make one.  Which account it is, the generated
        secret says, if there is one already.
        """
        from rootcellar.stores.admin.azure.account import Site  # noqa: PLC0415  see _account

        self.published = self.read_generated()
        known = self.published.secret.data.get("storageAccount", b"").decode() if self.published else ""
        site = Site(
            asked.bucket,
            asked.region,
            cloud=self.config.cloud,
            account=known or None,
            rotation=self.config.rotation,
        )
        return self.settings.account(site, principal(asked), self.settings.backoff)

    @property
    def admin(self) -> BucketAdmin:
        """The bucket, opened."""
        if self._admin is None:
            raise RuntimeError("the bucket has not been opened yet")
        return self._admin

    def wish(self, *, is_ours: bool) -> BucketWish:
        """What we made may be changed back; what somebody else set on a bucket that we adopted is not.  A
        directory is shared with the etcds beside it, which are other users, as in Gardener's own provider.
        """
        return BucketWish(
            region=self.bucket.spec.region or None,
            immutability=self.config.immutability,
            public_access_blocked=self.bucket.spec.type != "local",
            weaken=is_ours,
        )

    def generated_key(self) -> Key:
        """Where the generated secret was written, else where it is to be."""
        if (there := self.bucket.status.generated_secret_ref) is not None:
            return Key(there.namespace, there.name)
        namespace = self.bucket.metadata.annotations.get(GENERATED_IN) or GARDEN
        return Key(namespace, f"generated-bucket-{self.name}")

    def read_generated(self) -> SeenSecret | None:
        """The generated secret, if it is there."""
        try:
            return SeenSecret.read(self.subject.ground, self.generated_key())
        except KubeNotFoundError:
            return None
