"""What a store is to keep: its retention in the configuration, and the flags above it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rootcellar.backup.prune.retention import Exponential, Gfs, LimitBased
from rootcellar.backup.prune.values import Rules
from rootcellar.cli import flags, sources, values
from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from rootcellar.backup.prune.retention import Policy
    from rootcellar.cli import schema
    from rootcellar.cli.context import Context


def rules(context: Context) -> Rules:
    """The rules for STORE.  Raises UsageError where nothing says what to keep, ConfigError."""
    arguments = context.arguments
    configured = sources.configured(context)
    retention = configured.retention if configured is not None else None
    written = arguments.get(flags.POLICY)
    if written is None and retention is None:
        raise UsageError(
            "nothing says what to keep",
            hint="give the store a `retention` in the configuration, or say --policy daily=7,weekly=4",
        )
    found = configured_rules(retention) if retention is not None else None
    policy = _policy(dict(written)) if written is not None else None
    minimum, deltas = arguments.get(flags.MINIMUM), arguments.get(flags.DELTAS_FOR)
    base = found or Rules(policy or LimitBased(1))
    return Rules(
        policy or base.policy,
        base.minimum if minimum is None else minimum,
        base.deltas if deltas is None else _span(deltas),
    )


def configured_rules(retention: schema.Retention) -> Rules:
    """The same out of the configuration alone.  Raises UsageError."""
    policy: Policy
    if retention.gfs is not None:
        each = retention.gfs
        policy = Gfs(each.hourly, each.daily, each.weekly, each.monthly, each.yearly)
    else:
        policy = Exponential() if retention.limit is None else LimitBased(retention.limit)
    deltas = None if retention.deltas is None else _span(values.span(retention.deltas))
    return Rules(policy, retention.minimum, deltas)


def _policy(written: dict[str, int]) -> Policy:
    if "exponential" in written:
        return Exponential()
    return LimitBased(written["limit"]) if "limit" in written else Gfs(**written)


def _span(nanoseconds: int) -> timedelta:
    return timedelta(microseconds=nanoseconds // 1000)
