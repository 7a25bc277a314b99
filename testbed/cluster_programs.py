"""What a node takes besides Kubernetes: Debian's containerd with the tools it calls, and CoreDNS.

Debian's packages are unpacked into the cache.  A node sees them below /usr, as if they were installed; nobody
else does.  `python -m testbed.cluster_programs` has everything ready.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import binaries, debian, golang, image_ours
from testbed.cache import UnavailableError, digest, made

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGES = (
    *("containerd", "runc", "containernetworking-plugins", "iptables", "conntrack", "iproute2"),
    # The libraries of these: a machine may lack some.
    *("libbpf1", "libbsd0", "libcap2", "libdb5.3", "libelf1", "libip4tc2", "libip6tc2", "libmd0", "libmnl0"),
    *("libnetfilter-conntrack3", "libnfnetlink0", "libnftnl11", "libpcre2-8-0", "libseccomp2", "libselinux1"),
    *("libtirpc3", "libxtables12"),
)
_IPTABLES = ("iptables", "iptables-save", "iptables-restore")


@functools.cache
def node_system() -> Path:
    """A directory to lay over /usr.  Raises UnavailableError."""

    def unpack(into: Path) -> None:
        debian.unpack(into, _PACKAGES)
        for name in ("bin", "sbin", "lib", "lib64"):
            if (into / name).is_dir():
                shutil.copytree(into / name, into / "usr" / name, symlinks=True, dirs_exist_ok=True)
                shutil.rmtree(into / name)
        # What installing would leave to Debian's alternatives.
        for name in (*_IPTABLES, *(name.replace("ip", "ip6", 1) for name in _IPTABLES)):
            (into / "usr/sbin" / name).symlink_to("xtables-nft-multi")

    return made(f"node-{digest([Path(__file__)])}", unpack) / "usr"


@functools.cache
def coredns() -> Path:
    """Raises UnavailableError."""
    if named := os.environ.get("TESTBED_COREDNS"):
        return Path(named)
    return golang.built("coredns", {"coredns": "."}) / "coredns"


@functools.cache
def pause() -> Path:
    """The first process of each pod.  Raises UnavailableError."""
    return golang.built("pause", {"pause": "."}) / "pause"


def main() -> int:
    """Have everything ready; the exit code is 1 if something cannot be had."""
    parts: dict[str, Callable[[], object]] = {
        "kubernetes": binaries.kubernetes,
        "etcd": lambda: binaries.etcd("3.6"),
        "weed": binaries.weed,
        "node": node_system,
        "pause": pause,
        "coredns": coredns,
        "helm": binaries.helm,
        "image": image_ours.layers,
    }
    missing = 0
    for name, find in parts.items():
        try:
            find()
        except UnavailableError as error:
            missing = 1
            print(f"{name:10} unavailable: {error}", flush=True)
    return missing


if __name__ == "__main__":
    sys.exit(main())
