"""A fake keystone on loopback: it knows one project, and hands out tokens of a real Swift."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DOMAIN = {"name": "garden"}
PASSWORD = {
    "identity": {
        "methods": ["password"],
        "password": {"user": {"name": "backup", "domain": DOMAIN, "password": "pass-word"}},
    },
    "scope": {"project": {"name": "shoots", "domain": DOMAIN}},
}
APPLICATION = {
    "identity": {
        "methods": ["application_credential"],
        "application_credential": {"id": "app-id", "secret": "app-secret"},
    }
}


class FakeKeystone:
    """Listens on `auth`.  `asked` is what it was asked for; `tokens`, if any, are handed out before real
    ones; `lasts` is until when they are said to hold.
    """

    def __init__(self, container, regions=("north",)):
        self.asked = []
        self.tokens = []
        self.status = 201
        self.known = [PASSWORD, APPLICATION]
        self.lasts = "2099-01-01T00:00:00.000000Z"
        self.regions = list(regions)
        self._container = container
        keystone = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                keystone.asked.append((self.path, body["auth"]))
                status = keystone.status if body["auth"] in keystone.known else 401
                said = json.dumps(
                    keystone.answer() if status == 201 else {"error": {"code": status}}
                ).encode()
                self.send_response(status if self.path.endswith("/v3/auth/tokens") else 404)
                self.send_header("Content-Length", str(len(said)))
                if status == 201:
                    self.send_header("X-Subject-Token", keystone.token())
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                """Keep still."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.auth = f"http://127.0.0.1:{self._server.server_port}/identity/v3"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    def token(self):
        return self.tokens.pop(0) if self.tokens else self._container.login()[1]

    def answer(self):
        account = self._container.login()[0]
        endpoints = [
            {
                "interface": interface,
                "region": region,
                "url": account if interface == "public" else "http://no",
            }
            for region in self.regions
            for interface in ("internal", "public", "admin")
        ]
        catalog = [{"type": "image", "endpoints": []}, {"type": "object-store", "endpoints": endpoints}]
        return {"token": {"expires_at": self.lasts, "catalog": catalog}}
