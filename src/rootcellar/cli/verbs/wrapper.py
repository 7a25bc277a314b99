"""`wrapper`: run etcd in its container, after a sidecar has made its data directory fit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.agent.wrapper import WrapperOptions, wrap
from rootcellar.cli import flags
from rootcellar.cli import wrapper_flags as own
from rootcellar.cli.values import SECOND
from rootcellar.errors import UsageError
from rootcellar.etcd.process import find_etcd
from rootcellar.logs import carry_notes, make_log

if TYPE_CHECKING:
    from rootcellar.cli.context import Context


def run(context: Context) -> int:
    """Run it to its end; etcd's exit code, 0 where it was asked to end."""
    carry_notes(make_log())
    return asyncio.run(wrap(options(context)))


def options(context: Context) -> WrapperOptions:
    """What the command line asks for.  Raises UsageError, ConfigError."""
    given = context.arguments
    given.operand(own.ACTION)
    tls = given.need(own.SIDECAR_TLS)
    ca = given.get(own.SIDECAR_CA)
    if tls and ca is None:
        raise UsageError(
            f"{own.SIDECAR_CA.flag} is needed", hint="the sidecar is asked by HTTPS: say whom to trust"
        )
    return WrapperOptions(
        etcd=find_etcd(given.get(flags.ETCD)),
        sidecar=f"{'https' if tls else 'http'}://{_address(given.need(own.SIDECAR))}",
        home=Path(context.environ.get("HOME") or "/").expanduser(),
        note=given.need(own.NOTE),
        sidecar_ca=ca,
        server_name=given.need(own.SERVER_NAME),
        client_cert=given.get(own.CLIENT_CERT),
        client_key=given.get(own.CLIENT_KEY),
        client_port=given.need(own.CLIENT_PORT),
        port=given.need(own.PORT),
        ready_seconds=given.need(own.READY) / SECOND,
    )


def _address(written: str) -> str:
    host, colon, port = written.rpartition(":")
    if not colon or not port.isdecimal() or "/" in written:
        raise UsageError(
            f"{own.SIDECAR.flag} is {written!r}, no address", hint="write HOST:PORT, without http://"
        )
    return f"{host or 'localhost'}:{port}"
