"""The `etcd-backup` secret: from what an entry says and the secret it refers to.  Pure.

Its keys, and what each provider adds, are what etcd-druid mounts and etcd-backup-restore reads (reference:
gardener, extensions/pkg/controller/backupentry/genericactuator, and the providers' own actuators).  Nothing
but that is left in it: foreign keys, labels and annotations go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rootcellar.errors import ConfigError
from rootcellar.operator.backupentry.names import parse
from rootcellar.operator.shared.gardener import CREATED_BY
from rootcellar.operator.shared.identity import CONFIG, configured
from rootcellar.operator.shared.secrets import (
    IDENTITY_CONTEXT,
    IDENTITY_NAME,
    IDENTITY_NAMESPACE,
    IDENTITY_PROVIDER,
    PURPOSE,
    TOKEN_RENEWED,
    TOKEN_REQUESTOR,
    Contents,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.operator.backupentry.types import BackupEntry
    from rootcellar.operator.shared.secrets import Secret

_BUCKET, _TOKEN = "bucketName", "token"
HOST_PATH = "/etc/gardener/local-backupbuckets"
"""Where buckets of the type `local` are mounted in the containers, by default."""


def etcd_backup(
    entry: BackupEntry, credentials: Secret, there: Secret | None, *, host_path: str = HOST_PATH
) -> Contents:
    """The contents for `entry`, with the secret that it refers to; `there` is what is in its place now.

    A workload identity's token belongs to whoever renews it: it is neither copied nor made up, and stays.
    Raises ConfigError for a workload identity that lacks what is needed.
    """
    if credentials.is_identity:
        contents = _of_identity(entry, credentials, there)
    else:
        contents = Contents(dict(credentials.data), {}, {})
    contents.data[_BUCKET] = entry.spec.bucket_name.encode()
    contents.annotations[CREATED_BY] = entry.metadata.name
    if add := _ADDITIONS.get(entry.spec.type):
        add(entry, credentials, contents.data)
    if entry.spec.type == "local":
        contents.data["hostPath"] = host_path.encode()
    return contents


def is_theirs(secret: Secret, entry: str) -> bool:
    """Whether a secret belongs to another entry: a shoot made anew has its predecessor's namespace."""
    return secret.metadata.annotations.get(CREATED_BY, entry) != entry


def _of_identity(entry: BackupEntry, credentials: Secret, there: Secret | None) -> Contents:
    meta = credentials.metadata
    # These texts are Gardener's: its tests, and people, look for them.
    for missing, value in (
        ("name is missing", meta.annotations.get(IDENTITY_NAME)),
        ("namespace is missing", meta.annotations.get(IDENTITY_NAMESPACE)),
        ("provider type missing", meta.labels.get(IDENTITY_PROVIDER)),
    ):
        if not value:
            raise ConfigError(
                f"BackupEntry is set to use workload identity but WorkloadIdentity's {missing}",
                hint=f"look at the secret {entry.spec.secret_ref.namespace}/{entry.spec.secret_ref.name}",
            )
    # What is in it only the providers below need to understand; for another type it is passed on as it is.
    data = {name: credentials.data[name] for name in (CONFIG,) if name in credentials.data}
    annotations = {name: meta.annotations[name] for name in (IDENTITY_NAME, IDENTITY_NAMESPACE)}
    if IDENTITY_CONTEXT in meta.annotations:
        annotations[IDENTITY_CONTEXT] = meta.annotations[IDENTITY_CONTEXT]
    if there is not None:
        if _TOKEN in there.data:
            data[_TOKEN] = there.data[_TOKEN]
        if TOKEN_RENEWED in there.metadata.annotations:
            annotations[TOKEN_RENEWED] = there.metadata.annotations[TOKEN_RENEWED]
    labels = {PURPOSE: TOKEN_REQUESTOR, IDENTITY_PROVIDER: meta.labels[IDENTITY_PROVIDER]}
    return Contents(data, labels, annotations)


def _region(entry: BackupEntry, _credentials: Secret, data: dict[str, bytes]) -> None:
    data["region"] = entry.spec.region.encode()


def _aws(entry: BackupEntry, credentials: Secret, data: dict[str, bytes]) -> None:
    _region(entry, credentials, data)
    if credentials.is_identity:
        data["roleARN"] = str(configured(credentials).get("roleARN", "")).encode()


def _alicloud(entry: BackupEntry, _credentials: Secret, data: dict[str, bytes]) -> None:
    data["storageEndpoint"] = f"https://oss-{entry.spec.region}.aliyuncs.com/".encode()


def _gcp(entry: BackupEntry, credentials: Secret, data: dict[str, bytes]) -> None:
    if not credentials.is_identity or credentials.metadata.labels.get(IDENTITY_PROVIDER) != "gcp":
        return
    found = configured(credentials)
    config = found.get("credentialsConfig")
    if not isinstance(config, dict):
        raise ConfigError(f"the workload identity's {CONFIG} has no credentialsConfig")
    # etcd-druid mounts the secret there, the one to copy from beside it.
    home = "/var/.source-gcp" if parse(entry.metadata.name).is_source else "/var/.gcp"
    source = {"file": f"{home}/token", "format": {"type": "text"}}
    written = msgspec.json.encode({**config, "credential_source": source}, order="deterministic")
    data["projectID"] = str(found.get("projectID", "")).encode()
    # The containers are always told to read serviceaccount.json.
    data["credentialsConfig"] = data["serviceaccount.json"] = written


_ADDITIONS: dict[str, Callable[[BackupEntry, Secret, dict[str, bytes]], None]] = {
    "aws": _aws,
    "openstack": _region,
    "alicloud": _alicloud,
    "gcp": _gcp,
}
