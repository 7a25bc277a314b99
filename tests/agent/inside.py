"""A program of its own, run by `sandbox`: it holds a pod's namespaces, or runs a command in them.

`inside.py hold PLAN` and `inside.py enter PLAN`, PLAN being JSON.  It needs the standard library alone, so it
starts in 20 ms.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

NEW_MOUNTS, NEW_NETWORK = 0x00020000, 0x40000000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_DIE_WITH_PARENT = 1
_libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """A call of the C library, which has no wrapper in Python 3.11.  Raises OSError."""
    if getattr(_libc, name)(*arguments) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def _mount(source, target, kind, flags=0, options=""):
    words = (each and str(each).encode() for each in (source, target, kind))
    call("mount", *words, ctypes.c_ulong(flags), options.encode())


def hold(plan):
    """Make the namespaces, say so, and keep them until the end.

    `open` are directories that everybody in there may pass, and what is written to them leaves no trace
    outside; `binds` maps paths in there to what is mounted on them.
    """
    ready = Path(plan["ready"])
    outside = os.open(ready.parent, os.O_RDONLY | os.O_DIRECTORY)
    call("unshare", NEW_MOUNTS | NEW_NETWORK if plan["open"] else NEW_NETWORK)
    if plan["open"]:
        _build(plan)
    os.close(os.open(ready.name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=outside))
    while True:
        signal.pause()


def _build(plan):
    _mount("none", "/", None, _REC | _PRIVATE)
    # What is mounted is opened before something covers it.
    handles = {target: os.open(source, os.O_PATH) for target, source in plan["binds"].items()}
    scratch = Path(plan["scratch"])
    scratch.mkdir()
    _mount("tmpfs", scratch, "tmpfs", 0, "mode=755")
    os.chdir(scratch)  # found from here also when its own path is covered
    for number, (top, mode) in enumerate(plan["open"].items()):
        upper, work = Path(f"upper{number}"), Path(f"work{number}")
        upper.mkdir()
        upper.chmod(mode)
        work.mkdir()
        _mount("overlay", top, "overlay", 0, f"lowerdir={top},upperdir={upper},workdir={work}")
    for target, handle in handles.items():
        path = Path(target)
        if Path(f"/proc/self/fd/{handle}").is_dir():
            path.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        _mount(f"/proc/self/fd/{handle}", target, None, _BIND)


def join(handle):
    """Have this thread in a namespace that is open."""
    call("setns", handle, 0)


def enter(plan):
    """Become a command in the namespaces of the process `of`, as a user, with this environment alone."""
    for kind in ("net", "mnt"):
        join(os.open(f"/proc/{plan['of']}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC))
    os.chdir("/")
    os.umask(0o022)
    if uid := plan["uid"]:
        os.setgroups([uid])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    call("prctl", _DIE_WITH_PARENT, signal.SIGKILL)  # forgotten when the user changed
    os.execve(plan["command"][0], plan["command"], plan["environ"])


if __name__ == "__main__":
    {"hold": hold, "enter": enter}[sys.argv[1]](json.loads(sys.argv[2]))
