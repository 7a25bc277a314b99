"""What JSON and YAML output is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from rootcellar.cli.console import API_VERSION, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rootcellar.cli.console import Console


class Document(msgspec.Struct, frozen=True, rename="camel", kw_only=True, tag_field="kind"):
    """A result.  `kind` is the class's name.  Members are an interface: more may come, none may change.

    `ITEMS` is what a document that is streamed has in `items`, beside its own members.
    """

    ITEMS: ClassVar[type | None] = None


class Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A piece of a document."""


def stream(console: Console, head: Document, items: Iterable[object]) -> None:
    """A document whose last member, `items`, may be larger than memory: one item per line, as they come.

    Where an error ends it, the document is not closed: no reader takes it for whole.
    """
    members = {"apiVersion": API_VERSION, **msgspec.to_builtins(head)}
    out = console.out
    if console.output == "yaml":
        out.write(encode(head, "yaml"))
        dash = "items:\n- "
        for item in items:
            out.write(f"{dash}{msgspec.json.encode(item).decode()}\n")
            dash = "- "
        out.write("" if dash == "- " else "items: []\n")
        return
    out.write(f'{msgspec.json.encode(members).decode().removesuffix("}")},"items":[')
    comma = "\n"
    for item in items:
        out.write(f"{comma}{msgspec.json.encode(item).decode()}")
        comma = ",\n"
    out.write("\n]}\n")
