"""The file by which commands find an agent, when its port is somebody else's."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest

from rootcellar.agent import doorway


@contextmanager
def stranger(answer):
    """Where somebody answers each call with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            caller, _ = server.accept()
            with caller:
                caller.recv(4096)
                caller.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.0 404 Not Found\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
    ],
)
def test_a_killed_agent_is_not_found_where_its_port_is_another_s(tmp_path, answer):
    with stranger(answer) as url:
        doorway.write(tmp_path, doorway.Doorway(url, "t" * 32, "file:///x", 1))
        assert doorway.find(tmp_path, "file:///x") is None
