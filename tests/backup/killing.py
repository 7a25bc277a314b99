"""Calls that are killed on purpose: `python -m tests.backup.killing` forks one process per call and kills it.

A process is ended by SIGKILL right before the n-th thing it would do to the file system.  What it has done
until then stays, as after a crash of the process.  Forking from a process that has everything loaded, and no
thread, makes hundreds of such deaths cheap.  One job per line on stdin (a pickle in base64), one answer per
line on stdout.
"""

from __future__ import annotations

import _strptime  # noqa: F401  loaded late by datetime, when another user may not reach the library any more
import base64
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import traceback
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.cache import UnavailableError

_TOUCHES = {
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
}


@dataclass(frozen=True)
class Job:
    """`call(*arguments)`, to be killed before its touch number `at` (None: let it live).

    `exchange`: whether the kernel can exchange two directories.  `uid`: who runs it.  `mounts`: file systems
    of its own, by mount point, with their size in bytes; what is on them is gone with the process.
    """

    call: Any
    arguments: tuple[Any, ...]
    at: int | None = None
    exchange: bool = True
    uid: int | None = None
    mounts: tuple[tuple[Path, int], ...] = ()


class Killer(AbstractContextManager["Killer"]):
    """The process that forks."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.backup.killing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def run(self, call, *arguments, **how):
        """True when the call was killed, False when it came to its end; what it raised is raised here."""
        job = Job(call, arguments, **how)
        self._process.stdin.write(base64.b64encode(pickle.dumps(job)).decode() + "\n")
        self._process.stdin.flush()
        answer = pickle.loads(base64.b64decode(self._process.stdout.readline()))
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _serve():
    for line in sys.stdin:
        job = pickle.loads(base64.b64decode(line))
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            _run(job, theirs)
        os.close(theirs)
        with os.fdopen(ours, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        answer = True if killed else pickle.loads(said or pickle.dumps(OSError(f"wait status {status}")))
        sys.stdout.write(base64.b64encode(pickle.dumps(answer)).decode() + "\n")
        sys.stdout.flush()


def _run(job, pipe):
    answer = False
    try:
        if not job.exchange:
            _without_exchange()
        if job.mounts:
            _mount(job.mounts)
        if job.uid is not None:
            _become(job.uid)
        if job.at is not None:
            _kill_at(job.at)
        job.call(*job.arguments)
    except BaseException as error:  # noqa: BLE001  told to the test
        error.add_note(traceback.format_exc())
        answer = error
    os.write(pipe, _pickled(answer))
    os._exit(0)


def _pickled(answer):
    try:
        pickle.loads(packed := pickle.dumps(answer))
    except Exception:  # noqa: BLE001  what cannot travel is told in words
        return pickle.dumps(AssertionError("\n".join([repr(answer), *answer.__notes__])))
    return packed


def _become(uid):
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    except PermissionError as error:
        raise UnavailableError("only root can run something as another user") from error


def own_mounts():
    """Give this process mounts of its own, for which a user namespace makes anybody root; whether it has
    them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, new_user, private = 0x20000, 0x10000000, 1 << 18 | 1 << 14
    uid, gid = os.geteuid(), os.getegid()
    flags = new_namespace | (new_user if uid else 0)
    done = libc.unshare(flags) == 0
    if done and uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    return done and libc.mount(b"none", b"/", None, private, None) == 0


def _mount(mounts):
    """Temporary file systems in a mount namespace."""
    done, libc = own_mounts(), ctypes.CDLL(None, use_errno=True)
    for path, size in mounts:
        options = f"size={size},mode=700".encode()
        done = done and libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, options) == 0
    if not done:
        raise UnavailableError(f"no mount namespace: {os.strerror(ctypes.get_errno())}")


def _without_exchange():
    """A C library without renameat2."""
    real = ctypes.CDLL

    class WithoutExchange(real):
        def __getattr__(self, name):
            if name == "renameat2":
                raise AttributeError(name)
            return super().__getattr__(name)

    ctypes.CDLL = WithoutExchange


def _kill_at(at):
    count = 0

    def touch():
        nonlocal count
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def hook(event, arguments):
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if event in _TOUCHES or writes:
            touch()

    sync = os.fsync

    def fsync(handle):
        touch()
        sync(handle)

    os.fsync = fsync
    sys.addaudithook(hook)


if __name__ == "__main__":
    _serve()
