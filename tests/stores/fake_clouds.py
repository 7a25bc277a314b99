"""Fakes, on loopback, of what no emulator does: locks of Azure and Google, and the identity services of both.

Written after the clouds' own documentation, and never held against the real thing.
"""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class FakeService:
    """Answers with what `answer(method, path, query, headers, body)` gives: status, headers, body."""

    def __init__(self):
        self.asked = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def handle_any(self):
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                service.asked.append((self.command, parts.path, query, dict(self.headers), body))
                status, headers, said = service.answer(
                    self.command, unquote(parts.path), query, self.headers, body
                )
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(said)

        for verb in ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"):
            setattr(Handler, f"do_{verb}", Handler.handle_any)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method, path, query, headers, body):
        raise NotImplementedError


def as_json(status, found, headers=None):
    return status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(found).encode()


class FakeTokens(FakeService):
    """Gives `answers` one by one, and then the last of them for ever."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)

    def answer(self, method, path, query, headers, body):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def forms(self):
        """What was sent to each path, as it was meant."""
        return [
            (path, {name: values[0] for name, values in parse_qs(body.decode()).items()})
            for _, path, _, _, body in self.asked
        ]


class FakeAzureLocks(FakeService):
    """One container with versions and version-level immutability: blobs, their policies and their holds."""

    def __init__(self, *, immutable=True):
        super().__init__()
        self.immutable = immutable
        self.blobs = {}  # key -> versions, oldest first: dicts with id, body, until, mode, hold
        self.blocks = {}
        self.hidden = set()
        self._last = datetime(2026, 1, 1, tzinfo=UTC)

    def answer(self, method, path, query, headers, body):
        _, _, _, key = [*path.split("/", 3), ""][:4]
        if not key:
            said = {"x-ms-immutable-storage-with-versioning-enabled": str(self.immutable).lower()}
            return 200, said, self._listed(query) if query.get("comp") == "list" else b""
        if method == "PUT" and query.get("comp") == "block":
            self.blocks[query["blockid"]] = body
            return 201, {"x-ms-request-id": "1"}, b""
        if method == "PUT" and query.get("comp") == "blocklist":
            names = re.findall(r"<Uncommitted>(.*?)</Uncommitted>", body.decode())
            return self._put(key, headers, b"".join(self.blocks.pop(name) for name in names))
        if method == "PUT" and "comp" not in query:
            return self._put(key, headers, body)
        return self._existing(method, key, query, headers)

    def _existing(self, method, key, query, headers):
        found = self._found(key, query.get("versionid"))
        if found is None:
            return self._refused(404, "BlobNotFound")
        if method == "PUT":
            return self._set(found, query["comp"], headers)
        if method == "DELETE":
            return self._delete(key, found, query.get("versionid"))
        return 200, self._headers(found), found["body"]

    def _put(self, key, headers, body):
        current = self._found(key, None)
        if headers.get("If-None-Match") == "*" and current:
            return self._refused(409, "BlobAlreadyExists")
        if "If-Match" in headers and (not current or headers["If-Match"] != f'"{current["id"]}"'):
            return self._refused(412, "ConditionNotMet")
        self._last += timedelta(seconds=1)
        version = self._last.strftime("%Y-%m-%dT%H:%M:%S.0000000Z")
        made = {"id": version, "body": body, "until": None, "mode": "", "hold": False}
        self.blobs.setdefault(key, []).append(made)
        self.hidden.discard(key)
        return 201, self._headers(made), b""

    def _found(self, key, version):
        versions = self.blobs.get(key, [])
        if version is None:
            return versions[-1] if versions and key not in self.hidden else None
        return next((each for each in versions if each["id"] == version), None)

    def _set(self, found, comp, headers):
        if not self.immutable:
            return self._refused(409, "ImmutableStorageWithVersioningNotEnabled")
        if comp == "legalhold":
            found["hold"] = headers["x-ms-legal-hold"] == "true"
        else:
            found["until"] = parsedate_to_datetime(headers["x-ms-immutability-policy-until-date"])
            found["mode"] = headers["x-ms-immutability-policy-mode"]
        return 200, {}, b""

    def _delete(self, key, found, version):
        if version is None:
            self.hidden.add(key)  # what was the current version is an earlier one now
            return 202, {}, b""
        if key not in self.hidden and found is self.blobs[key][-1]:
            return self._refused(403, "OperationNotAllowedOnRootBlob")
        if found["hold"]:
            return self._refused(409, "BlobImmutableDueToLegalHold")
        if found["until"] and found["until"] > datetime.now(UTC):
            return self._refused(409, "BlobImmutableDueToPolicy")
        self.blobs[key].remove(found)
        return 202, {}, b""

    def _listed(self, query):
        every = query.get("include") == "versions"
        blobs = "".join(
            f"<Blob><Name>{key}</Name><VersionId>{each['id']}</VersionId><Properties>"
            "<Last-Modified>Sat, 21 Nov 2026 09:00:00 GMT</Last-Modified>"
            f"<Etag>{each['id']}</Etag><Content-Length>{len(each['body'])}</Content-Length>"
            "</Properties></Blob>"
            for key, versions in sorted(self.blobs.items())
            for each in versions
            if key.startswith(query.get("prefix", ""))
            if every or (each is versions[-1] and key not in self.hidden)
        )
        return f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>".encode()

    @staticmethod
    def _headers(found):
        said = {
            "ETag": f'"{found["id"]}"',
            "Last-Modified": format_datetime(datetime.now(UTC), usegmt=True),
            "x-ms-version-id": found["id"],
            "x-ms-legal-hold": str(found["hold"]).lower(),
        }
        if found["until"]:
            said["x-ms-immutability-policy-until-date"] = format_datetime(found["until"], usegmt=True)
            said["x-ms-immutability-policy-mode"] = found["mode"].lower()
        return said

    @staticmethod
    def _refused(status, code):
        return status, {"x-ms-error-code": code}, b""


class FakeGcsLocks(FakeService):
    """One bucket with object retention: objects are made by the test, and have holds and dates."""

    def __init__(self, *, retention=True):
        super().__init__()
        self.retention = retention
        self.objects = {}

    def make(self, key, **more):
        self.objects[key] = {
            "name": key,
            "generation": "17",
            "metageneration": "1",
            "size": "1",
            "updated": "2026-11-21T09:00:00Z",
            **more,
        }

    def answer(self, method, path, query, headers, body):
        _, _, key = path.partition("/o/")
        if not key:
            return as_json(200, {"objectRetention": {"mode": "Enabled"}} if self.retention else {})
        found = self.objects.get(key)
        if found is None:
            return self._refused(404, "notFound", "No such object")
        if method == "PATCH":
            return self._patch(found, query, json.loads(body))
        if method == "DELETE":
            return self._delete(key, found)
        return as_json(200, found)

    def _patch(self, found, query, wanted):
        if query["ifMetagenerationMatch"] != found["metageneration"]:
            return self._refused(412, "conditionNotMet", "Precondition Failed")
        if "retention" in wanted:
            if not self.retention:
                return self._refused(400, "invalid", "The bucket does not support object retention.")
            before = found.get("retention", {})
            loosened = before.get("retainUntilTime", "") > wanted["retention"]["retainUntilTime"]
            if loosened or (before.get("mode") == "Locked" and wanted["retention"]["mode"] != "Locked"):
                return self._refused(403, "forbidden", "Retention cannot be reduced")
        found |= wanted
        found["metageneration"] = str(int(found["metageneration"]) + 1)
        return as_json(200, found)

    def _delete(self, key, found):
        if found.get("temporaryHold") or found.get("eventBasedHold"):
            return self._refused(403, "objectUnderActiveHold", "Object is under active Temporary hold")
        until = (found.get("retention") or {}).get("retainUntilTime")
        if until and datetime.fromisoformat(until) > datetime.now(UTC):
            return self._refused(403, "retentionPolicyNotMet", "Object is subject to its retention policy")
        del self.objects[key]
        return 204, {}, b""

    @staticmethod
    def _refused(status, reason, message):
        error = {"code": status, "message": message, "errors": [{"reason": reason}]}
        return as_json(status, {"error": error})
