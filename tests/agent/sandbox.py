"""Pods without Kubernetes: network and mount namespaces, a bridge between them, names, services.

All of it hangs on processes that die with the test, so nothing stays behind, and nothing outside changes: the
bridge lies in a network namespace of its own, which has no way out.  What a pod may reach beyond it (the API
server, a store) is carried there by a relay.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from testbed.cache import UnavailableError
from testbed.server import Server
from tests.agent import inside

NOBODY = 65532
"""The user of distroless images, which etcd-druid has both containers run as."""
_SUBNET = "10.231.0"
_BLOCK = 1 << 16
_PROGRAM = Path(inside.__file__)


def words(mode, **plan):
    return [sys.executable, "-I", "-S", _PROGRAM, mode, json.dumps(plan)]


def within(handle, function):
    """What `function` returns in a thread that is in this network namespace; its sockets stay there."""
    found = []

    def run():
        try:
            inside.join(handle)
            found.append((function(), None))
        except BaseException as error:  # noqa: BLE001  handed on
            found.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    ((value, error),) = found
    if error is not None:
        raise error
    return value


class Holder(Server):
    """A process that holds namespaces; `net` is its network."""

    def __init__(self, name, directory, *, opens=None, binds=None):
        super().__init__(name, directory)
        directory.mkdir(parents=True)
        ready = directory / "ready"
        plan = {"open": opens or {}, "binds": {k: str(v) for k, v in (binds or {}).items()}}
        self.launch(words("hold", **plan, ready=str(ready), scratch=str(directory / "scratch")))
        self.wait_until(ready.exists, "holding", 20)
        self.net = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def kill(self):
        super().kill()
        if self.net is not None:
            os.close(self.net)
            self.net = None


class Carrier:
    """A thread with an event loop, in a network namespace or in ours, that carries TCP connections."""

    def __init__(self, handle=None):
        self._handle = handle
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="carrier", daemon=True)
        self._thread.start()

    def _run(self):
        if self._handle is not None:
            inside.join(self._handle)
        self._loop.run_forever()

    def serve(self, listening, target):
        """Carry what comes in at a listening socket to `target()`, (host, port) or None to refuse.

        What ends it, connections included.
        """
        open_ones = set()

        async def carry(reader, writer):
            open_ones.add(writer)
            upward = None
            try:
                place = target()
                if place is not None:
                    onward, upward = await asyncio.open_connection(*place)
                    open_ones.add(upward)
                    await asyncio.wait(
                        [asyncio.create_task(_pipe(*way)) for way in ((reader, upward), (onward, writer))],
                        return_when=asyncio.FIRST_COMPLETED,
                    )
            except OSError:
                pass
            finally:
                for each in (writer, upward):
                    if each is not None:
                        open_ones.discard(each)
                        each.transport.abort()

        async def begin():
            return await asyncio.start_server(carry, sock=listening, limit=_BLOCK)

        server = asyncio.run_coroutine_threadsafe(begin(), self._loop).result(30)

        async def end():
            server.close()
            for each in list(open_ones):
                each.transport.abort()

        return lambda: asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)

    def close(self):
        async def settle():
            mine = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(settle(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


async def _pipe(reader, writer):
    with suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()


class Network(AbstractContextManager["Network"]):
    """A bridge, the names that are known on it, and what is carried there.  Raises UnavailableError."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir(parents=True)
        if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
            raise UnavailableError("network namespaces take root, iproute2 and util-linux")
        self.hosts = directory / "hosts"
        self.nsswitch = directory / "nsswitch.conf"
        self.nsswitch.write_text("hosts: files\n")
        self._names = {"localhost": "127.0.0.1"}
        self._lock = threading.Lock()
        self._write_names()
        self._numbers = iter(range(10, 250))
        self._sandboxes = []
        self._ends = []
        self.outside = Carrier()
        self.node = Holder("node", directory / "node")
        self.inside = Carrier(self.node.net)
        self.ip(
            self.node,
            "link set lo up",
            "link add cni0 type bridge",
            f"addr add {_SUBNET}.1/24 dev cni0",
            "link set cni0 up",
        )

    def ip(self, holder, *commands):
        """Commands of iproute2, in a network."""
        subprocess.run(
            ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "ip", "-batch", "-"],
            input="\n".join(commands).encode(),
            check=True,
            capture_output=True,
            timeout=30,
        )

    # names

    def name(self, name, address):
        """Have a name known to all pods, or with None no longer."""
        with self._lock:
            if address is None:
                self._names.pop(name, None)
            else:
                self._names[name] = address
            self._write_names()

    def _write_names(self):
        # Mounted into every pod: written in place, and never shorter for a moment than it was.
        text = "".join(f"{address} {name}\n" for name, address in self._names.items()).encode()
        with self.hosts.open("r+b" if self.hosts.exists() else "wb") as file:
            file.write(text)
            file.truncate()

    # what is reached

    def pod(self, name, binds):
        """A new sandbox with an address of its own."""
        number = next(self._numbers)
        address = f"{_SUBNET}.{number}"
        own = {"/etc/hosts": self.hosts, "/etc/nsswitch.conf": self.nsswitch}
        directory = self.directory / f"{name}-{number}"
        sandbox = Holder("pause", directory, opens=_opened(), binds={**binds, **own})
        sandbox.address = address
        self._sandboxes.append(sandbox)
        link = f"veth{number}"
        self.ip(
            self.node,
            f"link add {link} type veth peer name eth0 netns {sandbox.pid}",
            f"link set {link} master cni0",
            f"link set {link} up",
        )
        self.ip(sandbox, "link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up")
        return sandbox

    def service(self, name, ports, ready):
        """An address that carries to one of the pods' that `ready()` lists, in turn."""
        address = f"{_SUBNET}.{next(self._numbers)}"
        self.ip(self.node, f"addr add {address}/32 dev cni0")
        self.name(name, address)
        turn = iter(range(1 << 62))
        for port in ports:

            def target(port=port):
                there = ready()
                return (there[next(turn) % len(there)], port) if there else None

            listening = within(self.node.net, lambda port=port: socket.create_server((address, port)))
            self._ends.append(self.inside.serve(listening, target))

    def let_in(self, holder, host, port, target):
        """Carry from an address in there to `target` out here; what ends it."""
        listening = within(holder.net, lambda: socket.create_server((host, port)))
        return self.outside.serve(listening, lambda: target)

    def __exit__(self, *_):
        for end in self._ends:
            end()
        for holder in (*self._sandboxes, self.node):
            holder.kill()
        for carrier in (self.inside, self.outside):
            carrier.close()


def _opened():
    """Directories with what a pod writes to, and those on the way to Python that others may not pass."""
    found = {"/var": 0o755, "/run": 0o755, "/home": 0o755, "/tmp": 0o1777}
    for path in (Path(sys.base_prefix), Path(sys.prefix), Path(__file__)):
        for above in path.parents:
            if not above.stat().st_mode & 0o001:
                found.setdefault(str(above), 0o755)
    return found


class Container(Server):
    """A process in a sandbox, with its own environment, as a user without rights."""

    def run(self, sandbox, command, environ, uid=NOBODY):
        self.launch(words("enter", of=sandbox.pid, uid=uid, command=list(map(str, command)), environ=environ))
