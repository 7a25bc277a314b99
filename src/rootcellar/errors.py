"""One exception tree for everything a person can be told.

RootcellarError                    exit 10
├── UsageError                     11  the request itself cannot be meant
├── ConfigError                    12  configuration file, environment or credentials
├── AgentError                     13  a running agent would not do what it was asked for
├── FormatError                    20  bytes that are not what their format demands
│   ├── BoltError                  21  a bbolt file
│   ├── RecordError                22  etcd's records inside one, or a catalogue object
│   ├── WalError                   23  raft WAL or snapshot file
│   │   └── TornTailError          24  only the last, unfinished write is missing
│   └── DamagedObjectError         25  an object of a backup (names the object)
├── ChainError                     30  objects are fine one by one, but do not continue each other
├── NothingToRestoreError          31  no full below the wanted point
├── TargetError                    32  the place to restore into (occupied, space, permission, version)
├── QuotaError                     33  the result would exceed etcd's quota
├── IdentityError                  34  the prefix belongs to another cluster
├── FencedError                    35  another writer holds the prefix
├── ProofError                     36  a proof was tried and failed
├── DoubtError                     37  what is good or whose history is alive is in doubt: nothing is deleted
├── NoKeyError                     38  no identity at hand opens what is encrypted
├── StoreError                     40  an object store
│   ├── NotFoundError              41
│   ├── AlreadyExistsError         42  create-only or replace-if lost
│   ├── DeniedError                43
│   ├── LockedError                44  retention or hold forbids it
│   ├── UnsupportedError           45  this store cannot do that
│   ├── TransientError             46  may work when tried again
│   │   └── ThrottledError         47  may work when tried again, but more slowly
│   └── NotEmptyError              48  a bucket with something in it is not deleted
├── EtcdError                      50  a live etcd
│   ├── EtcdUnavailableError       51
│   ├── EtcdDeniedError            52  privilege is missing
│   ├── CompactedError             53  the wanted revision is gone
│   └── ForkedError                54  etcd no longer has the history that it had
└── KubeError                      60  a Kubernetes API server
    ├── KubeUnavailableError       61
    ├── KubeDeniedError            62  the token is refused, or RBAC does not allow it
    ├── KubeNotFoundError          63
    ├── KubeConflictError          64  somebody else changed the object in between
    ├── KubeExistsError            65  there is one of this name
    └── KubeGoneError              66  the wanted resource version is too old

A message is one lower-case sentence without a full stop; the hint says what to do next.  The exit codes
are an interface: scripts depend on them.  `check` alone has 0 to 3, as monitoring expects.
"""

from __future__ import annotations

from typing import ClassVar


class RootcellarError(Exception):
    """Anything that stops a verb and that a person can act on."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 10
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, operation: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.operation = operation

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the way back from a worker process, whatever the subclass's constructor takes."""
        return _revive, (type(self), self.args, self.__dict__)


def _revive(
    cls: type[RootcellarError], args: tuple[object, ...], state: dict[str, object]
) -> RootcellarError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(RootcellarError):
    """The request itself cannot be meant."""

    code = "usage"
    exit_code = 11


class ConfigError(RootcellarError):
    """The configuration file, the environment or the credentials."""

    code = "config"
    exit_code = 12


class AgentError(RootcellarError):
    """A running agent would not do what it was asked for."""

    code = "agent"
    exit_code = 13


class FormatError(RootcellarError):
    """Bytes that are not what their format demands."""

    code = "format"
    exit_code = 20


class BoltError(FormatError):
    """A bbolt file."""

    code = "bolt"
    exit_code = 21


class RecordError(FormatError):
    """etcd's records inside a bbolt file, or an object of the catalogue."""

    code = "record"
    exit_code = 22


class WalError(FormatError):
    """A raft WAL or a raft snapshot file."""

    code = "wal"
    exit_code = 23


class TornTailError(WalError):
    """Only the last, unfinished write of a WAL is missing: a crash, not corruption.

    `segment` is good up to `valid_length` bytes; `dropped` bytes from there to the last byte that is not zero
    belong to the unfinished write.
    """

    code = "wal-torn"
    exit_code = 24

    def __init__(
        self,
        message: str,
        *,
        segment: str,
        valid_length: int,
        dropped: int,
        hint: str | None = None,
        operation: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, operation=operation)
        self.segment = segment
        self.valid_length = valid_length
        self.dropped = dropped


