"""All of Swift in one process: the proxy and an account, container and object server, one disk, one copy.

Run by `testbed.swift` with the packages of requirements/swift.txt on PYTHONPATH, in an interpreter of its
own: eventlet replaces half of the standard library.  What a request meets are Swift's own applications and
middleware, from TempAuth to the files on disk; only the four processes are one, which is a quarter of the
memory.

    python -m testbed.swift_server DIRECTORY PASSWORD_FILE PROXY_PORT ACCOUNT_PORT CONTAINER_PORT OBJECT_PORT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import eventlet
import eventlet.wsgi

eventlet.patcher.monkey_patch()

from cryptography.fernet import Fernet  # noqa: E402 - behind the patch, as all below
from swift.common import utils  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.wsgi import SwiftHttpProtocol, loadapp  # noqa: E402

# By default a server that is not reached within half a second counts as gone, and what a listing does not
# hear of within seconds it would hear of later, from a process that we do not have.
DEFAULT = """
[DEFAULT]
swift_dir = {swift_dir}
conn_timeout = 60
node_timeout = 60
container_update_timeout = 60
error_suppression_limit = 1000000
"""
STORAGE = """devices = {swift_dir}/disks
mount_check = false
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
# Tokens that TempAuth can read without a memcached; a rule of our own on what a segment may be would hide
# what Swift's own rules are, so all limits are Swift's.
PROXY = """[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache listing_formats bulk tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
paste.filter_factory = testbed.swift_cache:filter_factory
[filter:tempauth]
use = egg:swift#tempauth
user_testbed_backup = {password} .admin
user_testbed_grower = {password}-grün-€ .admin
fernet_key_1 = {key}
active_fernet_key_id = 1
storage_url_scheme = http
"""
FILTERS = ("catch_errors", "gatekeeper", "healthcheck", "listing_formats", "bulk", "slo", "dlo")


def main(directory: str, password: str, *ports: str) -> None:
    """Serve until killed."""
    os.fsync = os.fdatasync = _unsynced
    home = Path(directory)
    (home / "disks" / "disk").mkdir(parents=True, exist_ok=True)
    (home / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = testbed\n")
    utils.set_swift_dir(str(home))
    names = dict(zip(("proxy", "account", "container", "object"), map(int, ports), strict=True))
    pool = eventlet.GreenPool()
    for kind, port in names.items():
        if kind == "proxy":
            key = Fernet.generate_key().decode()
            text = (DEFAULT + PROXY).format(swift_dir=home, password=Path(password).read_text(), key=key)
            text += "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in FILTERS)
        else:
            _ring(home / f"{kind}.ring.gz", port)
            text = (DEFAULT + STORAGE).format(swift_dir=home, kind=kind)
        (home / f"{kind}.conf").write_text(text, "utf-8")
    for kind, port in reversed(names.items()):
        application = loadapp(str(home / f"{kind}.conf"), global_conf={"log_name": kind})
        listener = eventlet.listen(("127.0.0.1", port), backlog=256)
        pool.spawn(
            eventlet.wsgi.server,
            listener,
            application,
            utils.NullLogger(),
            protocol=SwiftHttpProtocol,
            capitalize_response_headers=False,
            keepalive=60,
        )
    pool.waitall()


def _unsynced(fd: Any) -> None:
    """What is kept here is not kept for long."""


def _ring(path: Path, port: int) -> None:
    """Where things of a kind are: all on our one disk."""
    builder = RingBuilder(4, 1, 0)
    builder.add_dev(
        {"id": 0, "region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "disk", "weight": 1}
    )
    builder.rebalance()
    builder.get_ring().save(str(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
