"""BackupBucket of extensions.gardener.cloud/v1alpha1, as Gardener publishes it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rootcellar.kube import kinds
from rootcellar.kube.crd import AGE, Column, Definition
from rootcellar.operator.shared import gardener
from rootcellar.operator.shared.extension import (
    STATE,
    TYPE,
    ExtensionSpec,
    ExtensionStatus,
    SecretReference,
)
from rootcellar.operator.shared.part import Part


class BackupBucketSpec(ExtensionSpec, frozen=True, kw_only=True):
    """Which bucket is wanted.  Nothing here may change once the object is being deleted."""


class BackupBucketStatus(ExtensionStatus, frozen=True, kw_only=True):
    """How the bucket is."""

    generated_secret_ref: Annotated[
        SecretReference | None,
        msgspec.Meta(
            description="Credentials for this bucket alone, where the provider makes some: backups use them"
            " in the place of those of the spec."
        ),
    ] = None


class BackupBucket(Part, frozen=True, kw_only=True):
    """A bucket of an object store, for backups."""

    metadata: kinds.Meta = kinds.Meta()
    spec: BackupBucketSpec
    status: Annotated[BackupBucketStatus, msgspec.Meta(description="How the bucket is.")] = (
        BackupBucketStatus()
    )


BACKUP_BUCKETS = kinds.Kind(
    gardener.GROUP, gardener.VERSION, "backupbuckets", BackupBucket, is_namespaced=False
)
DEFINITION = Definition(
    BACKUP_BUCKETS,
    "BackupBucket",
    short_names=("bb",),
    columns=(TYPE, Column("Region", ".spec.region", "where the bucket is"), STATE, AGE),
    labels=gardener.PROTECTED,
)
