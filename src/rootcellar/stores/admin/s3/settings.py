"""A bucket's settings, read and changed one by one.

Servers that speak S3 lack many of them and say so in many ways: an error of their own, 501, or (rclone) an
answer to another question, without what every true answer has.  All of that is UNKNOWN, with the reason.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from rootcellar.errors import StoreError, TransientError
from rootcellar.stores.admin.s3.documents import aborts_after, denies_unencrypted, with_rule, with_statements
from rootcellar.stores.admin.values import UNKNOWN, Aspect, Immutability
from rootcellar.stores.s3.errors import code, translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3.client import S3Client

    from rootcellar.stores.admin.values import Unknown
    from rootcellar.stores.backoff import Backoff

from rootcellar.stores.backoff import Attempts

T = TypeVar("T")

_BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
_YEAR = 365  # as S3 counts a retention in years


class Settings:
    """Those of one bucket.  `unsaid` gathers why an aspect is UNKNOWN."""

    def __init__(self, client: S3Client, bucket: str, where: str, backoff: Backoff) -> None:
        self._client: Any = client
        self._bucket = bucket
        self._where = where
        self._backoff = backoff
        self.unsaid: dict[Aspect, str] = {}

    def versioning(self) -> bool | Unknown:
        return self._read(
            Aspect.VERSIONING,
            self._client.get_bucket_versioning,
            lambda answer: answer.get("Status") == "Enabled",
        )

    def immutability(self) -> Immutability | Unknown | None:
        def found(answer: Any) -> Immutability | None:
            lock = answer["ObjectLockConfiguration"]
            if lock["ObjectLockEnabled"] != "Enabled":
                return None
            rule = lock.get("Rule", {}).get("DefaultRetention")
            if rule is None:
                return None
            days = rule["Days"] if "Days" in rule else rule["Years"] * _YEAR
            return Immutability(timedelta(days=days), locked=rule["Mode"] == "COMPLIANCE")

        absent = {"ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration"}
        return self._read(
            Aspect.IMMUTABILITY, self._client.get_object_lock_configuration, found, absent, default=None
        )

    def public_access_blocked(self) -> bool | Unknown:
        def found(answer: Any) -> bool:
            block = answer["PublicAccessBlockConfiguration"]
            return [block[name] for name in _BLOCKS] == [True] * len(_BLOCKS)

        absent = {"NoSuchPublicAccessBlockConfiguration"}
        return self._read(Aspect.PUBLIC_ACCESS, self._client.get_public_access_block, found, absent)

    def encrypted(self) -> bool | Unknown:
        def found(answer: Any) -> bool:
            rules = answer["ServerSideEncryptionConfiguration"]["Rules"]
            return any("ApplyServerSideEncryptionByDefault" in rule for rule in rules)

        absent = {"ServerSideEncryptionConfigurationNotFoundError"}
        return self._read(Aspect.ENCRYPTION, self._client.get_bucket_encryption, found, absent)

    def encrypted_transport(self, region: str) -> bool | Unknown:
        return self._read(
            Aspect.TRANSPORT,
            self._client.get_bucket_policy,
            lambda answer: denies_unencrypted(json.loads(answer["Policy"]), self._bucket, region),
            {"NoSuchBucketPolicy"},
        )

    def uploads_aborted_after(self) -> timedelta | Unknown | None:
        def found(answer: Any) -> timedelta | None:
            days = aborts_after(answer["Rules"])
            return None if days is None else timedelta(days=days)

        return self._read(
            Aspect.LEFTOVERS,
            self._client.get_bucket_lifecycle_configuration,
            found,
            {"NoSuchLifecycleConfiguration"},
            default=None,
        )

    def keep_versions(self) -> None:
        self._change(self._client.put_bucket_versioning, VersioningConfiguration={"Status": "Enabled"})

    def lock(self, wanted: Immutability | None) -> None:
        """Object lock needs versions, and stays once it is there: what goes is the default rule."""
        lock: dict[str, Any] = {"ObjectLockEnabled": "Enabled"}
        if wanted is not None:
            mode = "COMPLIANCE" if wanted.locked else "GOVERNANCE"
            lock["Rule"] = {"DefaultRetention": {"Mode": mode, "Days": wanted.days}}
        self._change(self._client.put_object_lock_configuration, ObjectLockConfiguration=lock)

    def block_public_access(self) -> None:
        blocks = dict.fromkeys(_BLOCKS, True)
        self._change(self._client.put_public_access_block, PublicAccessBlockConfiguration=blocks)

    def encrypt(self) -> None:
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        self._change(self._client.put_bucket_encryption, ServerSideEncryptionConfiguration={"Rules": [rule]})

    def encrypt_transport(self, region: str) -> None:
        """Read a moment before, because the whole policy is replaced: S3 has no condition for that."""
        answer = self._ask_or(self._client.get_bucket_policy, {"NoSuchBucketPolicy"})
        policy = None if answer is None else json.loads(answer["Policy"])
        merged = with_statements(policy, self._bucket, region)
        self._change(self._client.put_bucket_policy, Policy=json.dumps(merged))

    def abort_uploads(self, after: timedelta) -> None:
        """As `encrypt_transport`: all rules are replaced, so all are sent again."""
        answer = self._ask_or(
            self._client.get_bucket_lifecycle_configuration, {"NoSuchLifecycleConfiguration"}
        )
        rules = with_rule([] if answer is None else answer["Rules"], max(1, after.days))
        self._change(self._client.put_bucket_lifecycle_configuration, LifecycleConfiguration={"Rules": rules})

    def _read(
        self,
        aspect: Aspect,
        ask: Callable[..., Any],
        found: Callable[[Any], T],
        absent: set[str] | None = None,
        *,
        default: Any = False,
    ) -> T | Unknown:
        try:
            answer = self._ask_or(ask, absent or set())
            return default if answer is None else found(answer)
        except StoreError as error:
            if isinstance(error, TransientError) or code(error) == "NoSuchBucket":
                raise
            self.unsaid[aspect] = error.message
        except (KeyError, TypeError, ValueError):
            self.unsaid[aspect] = "the store answers something else"
        return UNKNOWN

    def _ask_or(self, ask: Callable[..., Any], absent: set[str]) -> Any:
        """The answer; None where the store says, by one of these codes, that nothing is set."""

        def once() -> Any:
            with translated("look", self._where):
                return ask(Bucket=self._bucket)

        try:
            return Attempts(self._backoff).run(once)
        except StoreError as error:
            if code(error) in absent:
                return None
            raise

    def _change(self, change: Callable[..., Any], **arguments: Any) -> None:
        def once() -> None:
            with translated("harden", self._where):
                change(Bucket=self._bucket, **arguments)

        Attempts(self._backoff).run(once)
