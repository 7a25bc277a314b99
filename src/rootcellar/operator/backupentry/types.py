"""BackupEntry of extensions.gardener.cloud/v1alpha1, as Gardener publishes it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rootcellar.kube import kinds
from rootcellar.kube.crd import AGE, Column, Definition
from rootcellar.operator.shared import gardener
from rootcellar.operator.shared.extension import STATE, TYPE, ExtensionSpec, ExtensionStatus
from rootcellar.operator.shared.part import Part


class BackupEntrySpec(ExtensionSpec, frozen=True, kw_only=True):
    """Where one cluster's backups are.  Nothing here may change once the object is being deleted."""

    region: Annotated[str, msgspec.Meta(description="The region that the bucket is in.")]
    bucket_name: Annotated[str, msgspec.Meta(description="The bucket.")]
    backup_bucket_provider_status: Annotated[
        dict[str, Any] | None,
        msgspec.Meta(description="What the status of the BackupBucket has as `providerStatus`."),
    ] = None


class BackupEntryStatus(ExtensionStatus, frozen=True, kw_only=True):
    """How the entry is."""


class BackupEntry(Part, frozen=True, kw_only=True):
    """The backups of one cluster: a prefix of a bucket, named like this object."""

    metadata: kinds.Meta = kinds.Meta()
    spec: BackupEntrySpec
    status: BackupEntryStatus = BackupEntryStatus()


BACKUP_ENTRIES = kinds.Kind(
    gardener.GROUP, gardener.VERSION, "backupentries", BackupEntry, is_namespaced=False
)
DEFINITION = Definition(
    BACKUP_ENTRIES,
    "BackupEntry",
    short_names=("be",),
    columns=(
        TYPE,
        Column("Region", ".spec.region", "where the bucket is"),
        Column("Bucket", ".spec.bucketName", "the bucket"),
        STATE,
        AGE,
    ),
    labels=gardener.PROTECTED,
)
