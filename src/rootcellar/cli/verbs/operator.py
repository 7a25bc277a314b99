"""`operator`: serve the contracts of Gardener in a cluster."""

from __future__ import annotations

import logging
import socket
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

from rootcellar.cli import flags
from rootcellar.cli import operator_flags as own
from rootcellar.cli.document import Document
from rootcellar.cli.values import SECOND
from rootcellar.errors import ConfigError, UsageError
from rootcellar.kube import discovery
from rootcellar.logs import carry_notes, make_log

if TYPE_CHECKING:
    from rootcellar.cli.context import Context
    from rootcellar.kube.access import Access
    from rootcellar.operator.settings import OperatorSettings


class OperatorCheck(Document, frozen=True):
    """What an operator would do."""

    api_server: str
    version: str
    cluster: str
    namespace: str
    controllers: tuple[str, ...]
    types: tuple[str, ...]
    classes: tuple[str, ...]


def run(context: Context) -> int:
    """Until SIGTERM; or look whether it could, with --check-config."""
    try:
        from rootcellar.operator.process import operate  # noqa: PLC0415  an extra brings what it needs
    except ImportError as error:
        raise ConfigError("urllib3 is not installed", hint="pip install 'rootcellar[kube]'") from error
    access = discovery.find(context.environ)
    settings = _settings(context, access)
    if context.arguments.has(flags.CHECK_CONFIG):
        return _check(context, access, settings)
    log = make_log(context.arguments.need(flags.LOG_FORMAT))
    carry_notes(log, logging.WARNING)  # below it libraries of clouds tell of each request
    operate(access, settings, log, ready=lambda manager: manager.stop_on_signals())
    return 0


def _settings(context: Context, access: Access) -> OperatorSettings:
    from rootcellar.operator.contracts import NAMES  # noqa: PLC0415  as above
    from rootcellar.operator.settings import OperatorSettings  # noqa: PLC0415  as above

    given, written = context.arguments, context.configuration.file.operator
    if given.has(own.LEADER_ELECTION) and given.has(own.NO_LEADER_ELECTION):
        raise UsageError("--leader-election and --no-leader-election say the opposite of each other")
    if (workers := given.need(own.WORKERS)) < 1:
        raise UsageError("--workers is 0: nothing would ever be done")
    return OperatorSettings(
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        namespace=given.get(own.NAMESPACE) or access.namespace,
        controllers=given.get(own.CONTROLLERS) or NAMES,
        types=given.need(own.TYPES),
        classes=given.need(own.CLASSES),
        directory=given.need(own.DIRECTORY),
        host_path=given.need(own.HOST_PATH),
        elects=given.has(own.LEADER_ELECTION)
        or (written.leader_election and not given.has(own.NO_LEADER_ELECTION)),
        listen=given.need(own.LISTEN),
        workers=workers,
        ignore_annotation=given.has(own.IGNORE_ANNOTATION) or written.ignore_operation_annotation,
        grace=timedelta(seconds=given.need(own.GRACE) / SECOND),
        endpoints=given.get(own.ENDPOINTS) or (),
        lease=given.need(own.LEASE),
        takes_over=given.has(own.TAKE_OVER) or written.take_over,
        beats=given.has(own.HEARTBEAT) or written.heartbeat,
    )


def _check(context: Context, access: Access, settings: OperatorSettings) -> int:
    """Look whether all is there, without a write in the cluster."""
    from rootcellar.kube.client import KubeClient  # noqa: PLC0415  as above
    from rootcellar.operator.process import look  # noqa: PLC0415  as above

    with KubeClient(access) as client:
        shown = OperatorCheck(
            api_server=access.url,
            version=client.version(),
            cluster=look(client, settings),
            namespace=settings.namespace,
            controllers=settings.controllers,
            types=settings.types,
            classes=settings.classes,
        )
    if not context.console.is_text:
        context.console.document(shown)
        return 0
    who = "the one that its Lease names works" if settings.elects else "this process works at once"
    context.console.lines(
        [
            f"Kubernetes {shown.version} at {shown.api_server}, cluster {shown.cluster}",
            f"{', '.join(shown.controllers)} of the types {', '.join(shown.types)}",
            f"of class {', '.join(shown.classes)}",
            f"in the namespace {shown.namespace}: {who}",
        ]
    )
    return 0
