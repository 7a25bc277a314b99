"""A fake of Google's resumable uploads, in front of fake-gcs-server, which cannot say how far an upload came
(asked for that, it completes it) and forgets its condition.

What a client sends is kept in units of 256 KiB, also of a request that breaks off, and goes to the server as
one upload when it is complete.  Everything else is passed on.  Written after "Perform resumable uploads" of
Google's documentation; never held against the real thing.
"""

from __future__ import annotations

import http.client
import re
import secrets
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

from testbed.gcs import FakeGcs, GcsBucket
from testbed.ports import free_port

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

UNIT = 256 << 10
_PASSED = ("content-type", "range", "authorization", "accept-encoding")


@dataclass
class Session:
    """One upload.  `done` is the server's answer once it is complete."""

    path: str
    condition: str
    metadata: bytes
    content: bytearray = field(default_factory=bytearray)
    done: tuple[int, bytes] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class FakeUploads:
    """Serves on `port` while it is entered; `sessions` are the uploads begun and not cancelled."""

    def __init__(self, upstream: FakeGcs) -> None:
        self._upstream = upstream
        self.sessions: dict[str, Session] = {}
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        front = self

        class Handler(_Handler):
            sessions = front.sessions
            upstream = front._upstream.port

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def new_bucket(self) -> GcsBucket:
        """A bucket of the server, reached through here."""
        return GcsBucket(self._upstream.new_bucket().name, self.endpoint)

    def unfinished(self) -> list[Session]:
        return [session for session in self.sessions.values() if session.done is None]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    sessions: dict[str, Session]
    upstream: int

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_GET(self) -> None:
        self._pass_on()

    def do_PATCH(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if query.get("uploadType") != ["resumable"]:
            self._pass_on()
            return
        body = self._body()
        if body is None:
            return
        name = secrets.token_hex(16)
        condition = query.get("ifGenerationMatch", [""])[0]
        path = urlsplit(self.path).path
        self.sessions[name] = Session(path, condition, body)
        self._answer(200, b"", {"Location": f"http://elsewhere.invalid{path}?upload_id={name}"})

    def do_DELETE(self) -> None:
        name = parse_qs(urlsplit(self.path).query).get("upload_id")
        if name is None:
            self._pass_on()
            return
        found = self.sessions.pop(name[0], None)
        self._answer(404 if found is None else 499, b"no more")

    def do_PUT(self) -> None:
        session = self.sessions.get(parse_qs(urlsplit(self.path).query)["upload_id"][0])
        said = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", self.headers["Content-Range"])
        if session is None or said is None:
            self._body()
            self._answer(410 if session is None else 400, b"no such upload")
            return
        with session.lock:
            if not self._take(session, None if said[1] is None else int(said[1])):
                return
            if session.done is None and said[3] != "*" and len(session.content) >= int(said[3]):
                session.done = self._complete(session)
            if session.done is not None:
                self._answer(*session.done, {"Content-Type": "application/json"})
                return
            kept = {"Range": f"bytes=0-{len(session.content) - 1}"} if session.content else {}
            self._answer(308, b"", kept)

    def _take(self, session: Session, start: int | None) -> bool:
        """Keep what comes; False if the line breaks, and then only whole units of it.  What is there already
        is passed over: a request that was cut may be read after the one that repeats it.
        """
        left = int(self.headers["Content-Length"])
        if start is not None and start > len(session.content):
            self._body()
            self._answer(503, b"bytes are missing before these")
            return False
        known = 0 if start is None else len(session.content) - start
        while left:
            block = self._read(min(UNIT, left))
            if len(block) < min(UNIT, left):
                self.close_connection = True
                return False
            if session.done is None:
                session.content += block[known:]
            known = max(0, known - len(block))
            left -= len(block)
        return True

    def _complete(self, session: Session) -> tuple[int, bytes]:
        edge = secrets.token_hex(16)
        parts = (("application/json", session.metadata), ("application/octet-stream", bytes(session.content)))
        body = b"".join(
            f"--{edge}\r\nContent-Type: {kind}\r\n\r\n".encode() + part + b"\r\n" for kind, part in parts
        )
        condition = f"&ifGenerationMatch={quote(session.condition)}" if session.condition else ""
        status, _, answer = self._ask(
            "POST",
            f"{session.path}?uploadType=multipart{condition}",
            body + f"--{edge}--\r\n".encode(),
            {"Content-Type": f"multipart/related; boundary={edge}"},
        )
        return status, answer

    def _pass_on(self) -> None:
        body = self._body()
        if body is None:
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() in _PASSED}
        status, found, answer = self._ask(self.command, self.path, body, headers)
        self._answer(status, answer, found)

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            kept = {
                name: value
                for name, value in answer.getheaders()
                if name.lower().startswith("x-goog-")
                or name.lower() in {"content-type", "content-range", "etag"}
            }
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    def _body(self) -> bytes | None:
        """The whole body; None if the line breaks."""
        size = int(self.headers.get("Content-Length") or 0)
        body = self._read(size)
        if len(body) < size:
            self.close_connection = True
            return None
        return body

    def _read(self, size: int) -> bytes:
        try:
            return self.rfile.read(size)
        except OSError:
            return b""

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        try:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True
