"""A line to the API server that a test breaks where it wants: plain to us, TLS beyond.

with Line(control_plane) as line:
    line.proxy.on(b"watch=true", CutDown(100))
    Reflector(line.client, ...)
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from urllib.parse import urlsplit

from rootcellar.kube.client import KubeClient
from tests.stores.proxy import Answer, Proxy

WATCH, LIST, NEXT_PAGE = b"watch=true", b"limit=", b"continue="


class Line(AbstractContextManager):
    """`proxy` sees every request in the clear; `client` goes through it."""

    def __init__(self, control_plane):
        self._stack = ExitStack()
        access = control_plane.access
        beyond = self._stack.enter_context(Beyond(access.url, access.context()))
        self.proxy = self._stack.enter_context(Proxy(beyond.port))
        plain = replace(access, url=self.proxy.endpoint, ca=None, certificate=None, key=None)
        self.client = self._stack.enter_context(KubeClient(plain, timeout=30))

    def __exit__(self, *exception):
        self._stack.close()


class Beyond(AbstractContextManager):
    """Takes connections in the clear and goes on by TLS.  One thread, as one TLS connection must not be read
    and written by two.
    """

    def __init__(self, url, context):
        self._host, self._upstream, self._context = urlsplit(url).hostname, urlsplit(url).port, context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _serve(self, reader, writer):
        ends = [writer]
        try:
            there = await asyncio.open_connection(self._host, self._upstream, ssl=self._context)
            ends.append(there[1])
            pumps = [asyncio.ensure_future(_pump(*pair)) for pair in ((reader, there[1]), (there[0], writer))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            await writer.drain()  # what came last may still be on its way
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass
        finally:
            ends[-1].transport.abort()
            writer.close()

    async def _end(self):
        self._server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for _ in range(10):  # turns of the loop, in which transports get closed
            await asyncio.sleep(0)

    def __exit__(self, *exception):
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


async def _pump(reader, writer):
    while block := await reader.read(1 << 16):
        writer.write(block)
        await writer.drain()


def answer(body, status=200):
    """A whole answer in the API server's place."""
    head = f"HTTP/1.1 {status} Test\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return Answer(head.encode() + b"Connection: close\r\n\r\n" + body)


def meanwhile(act, then):
    """Do something while a request is under way, then answer it so."""

    def acted(_seen):
        act()
        return then.data

    return Answer(acted)
