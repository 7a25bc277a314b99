"""The etcd that a person means: endpoints, certificates, user and password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.cli import flags
from rootcellar.cli.values import SECOND
from rootcellar.errors import ConfigError, UsageError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.connection import TlsFiles

if TYPE_CHECKING:
    from pathlib import Path

    from rootcellar.cli.context import Context


def client(context: Context, endpoints: tuple[str, ...] | None = None) -> EtcdClient:
    """A client, not connected yet; `endpoints` in the place of those that were named.

    Raises UsageError, ConfigError.
    """
    arguments = context.arguments
    user = arguments.get(flags.USER)
    if user is not None and ":" in user and arguments.has(flags.USER):
        raise UsageError(
            "--user holds a password, which everybody on this machine can see",
            hint=f"give the name alone, and the password in {flags.PASSWORD_VARIABLE} or --password-file",
        )
    return EtcdClient(
        endpoints or arguments.need(flags.ENDPOINTS),
        tls=_tls(context),
        user=user,
        password=_password(context) if user is not None else None,
        timeout=arguments.need(flags.TIMEOUT) / SECOND,
    )


def _tls(context: Context) -> TlsFiles | None:
    ca, cert, key = (context.arguments.get(each) for each in (flags.CACERT, flags.CERT, flags.CERT_KEY))
    name = context.arguments.get(flags.SERVER_NAME)
    if ca is None and cert is None and key is None and name is None:
        return None
    return TlsFiles(ca, cert, key, name)


def _password(context: Context) -> str:
    path = context.arguments.get(flags.PASSWORD_FILE)
    if path is not None:
        return _read(path)
    password = context.environ.get(flags.PASSWORD_VARIABLE) or context.configuration.setting(
        flags.PASSWORD_SETTING
    )
    if password is None:
        raise UsageError(
            "a user is named, but no password is given",
            hint=f"put it into {flags.PASSWORD_VARIABLE}, --password-file or the configuration",
        )
    return password


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}",
            hint="it holds the password alone",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text", hint="it holds the password in UTF-8") from error
