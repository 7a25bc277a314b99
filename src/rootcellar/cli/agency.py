"""The settings of the agent, from flags, environment and configuration; and where a running one is found."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.agent import doorway
from rootcellar.agent.leadership import Rule
from rootcellar.agent.schedule import Cron
from rootcellar.agent.settings import HttpSettings, Settings
from rootcellar.backup.capture.cut import DeltaLimits
from rootcellar.backup.capture.full import FullOptions
from rootcellar.backup.capture.session import CaptureOptions
from rootcellar.backup.catalogue import documents, keys, names
from rootcellar.backup.catalogue.ownership import Epoch
from rootcellar.cli import connecting, flags, sources, values
from rootcellar.cli.configuration import reveal
from rootcellar.cli.identity import whoami
from rootcellar.cli.leasing import leases
from rootcellar.cli.sealing import writing
from rootcellar.errors import AgentError, ConfigError, NotFoundError, RecordError

if TYPE_CHECKING:
    from rootcellar.agent.doorway import Doorway
    from rootcellar.cli import schema
    from rootcellar.cli.context import Context
    from rootcellar.stores.protocol import Store

_DELTA_BYTES = 16 << 20


def state_dir(context: Context) -> Path:
    """Where agents on this machine leave word."""
    return context.arguments.get(flags.STATE_DIR) or doorway.default_directory(context.environ)


def running(context: Context, store_url: str) -> Doorway | None:
    """The agent that writes to this store, if one runs here."""
    return doorway.find(state_dir(context), store_url)


def epoch(context: Context, store: Store) -> Epoch | None:
    """The epoch in which an agent on this machine writes to a store, for who works beside it and must not
    fence it; None where none does.  Raises StoreErrors.
    """
    agent = running(context, store.url)
    if agent is None:
        return None
    try:
        status = agent.ask("GET", "/status")
        found = documents.fetch(store, keys.epoch(status["epoch"] or 0), Epoch)
    except (OSError, AgentError, NotFoundError, RecordError):
        return None
    return found if status["leads"] and found.writer == status["writer"] else None


def settings(context: Context) -> Settings:
    """All that an agent is told.  Raises ConfigError, UsageError."""
    arguments, file = context.arguments, context.configuration.file
    has_store = sources.word(context) is not None or bool(file.stores)
    endpoints = arguments.need(flags.ENDPOINTS)
    delta = file.schedules.delta
    seed = whoami()
    how = writing(context) if has_store else None
    full = file.agent.full_endpoints
    return Settings(
        writer=seed,
        endpoints=endpoints,
        open_client=lambda: connecting.client(context),
        open_source=(lambda: connecting.client(context, tuple(map(reveal, full)))) if full else None,
        open_store=(lambda: sources.writable(context)) if has_store else None,
        state_dir=state_dir(context),
        rule=_rule(arguments.need(flags.LEAD), endpoints),
        options=CaptureOptions(
            full=FullOptions(
                suffix=how.suffix if how is not None else names.GZIP,
                live_hash=arguments.need(flags.LIVE_HASH) == "full",
            ),
            limits=DeltaLimits(size=values.size(delta.bytes) if delta.bytes else _DELTA_BYTES, age=math.inf),
            override=arguments.get(flags.TAKE_OVER) or "",
            recipients=how.recipients if how is not None else (),
        ),
        delta_every=None if delta.suspend else period("schedules.delta.every", delta.every),
        full=cron(file.schedules.full, seed),
        skip_unchanged=file.schedules.full.skip_unchanged,
        poll=period("agent.poll", file.agent.poll),
        grace=arguments.need(flags.GRACE) / values.SECOND,
        http=_http(arguments.need(flags.LISTEN), file.agent.http),
        leases=leases(file.agent.leases, endpoints, context.environ),
        files=tuple(
            path
            for path in (
                arguments.get(each)
                for each in (flags.CACERT, flags.CERT, flags.CERT_KEY, flags.PASSWORD_FILE)
            )
            if path is not None
        ),
    )


def cron(written: schema.Schedule, seed: str) -> Cron:
    """A schedule of the file.  Raises ConfigError."""
    jitter = timedelta(microseconds=values.span(written.jitter) // 1000) if written.jitter else timedelta(0)
    return Cron(written.cron, written.timezone, jitter, seed, written.suspend)


def _rule(written: str, endpoints: tuple[str, ...]) -> Rule:
    return Rule.for_endpoints(endpoints) if written == "auto" else Rule(written)


def period(setting: str, written: str) -> float:
    """A time span of the file in seconds.  Raises ConfigError for one that is too short."""
    seconds = values.span(written) / values.SECOND
    if seconds < 1:
        raise ConfigError(f"{setting} is {written}", hint="one second is the least")
    return seconds


def _http(listen: str, written: schema.Http) -> HttpSettings:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{listen!r} is not ADDRESS:PORT", hint="such as 127.0.0.1:8080")
    return HttpSettings(
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        cert=_path(written.cert),
        key=_path(written.key),
        client_ca=_path(written.client_ca),
        token_file=_path(written.token_file),
    )


def _path(written: str | None) -> Path | None:
    return Path(reveal(written)) if written is not None else None
