"""The etcd configuration of one member, made from the one that all members share.

The shared file is etcd's own YAML with what etcd-druid adds: `initial-advertise-peer-urls` and
`advertise-client-urls` may be maps from member names to lists of URLs, and `member-name-prefix` goes before
the pod's name.  Files of older versions have one URL there, or `scheme@service@namespace@port`, which is the
pod's name in that service.  etcd understands none of this: it gets its own name and its own URLs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rootcellar.etcd.answers import Member

PEERS, CLIENTS = "initial-advertise-peer-urls", "advertise-client-urls"
LISTEN_PEERS = "listen-peer-urls"
PREFIX = "member-name-prefix"
CLUSTER, STATE = "initial-cluster", "initial-cluster-state"
_IN_SERVICE = re.compile(r"(https?)@([^@]+)@([^@]+)@(\d+)\Z")


@dataclass(frozen=True, slots=True)
class EtcdConfig:
    """A shared configuration as one pod reads it.  `text` is the whole file, `pod` the pod's name."""

    values: Mapping[str, Any]
    pod: str

    @classmethod
    def read(cls, path: Path, pod: str) -> EtcdConfig:
        """Raises ConfigError."""
        try:
            return cls.parse(path.read_text("utf-8"), pod, str(path))
        except OSError as error:
            raise ConfigError(
                f"the etcd configuration {path} cannot be read: {error.strerror}",
                hint="name it in ETCD_CONF",
            ) from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"the etcd configuration {path} is no text") from error

    @classmethod
    def parse(cls, text: str, pod: str, where: str = "the etcd configuration") -> EtcdConfig:
        """Raises ConfigError."""
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"{where} is no YAML: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(f"{where} holds no mapping of settings")
        return cls(values, pod)

    @property
    def member(self) -> str:
        """The member's name: the pod's, behind the prefix if there is one."""
        prefix = self.values.get(PREFIX)
        return f"{prefix}-{self.pod}" if prefix else self.pod

    @property
    def initial_cluster(self) -> dict[str, tuple[str, ...]]:
        """Peer URLs by member, in the order of the file.  Raises ConfigError."""
        found: dict[str, list[str]] = {}
        for part in filter(None, str(self.values.get(CLUSTER) or "").split(",")):
            name, equals, url = part.strip().partition("=")
            if not equals or not name or "://" not in url:
                raise ConfigError(f"{CLUSTER} has {part!r}", hint="write NAME=URL,NAME=URL")
            found.setdefault(name, []).append(url)
        return {name: tuple(urls) for name, urls in found.items()}

    @property
    def peer_urls(self) -> tuple[str, ...]:
        """Where this member shall be reached by its peers.  Raises ConfigError."""
        return self._own(PEERS)

    @property
    def listen_peer_urls(self) -> tuple[str, ...]:
        """Where etcd listens for its peers; empty where that is left to it."""
        return tuple(filter(None, map(str.strip, str(self.values.get(LISTEN_PEERS) or "").split(","))))

    @property
    def client_urls(self) -> tuple[str, ...]:
        """Where this member shall be reached by clients.  Raises ConfigError."""
        return self._own(CLIENTS)

    def _own(self, setting: str) -> tuple[str, ...]:
        value = self.values.get(setting)
        if isinstance(value, dict):
            urls = value.get(self.member)
            if urls is None:
                raise ConfigError(
                    f"{setting} has nothing for member {self.member}",
                    hint=f"it names {', '.join(map(str, value)) or 'nobody'}; is POD_NAME right?",
                )
        else:
            urls = [] if value is None else str(value).split(",")
        if isinstance(urls, str):
            urls = [urls]
        return tuple(self._expanded(str(url).strip()) for url in urls if str(url).strip())

    def _expanded(self, url: str) -> str:
        old = _IN_SERVICE.match(url)
        return f"{old[1]}://{self.pod}.{old[2]}.{old[3]}.svc:{old[4]}" if old else url

    def tailored(self, members: Sequence[Member] | None, *, joins: bool = False) -> dict[str, Any]:
        """The configuration as etcd itself reads it.  Raises ConfigError.

        `members` is the member list, None where the cluster does not answer.  `joins`: it was just decided
        that etcd joins an existing cluster, whatever the list says now.
        """
        existing = tuple(members or ())
        values = {key: value for key, value in self.values.items() if key != PREFIX}
        values["name"] = self.member
        for setting in (PEERS, CLIENTS):
            if setting in values:
                values[setting] = ",".join(self._own(setting))
        if CLUSTER in values:
            values[CLUSTER] = self._reduced(existing)
        learning = len(existing) > 1 and any(member.is_learner for member in existing)
        values[STATE] = "existing" if joins or learning else "new"
        return values

    def _reduced(self, existing: Sequence[Member]) -> str:
        """Those who are there, and this one.  etcd refuses to join with a list that differs from theirs."""
        names = {member.name for member in existing if member.name}
        urls = {url for member in existing for url in member.peer_urls}
        kept = [
            f"{name}={url}"
            for name, own in self.initial_cluster.items()
            for url in own
            if len(existing) < 2 or name == self.member or name in names or url in urls
        ]
        return ",".join(kept)


def written(values: Mapping[str, Any]) -> str:
    """YAML for etcd's `--config-file`."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