class DamagedObjectError(FormatError):
    """An object of a backup is not what was written."""

    code = "damaged-object"
    exit_code = 25

    def __init__(
        self, name: str, message: str, *, hint: str | None = None, operation: str | None = None
    ) -> None:
        super().__init__(f"{name}: {message}", hint=hint, operation=operation)
        self.name = name


class ChainError(RootcellarError):
    """The objects are fine one by one, but do not continue each other."""

    code = "chain"
    exit_code = 30


class NothingToRestoreError(RootcellarError):
    """No full lies at or below the wanted point."""

    code = "nothing-to-restore"
    exit_code = 31


class TargetError(RootcellarError):
    """The place to restore into."""

    code = "target"
    exit_code = 32


class QuotaError(RootcellarError):
    """The result would exceed etcd's quota."""

    code = "quota"
    exit_code = 33


class IdentityError(RootcellarError):
    """The prefix belongs to another cluster."""

    code = "identity"
    exit_code = 34


class FencedError(RootcellarError):
    """Another writer holds the prefix."""

    code = "fenced"
    exit_code = 35


class ProofError(RootcellarError):
    """A proof was tried and failed."""

    code = "proof"
    exit_code = 36


class DoubtError(RootcellarError):
    """It is not certain which backups are good or whose history is alive, so nothing is deleted."""

    code = "doubt"
    exit_code = 37


class NoKeyError(RootcellarError):
    """No identity at hand opens what is encrypted."""

    code = "no-key"
    exit_code = 38


class StoreError(RootcellarError):
    """An object store."""

    code = "store"
    exit_code = 40


class NotFoundError(StoreError):
    """No such object, or no such bucket."""

    code = "not-found"
    exit_code = 41


class AlreadyExistsError(StoreError):
    """A create-only put found an object, or a replace-if found another one."""

    code = "already-exists"
    exit_code = 42


class DeniedError(StoreError):
    """The credentials are wrong or do not allow it."""

    code = "denied"
    exit_code = 43


class LockedError(StoreError):
    """Retention or a legal hold forbids it."""

    code = "locked"
    exit_code = 44


class UnsupportedError(StoreError):
    """This store cannot do that."""

    code = "unsupported"
    exit_code = 45


class TransientError(StoreError):
    """May work when tried again."""

    code = "transient"
    exit_code = 46
    retryable = True


class ThrottledError(TransientError):
    """The store asks for fewer requests: waiting has to be longer than after a broken connection."""

    code = "throttled"
    exit_code = 47


class NotEmptyError(StoreError):
    """Something lies in a bucket that was to be deleted."""

    code = "not-empty"
    exit_code = 48


class EtcdError(RootcellarError):
    """A live etcd."""

    code = "etcd"
    exit_code = 50


class EtcdUnavailableError(EtcdError):
    """No endpoint answers, or there is no leader."""

    code = "etcd-unavailable"
    exit_code = 51
    retryable = True


class EtcdDeniedError(EtcdError):
    """The user or certificate has not the privilege."""

    code = "etcd-denied"
    exit_code = 52


class CompactedError(EtcdError):
    """The wanted revision was compacted away."""

    code = "compacted"
    exit_code = 53


class ForkedError(EtcdError):
    """It no longer has the history that it had: it was restored, or is another cluster."""

    code = "forked"
    exit_code = 54


class KubeError(RootcellarError):
    """A Kubernetes API server."""

    code = "kube"
    exit_code = 60


class KubeUnavailableError(KubeError):
    """It does not answer, or cannot now."""

    code = "kube-unavailable"
    exit_code = 61
    retryable = True


class KubeDeniedError(KubeError):
    """The token or certificate is refused, or does not allow it."""

    code = "kube-denied"
    exit_code = 62


class KubeNotFoundError(KubeError):
    """No such object, or no such kind."""

    code = "kube-not-found"
    exit_code = 63


class KubeConflictError(KubeError):
    """Somebody else changed the object in between: read it, decide again, then write."""

    code = "kube-conflict"
    exit_code = 64
    retryable = True


class KubeExistsError(KubeError):
    """There is an object of this name."""

    code = "kube-exists"
    exit_code = 65


class KubeGoneError(KubeError):
    """The resource version of a watch or a page is too old: list again."""

    code = "kube-gone"
    exit_code = 66
    retryable = True
