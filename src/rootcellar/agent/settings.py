"""What an agent is told.  The command line makes it; whoever embeds the agent may make it, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.backup.capture.session import CaptureOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rootcellar.agent.jobs import Job
    from rootcellar.agent.leadership import Rule
    from rootcellar.agent.mirror import Mirror
    from rootcellar.agent.schedule import Cron
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.kube.client import KubeClient
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True)
class HttpSettings:
    """Where the agent listens.  Port 0: any that is free.

    With `cert` and `key` it speaks TLS; with `client_ca` it also takes a client's certificate in the place of
    the token.  `token_file` holds the token (None: one is made for each run).
    """

    host: str = "127.0.0.1"
    port: int = 0
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    token_file: Path | None = None


@dataclass(frozen=True)
class LeaseSettings:
    """Names of Kubernetes leases, which somebody else has made; an empty one is not renewed.  `heartbeat` in
    seconds.

    `open_client` is called when the first lease is renewed.
    """

    open_client: Callable[[], KubeClient] = field(compare=False)
    namespace: str
    full: str = ""
    delta: str = ""
    member: str = ""
    heartbeat: float = 30.0


@dataclass(frozen=True)
class Settings:
    """All of it.  Durations in seconds.

    `open_client` and `open_store` are called for every stay, so that rotated certificates and changed
    settings take effect; without `open_store` nothing is captured.  `open_source` names the members that
    fulls come from, in the place of those that `open_client` does.  When one of `files` changes, everything
    is opened anew.  `delta_every` None: no deltas but those that are asked for.  When the store has taken
    nothing for `standby_after`, a chain is begun beside the first of the `mirrors`.  `http`, `state_dir` and
    `leases` are taken once: a reload leaves them as they are, and says so.
    """

    writer: str
    endpoints: tuple[str, ...]
    open_client: Callable[[], EtcdClient]
    state_dir: Path
    rule: Rule
    open_store: Callable[[], Store] | None = None
    open_source: Callable[[], EtcdClient] | None = None
    options: CaptureOptions = field(default_factory=CaptureOptions)
    delta_every: float | None = 300.0
    full: Cron | None = None
    skip_unchanged: bool = False
    jobs: tuple[Job, ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    standby_after: float = 900.0
    poll: float = 5.0
    grace: float = 20.0
    http: HttpSettings = field(default_factory=HttpSettings)
    files: tuple[Path, ...] = ()
    leases: LeaseSettings | None = None

    def unlike(self, running: Settings) -> tuple[str, ...]:
        """What only a new process takes from these settings, as the configuration calls it."""
        kept = {
            "agent.http": self.http != running.http,
            "agent.state-dir": self.state_dir != running.state_dir,
            "agent.leases": self.leases != running.leases,
        }
        return tuple(name for name, differs in kept.items() if differs)
