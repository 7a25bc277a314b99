"""A fake OSS on loopback: SeaweedFS behind OSS's word for "create only".

It takes `x-oss-forbid-overwrite` (and refuses as OSS does), knows no locks and versions, ignores the
conditions of S3, and passes everything else on, signed anew.  That the requests are S3's is for SeaweedFS to
say; that OSS takes them is not shown by this.
"""

from __future__ import annotations

import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from testbed.s3 import ACCESS_KEY, REGION, SECRET_KEY

_CONDITIONS = {"if-none-match", "if-match"}
_HOP = {"host", "connection", "expect", "content-length", "authorization", "user-agent", "transfer-encoding"}
_ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>So said a fake.</Message></Error>"
_EXISTS = _ERROR.format("FileAlreadyExists").encode()
_UNKNOWN = _ERROR.format("InvalidArgument").encode()  # for what is not in OSS's list of operations


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if any(each in self.path for each in ("?object-lock", "?versions")):
            return self._refuse(400)
        if self.command == "GET" and "?uploads" in self.path and not self.server.fake.lists_uploads:
            return self._refuse(501)
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in _HOP | (_CONDITIONS if self.command in {"PUT", "POST"} else set())
            and not name.lower().startswith("x-amz-date")
        }
        spares = headers.pop("x-oss-forbid-overwrite", "") == "true"
        if spares:
            self.server.fake.created += 1
        if spares and self.server.fake.honours:
            headers["If-None-Match"] = "*"
        request = AWSRequest(self.command, f"{self.server.fake.seaweed.endpoint}{self.path}", headers, body)
        S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION).add_auth(request)
        connection = HTTPConnection("127.0.0.1", self.server.fake.seaweed.port, timeout=60)
        try:
            connection.request(self.command, self.path, body, dict(request.headers.items()))
            answer = connection.getresponse()
            self._answer(answer, answer.read(), spares)
        finally:
            connection.close()

    def _refuse(self, status):
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(_UNKNOWN)))
        self.end_headers()
        self.wfile.write(_UNKNOWN)

    def _answer(self, answer, body, spares):
        refused = spares and answer.status == 412
        body = _EXISTS if refused else body
        self.send_response_only(409 if refused else answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - the library's names

    def log_message(self, *_):
        """Keep still."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class FakeOss:
    """Listens on `endpoint`; `created` counts the requests that asked to spare what is there."""

    def __init__(self, seaweed):
        self.seaweed = seaweed
        self.created = 0
        self.honours = True
        self.lists_uploads = True
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)
