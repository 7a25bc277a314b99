"""`config schema`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rootcellar.cli.schema import File

if TYPE_CHECKING:
    from rootcellar.cli.context import Context

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def run(context: Context) -> int:
    """Print the schema."""
    context.console.out.write(schema())
    return 0


def schema() -> str:
    """The JSON Schema of the configuration file, as JSON."""
    return written({"$schema": DRAFT, **msgspec.json.schema(File)})


def written(found: dict[str, Any]) -> str:
    """A schema as JSON, the same under every Python: 3.13 and later indent docstrings in another way."""
    for kind in found["$defs"].values():
        if "description" in kind:
            kind["description"] = " ".join(kind["description"].split())
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
