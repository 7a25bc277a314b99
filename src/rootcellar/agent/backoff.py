"""How long to wait before trying again, by what went wrong.  Nothing is ever given up."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.agent.state import Fault
from rootcellar.errors import (
    ConfigError,
    DeniedError,
    EtcdDeniedError,
    EtcdError,
    EtcdUnavailableError,
    FencedError,
    IdentityError,
    RootcellarError,
    StoreError,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Rule:
    """The first and the longest pause in seconds; it doubles between them."""

    fault: Fault
    first: float
    longest: float


_RULES: tuple[tuple[type[BaseException], Rule], ...] = (
    (EtcdUnavailableError, Rule(Fault.ETCD_UNAVAILABLE, 0.5, 15)),
    (EtcdDeniedError, Rule(Fault.ETCD_DENIED, 5, 60)),
    (EtcdError, Rule(Fault.ETCD, 2, 60)),
    (TransientError, Rule(Fault.STORE_UNAVAILABLE, 1, 60)),
    (DeniedError, Rule(Fault.STORE_DENIED, 5, 60)),
    (StoreError, Rule(Fault.STORE, 2, 60)),
    # Whoever took over may be a person with one command; or another agent, which then finds us silent.
    (FencedError, Rule(Fault.FENCED, 20, 300)),
    (IdentityError, Rule(Fault.FOREIGN, 60, 300)),
    (ConfigError, Rule(Fault.CONFIG, 5, 60)),
    (RootcellarError, Rule(Fault.INTERNAL, 5, 120)),
    (BaseException, Rule(Fault.INTERNAL, 5, 300)),
)


def rule_for(error: BaseException) -> Rule:
    """How an error is treated."""
    return next(rule for kind, rule in _RULES if isinstance(error, kind))


class Backoff:
    """Pauses that grow while one fault lasts, each between half and the whole of its length."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._fault: Fault | None = None
        self._times = 0

    def pause(self, error: BaseException) -> float:
        """Seconds to wait after this error."""
        rule = rule_for(error)
        self._times = self._times + 1 if rule.fault is self._fault else 0
        self._fault = rule.fault
        length = min(rule.longest, rule.first * 2.0 ** min(self._times, 30))
        return length * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """It worked."""
        self._fault, self._times = None, 0
