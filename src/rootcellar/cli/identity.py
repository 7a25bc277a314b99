"""Who says so: what is written into a store names its writer."""

from __future__ import annotations

import getpass
import socket


def whoami() -> str:
    """USER@HOST, as far as this machine knows either."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no entry for this uid, as in many containers
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
