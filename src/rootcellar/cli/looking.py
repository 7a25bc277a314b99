"""What the verbs that look into backups share: opening one, and how its keys and values are shown."""

from __future__ import annotations

from base64 import b64encode
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rootcellar.backup.browse import browse
from rootcellar.backup.browse.extract import text
from rootcellar.cli import flags
from rootcellar.cli.backups import source
from rootcellar.cli.document import Part
from rootcellar.cli.progress import Phase, progress
from rootcellar.cli.sealing import keyring
from rootcellar.cli.targets import at
from rootcellar.mvcc.history import EVERYTHING, KeyRange
from rootcellar.mvcc.kubernetes import KubernetesObject, recognise

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rootcellar.backup.browse.browse import Opened
    from rootcellar.cli.arguments import Arguments
    from rootcellar.cli.context import Context
    from rootcellar.mvcc.record import KeyValue

_UINT64 = (1 << 64) - 1
PHASES: Mapping[str, Phase] = {"full": Phase("full"), "deltas": Phase("deltas", None, "events")}


class KeyShown(Part, frozen=True, omit_defaults=True, kw_only=True):
    """A key at a revision, without its value.

    What is no printable UTF-8 is in `keyBase64` instead of `key`.  `valueSize` is in bytes, `lease` in hex.
    """

    key: str | None = None
    key_base64: str | None = None
    create_revision: int
    mod_revision: int
    version: int
    value_size: int
    lease: str | None = None
    kubernetes: KubernetesObject | None = None

    @classmethod
    def of(cls, record: KeyValue) -> KeyShown:
        """What to show of a record."""
        return cls(
            key=text(record.key),
            key_base64=base64(record.key),
            create_revision=record.create_revision,
            mod_revision=record.mod_revision,
            version=record.version,
            value_size=len(record.value),
            lease=lease(record),
            kubernetes=recognise(record.value),
        )


def base64(raw: bytes) -> str | None:
    """Bytes that are no text; None for those that are."""
    return None if text(raw) is not None else b64encode(raw).decode()


def lease(record: KeyValue) -> str | None:
    """The id as etcdctl prints it."""
    return f"{record.lease & _UINT64:x}" if record.lease else None


@contextmanager
def opened(context: Context) -> Generator[Opened]:
    """The backup that the arguments mean, at --at; what to know of it is said."""
    arguments = context.arguments
    place = source(context)
    with ExitStack() as stack:
        with progress(context.console, PHASES) as advance:
            found = stack.enter_context(
                browse.opened(
                    place,
                    at(arguments.need(flags.AT)),
                    timeline=arguments.get(flags.TIMELINE),
                    exclude=arguments.all(flags.EXCLUDE),
                    scratch=arguments.get(flags.SCRATCH),
                    keyring=keyring(context, place),
                    progress=advance,
                )
            )
        if context.console.out.is_terminal:
            context.console.note(f"revision {found.revision} of {found.origin}")
        # Those of a chain are about what a restored member will be like; those of a file, about its bytes.
        for warning in () if found.objects else found.warnings:
            context.console.note(f"note: {warning}")
        yield found


def within(arguments: Arguments) -> KeyRange:
    """The keys that --prefix means; all without it."""
    prefix = arguments.get(flags.PREFIX)
    return EVERYTHING if prefix is None else KeyRange.prefix(prefix)
