"""What lies in an S3 bucket, for whoever deletes it: objects, versions, delete markers, unfinished uploads.

A bucket that keeps, or once kept, versions is listed by versions; another, and a server that has none, by
objects.  Who may see objects and not versions is refused: what he cannot see he would leave behind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rootcellar.errors import (
    DeniedError,
    LockedError,
    NotFoundError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores.admin.deletion import Entry, Page, Refusal
from rootcellar.stores.s3 import locks
from rootcellar.stores.s3.errors import code, from_answer, translated, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_s3.client import S3Client

_GONE = {"NoSuchKey", "NoSuchVersion"}


class Contents:
    """Of one bucket."""

    def __init__(self, client: S3Client, bucket: str, where: str) -> None:
        self._client: Any = client
        self._bucket = bucket
        self._where = where
        self._versions: bool | None = None

    def page(self, prefix: str, token: str) -> Page:
        entries, after, _ = self._page(prefix, token, "")
        return Page(entries, after)

    def first_parts(self, token: str) -> tuple[list[str], str]:
        """A page of folders, with their slash, and of objects at the root; and where the next begins."""
        entries, after, folders = self._page("", token, "/")
        return [*folders, *dict.fromkeys(entry.key for entry in entries)], after

    def _page(self, prefix: str, token: str, delimiter: str) -> tuple[list[Entry], str, list[str]]:
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": prefix}
        if delimiter:
            asked["Delimiter"] = delimiter
        if self._keeps_versions():
            try:
                return self._version_page(asked, token)
            except UnsupportedError:
                self._versions = False
        return self._object_page(asked, token)

    def _version_page(self, asked: dict[str, Any], token: str) -> tuple[list[Entry], str, list[str]]:
        more: dict[str, Any] = json.loads(token) if token else {}
        with translated("list", self._where):
            answer = whole(self._client.list_object_versions(**asked, **more), "IsTruncated")
        found = [*answer.get("Versions", []), *answer.get("DeleteMarkers", [])]
        after = {
            name: answer[f"Next{name}"]
            for name in ("KeyMarker", "VersionIdMarker")
            if answer["IsTruncated"] and answer.get(f"Next{name}")
        }
        entries = [Entry(each["Key"], each["VersionId"]) for each in found]
        return entries, json.dumps(after) if after else "", _folders(answer)

    def _object_page(self, asked: dict[str, Any], token: str) -> tuple[list[Entry], str, list[str]]:
        more = {"ContinuationToken": token} if token else {}
        with translated("list", self._where):
            answer = whole(self._client.list_objects_v2(**asked, **more), "IsTruncated")
        entries = [Entry(each["Key"]) for each in answer.get("Contents", [])]
        return entries, answer["NextContinuationToken"] if answer["IsTruncated"] else "", _folders(answer)

    def _keeps_versions(self) -> bool:
        """Where we may not ask, we try."""
        if self._versions is None:
            try:
                with translated("list", self._where):
                    answer = self._client.get_bucket_versioning(Bucket=self._bucket)
                self._versions = bool(answer.get("Status"))
            except DeniedError:
                self._versions = True
            except UnsupportedError:
                self._versions = False
        return self._versions

    def remove(self, entries: Sequence[Entry]) -> Mapping[Entry, Refusal]:
        # XML cannot carry control characters; others may have written such keys.
        plain = [entry for entry in entries if entry.key.isprintable()]
        odd = [entry for entry in entries if not entry.key.isprintable()]
        refused = {entry: error for entry in odd if (error := self._remove_one(entry)) is not None}
        if plain:
            try:
                refused |= self._remove_batch(plain)
            except UnsupportedError:  # not all S3-compatible servers have DeleteObjects
                refused |= {entry: error for entry in plain if (error := self._remove_one(entry)) is not None}
        return {entry: self._explained(entry, error) for entry, error in refused.items()}

    def _remove_batch(self, entries: Sequence[Entry]) -> dict[Entry, StoreError]:
        """The answer's status says nothing of single keys, and a key that it does not name is not gone."""
        with translated("delete", self._where):
            answer = self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [_identifier(entry) for entry in entries]}
            )
        # Where no version was asked for, an answer may name the delete marker's.
        named = {entry: (entry.key, entry.version) for entry in entries}
        errors = {(each["Key"], each.get("VersionId") or None): each for each in answer.get("Errors", [])}
        keys = {each["Key"]: each for each in answer.get("Errors", [])}
        done = {(each["Key"], each.get("VersionId") or None) for each in answer.get("Deleted", [])}
        done_keys = {each["Key"] for each in answer.get("Deleted", [])}
        refused: dict[Entry, StoreError] = {}
        for entry, name in named.items():
            where = self._named(entry)
            error = errors.get(name) or (keys.get(entry.key) if entry.version is None else None)
            if error is not None:
                if error["Code"] not in _GONE:
                    refused[entry] = from_answer(error, "delete", where)
            elif name not in done and (entry.version not in {None, "null"} or entry.key not in done_keys):
                refused[entry] = TransientError(f"{where}: not confirmed", operation="delete")
        return refused

    def _remove_one(self, entry: Entry) -> StoreError | None:
        try:
            with translated("delete", self._named(entry)):
                self._client.delete_object(Bucket=self._bucket, **_identifier(entry))
        except NotFoundError as error:
            if code(error) == "NoSuchBucket":
                raise
        except StoreError as error:
            return error
        return None

    def _explained(self, entry: Entry, error: StoreError) -> Refusal:
        """S3 says "access denied" of what is locked too."""
        if not isinstance(error, DeniedError | LockedError):
            return Refusal(error)
        name = {"Bucket": self._bucket, "Key": entry.key}
        if entry.version is not None:
            name["VersionId"] = entry.version
        try:
            kept = locks.read(self._client, name, self._named(entry))
        except TransientError as unheard:
            return Refusal(unheard)
        except StoreError:
            return Refusal(error)
        if kept.until is None and not kept.legal_hold:
            return Refusal(error)
        reason = "a legal hold" if kept.legal_hold else f"retention until {kept.until:%Y-%m-%d %H:%M:%SZ}"
        locked = LockedError(f"{self._named(entry)}: {reason} forbids it", operation="delete")
        return Refusal(locked, None if kept.legal_hold else kept.until)

    def tidy(self, prefix: str) -> int:
        """All unfinished uploads, of whatever age: nobody shall write there any more."""
        aborted = 0
        marker: dict[str, Any] = {}
        while True:
            try:
                with translated("abort uploads", self._where):
                    answer = whole(
                        self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix, **marker),
                        "Bucket",
                    )
            except StoreError as error:
                # The first is some servers' way to say that there are none.
                if code(error) == "NoSuchUpload" or isinstance(error, UnsupportedError):
                    return aborted
                raise
            for upload in answer.get("Uploads", []):
                aborted += self._abort(upload)
            if not answer.get("IsTruncated"):
                return aborted
            marker = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def _abort(self, upload: Any) -> bool:
        try:
            with translated("abort uploads", self._where):
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )
        except StoreError as error:
            if code(error) != "NoSuchUpload":
                raise
            return False
        return True

    def _named(self, entry: Entry) -> str:
        return f"{self._where}/{entry.key}"


def _identifier(entry: Entry) -> dict[str, str]:
    return {"Key": entry.key} if entry.version is None else {"Key": entry.key, "VersionId": entry.version}


def _folders(answer: Any) -> list[str]:
    return [each["Prefix"] for each in answer.get("CommonPrefixes", [])]
