"""One entry under reconcile: what the operator was told, and where the entry's objects and secrets are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rootcellar.errors import KubeNotFoundError, NotFoundError, RootcellarError
from rootcellar.kube.kinds import untyped
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES, DEFINITION, BackupEntry
from rootcellar.operator.shared.gardener import SHOOT_UID, ConditionStatus
from rootcellar.operator.shared.place import Asked, Place, located
from rootcellar.operator.shared.status import Finding, sentence
from rootcellar.operator.shared.subject import Ground, Subject
from rootcellar.stores.admin.codes import codes
from rootcellar.stores.admin.provider_config import check_endpoint, endpoint_of
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.kinds import Key
    from rootcellar.operator.backupentry.names import EntryName
    from rootcellar.operator.shared.subject import SeenSecret
    from rootcellar.stores.protocol import Store

FINALIZER: Final = "extensions.gardener.cloud/backupentry"
REACHABLE: Final = "BucketReachable"

_NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)


@dataclass(frozen=True, slots=True)
class EntrySettings:
    """What an operator was told.  `grace`: how long the objects of an entry are kept after it was deleted.
    `directory` and `tokens` are `Asked`'s, `host_path` is where `directory` is mounted beside an etcd.
    `endpoints` are those that a providerConfig may name.  `looks`: how often each entry's backups are looked
    at, None for never.
    """

    types: Collection[str]
    classes: Collection[str]
    directory: Path
    tokens: Path
    host_path: str
    grace: timedelta = timedelta(0)
    endpoints: Collection[str] = ()
    looks: timedelta | None = timedelta(hours=1)


@dataclass(slots=True)
class Run:
    """One reconcile of one entry."""

    subject: Subject[BackupEntry]
    name: EntryName
    seen: SeenSecret | None = None
    deployed: Key | None = None
    """Where its `etcd-backup` is."""
    findings: Sequence[Finding] = ()
    """Conditions that are told with its success."""

    @property
    def entry(self) -> BackupEntry:
        return self.subject.object

    @property
    def credentials(self) -> SeenSecret:
        if self.seen is None:
            raise RuntimeError("the secret has not been read yet")
        return self.seen

    def place(self, settings: EntrySettings) -> Place:
        """Where its bucket is.  Raises as `place_of`."""
        return place_of(self.entry, self.credentials, settings)

    def store(self, settings: EntrySettings) -> Store:
        """Its own prefix."""
        place = self.place(settings)
        return open_store(place.below(self.name.prefix), credentials=place.credentials)


def subject_of(ground: Ground, key: Key) -> Subject[BackupEntry]:
    """The entry as it is now.  Raises KubeNotFoundError."""
    return Subject(
        ground,
        BACKUP_ENTRIES,
        DEFINITION.name,
        key,
        finalizer=FINALIZER,
        noun=lambda _operation: DEFINITION.name,
    )


def namespace_of(client: KubeClient, name: EntryName) -> str | None:
    """The control plane's.  None where it is not there, is about to go, or is another shoot's (made anew
    under the same technical id, it has its predecessor's namespace): there is nothing to set up then.
    """
    for namespace in name.namespaces:
        try:
            found = client.get(_NAMESPACES, namespace)["metadata"]
        except KubeNotFoundError:
            continue
        uid = found.get("annotations", {}).get(SHOOT_UID, name.uid)
        if namespace == name.technical_id and uid != name.uid:
            continue
        return None if found.get("deletionTimestamp") else namespace
    return None


def place_of(entry: BackupEntry, credentials: SeenSecret, settings: EntrySettings) -> Place:
    """Where an entry's bucket is.  Its providerConfig is that of the bucket, and only the endpoint in it
    counts here.  Raises as `located`, and ConfigError for an endpoint that is not allowed.
    """
    spec = entry.spec
    endpoint = endpoint_of(spec.type, spec.provider_config)
    check_endpoint(endpoint, settings.endpoints)
    asked = Asked(
        spec.bucket_name,
        spec.region,
        credentials.secret,
        settings.directory,
        settings.tokens,
        endpoint=endpoint or "",
    )
    return located(spec.type, asked)


def reachable() -> Finding:
    """The condition of a bucket that can be read."""
    return Finding(REACHABLE, ConditionStatus.TRUE, "Readable", "The entry's objects can be listed.")


def unreachable(error: RootcellarError) -> Finding:
    """The condition of a bucket that is not."""
    why = "BucketMissing" if isinstance(error, NotFoundError) else "NotReadable"
    return Finding(REACHABLE, ConditionStatus.FALSE, why, sentence(error), codes(error))
