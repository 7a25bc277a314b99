"""The configuration of a workload identity, as its secret holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from rootcellar.operator.shared.secrets import Secret

CONFIG = "config"


def configured(secret: Secret) -> dict[str, Any]:
    """Its `config`: YAML, of a kind that the provider defines.  Raises ConfigError where it is none."""
    if CONFIG not in secret.data:
        raise ConfigError(f"the workload identity {secret.metadata.key} has no {CONFIG}")
    try:
        found = yaml.safe_load(secret.data[CONFIG])
    except yaml.YAMLError as error:
        raise ConfigError(f"the workload identity's {CONFIG} is no YAML: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"the workload identity's {CONFIG} is not a mapping")
    return found
