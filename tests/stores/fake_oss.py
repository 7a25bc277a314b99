"""A fake OSS on loopback: SeaweedFS behind OSS's word for "create only".

It takes `x-oss-forbid-overwrite` (and refuses as OSS does), ignores the conditions of S3, and passes
everything else on, signed anew.  That the requests are S3's is for SeaweedFS to say; that OSS takes them is
not shown by this.
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
_EXISTS = (
    b"<?xml version='1.0'?><Error><Code>FileAlreadyExists</Code><Message>So said a fake.</Message></Error>"
)


class FakeOss:
    """Listens on `endpoint`; `created` counts the requests that asked to spare what is there."""

    def __init__(self, seaweed):
        self.created = 0
        self.honours = True
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in _HOP | (_CONDITIONS if self.command in {"PUT", "POST"} else set())
                    and not name.lower().startswith("x-amz-date")
                }
                spares = headers.pop("x-oss-forbid-overwrite", "") == "true"
                if spares:
                    fake.created += 1
                if spares and fake.honours:
                    headers["If-None-Match"] = "*"
                request = AWSRequest(self.command, f"{seaweed.endpoint}{self.path}", headers, body)
                S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION).add_auth(request)
                connection = HTTPConnection("127.0.0.1", seaweed.port, timeout=60)
                try:
                    connection.request(self.command, self.path, body, dict(request.headers.items()))
                    answer = connection.getresponse()
                    self._answer(answer, answer.read(), spares)
                finally:
                    connection.close()

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

        class Listener(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

        self._server = Listener(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)
