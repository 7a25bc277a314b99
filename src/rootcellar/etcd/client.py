"""A live etcd, as far as backup, proof and restore need it.

Synchronous: the engine is.  One client talks to one cluster through any of its endpoints; `member` narrows
it to exactly one, for what is a member's own (its status, its hash, its database).  Calls raise
EtcdUnavailableError, EtcdDeniedError, CompactedError or EtcdError, each with a hint.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import grpc

from rootcellar.errors import CompactedError, EtcdError
from rootcellar.etcd import calls
from rootcellar.etcd._proto import rpc_pb2 as pb
from rootcellar.etcd.answers import (
    Alarm,
    AlarmKind,
    AuthStatus,
    HashKv,
    Header,
    LeaseTtl,
    Member,
    Page,
    Status,
    TxnResult,
    Version,
    WatchBatch,
)
from rootcellar.etcd.connection import Connection, TlsFiles
from rootcellar.etcd.fingerprint import change_of, fingerprint
from rootcellar.etcd.snapshot import SnapshotStream
from rootcellar.etcd.watch import Watch, compacted_up_to

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from rootcellar.etcd.calls import Answer, Call, Question
    from rootcellar.etcd.operations import Comparison, Operation

ALL_KEYS = (b"\0", b"\0")
"""Key and range end that mean the whole keyspace."""

_TIMEOUT = 10.0
_SLOW_TIMEOUT = 600.0
_PAGE_KEYS = 1000
_IDLE_SECONDS = 60.0
_PROGRESS_SECONDS = 0.5


class EtcdClient:
    """`timeout` is in seconds and holds for each call, all endpoints together.  Safe between threads."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: TlsFiles | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout: float = _TIMEOUT,
    ) -> None:
        self._connection = Connection(endpoints, tls=tls, user=user, password=password)
        self.endpoints = self._connection.endpoints
        self._timeout = timeout

    def member(self, endpoint: str) -> EtcdClient:
        """The same client, talking to this endpoint alone; valid while this one is open, needs no closing."""
        view = object.__new__(EtcdClient)
        view._connection = self._connection
        view.endpoints = (endpoint,)
        view._timeout = self._timeout
        return view

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self, call: Call[Question, Answer], question: Question, *, timeout: float | None = None
    ) -> Answer:
        return self._connection.unary(call, question, among=self.endpoints, timeout=timeout or self._timeout)

    # keys

    def header(self, *, timeout: float | None = None) -> Header:
        """The cluster's revision, confirmed by a quorum (linearizable).

        Counts one key that hardly exists, so that it costs etcd nothing: never a read of the keyspace.
        """
        question = pb.RangeRequest(key=b"\0", count_only=True)
        return _header(self._ask(calls.RANGE, question, timeout=timeout).header)

    def range(
        self,
        key: bytes,
        range_end: bytes = b"",
        *,
        revision: int = 0,
        limit: int = 0,
        keys_only: bool = False,
        serializable: bool = False,
    ) -> Page:
        """Keys in ascending order, at a revision (0: now).  CompactedError when it is gone."""
        question = pb.RangeRequest(
            key=key,
            range_end=range_end,
            revision=revision,
            limit=limit,
            keys_only=keys_only,
            serializable=serializable,
        )
        return _page(self._ask(calls.RANGE, question))

    def pages(
        self, key: bytes, range_end: bytes, *, revision: int = 0, keys: int = _PAGE_KEYS
    ) -> Iterator[Page]:
        """A range of any size in pages of `keys` keys, all at `revision` (0: that of the first page)."""
        more = True
        while more:
            page = self.range(key, range_end, revision=revision, limit=keys)
            yield page
            more = page.more
            revision = revision or page.revision
            if page.kvs:
                key = page.kvs[-1].key + b"\0"

    def put(self, key: bytes, value: bytes, *, lease: int = 0) -> Header:
        question = pb.PutRequest(key=key, value=value, lease=lease)
        return _header(self._ask(calls.PUT, question).header)

    def delete(self, key: bytes, range_end: bytes = b"") -> int:
        """Delete a key or a range.  Returns how many keys were there."""
        return self._ask(calls.DELETE_RANGE, pb.DeleteRangeRequest(key=key, range_end=range_end)).deleted

    def txn(
        self,
        then: Sequence[Operation],
        *,
        compare: Sequence[Comparison] = (),
        otherwise: Sequence[Operation] = (),
    ) -> TxnResult:
        """Carry out `then` if every comparison holds, else `otherwise`; see `rootcellar.etcd.operations`."""
        answer = self._ask(calls.TXN, pb.TxnRequest(compare=compare, success=then, failure=otherwise))
        ranges = tuple(
            _page(response.response_range)
            for response in answer.responses
            if response.HasField("response_range")
        )
        return TxnResult(_header(answer.header), answer.succeeded, ranges)

    def compact(self, revision: int, *, physical: bool = False) -> None:
        """Forget what `revision` supersedes.  `physical`: return only when the work is done."""
        question = pb.CompactionRequest(revision=revision, physical=physical)
        self._ask(calls.COMPACT, question, timeout=_SLOW_TIMEOUT if physical else None)

    def watch(
        self,
        start: int,
        key: bytes = ALL_KEYS[0],
        range_end: bytes = ALL_KEYS[1],
        *,
        patience: float = 60,
        anchor: str | None = None,
    ) -> Watch:
        """Everything from revision `start` on, by default in the whole keyspace.  Close it when done.

        With `anchor` only if revision `start` - 1 still has this fingerprint: else ForkedError.
        """
        return Watch(
            self._connection,
            self.endpoints,
            start=start,
            key=key,
            range_end=range_end,
            patience=patience,
            anchor=anchor,
        )

    def fingerprint(self, revision: int, *, timeout: float = _TIMEOUT) -> str | None:
        """What revision `revision` changed in the whole keyspace (see `rootcellar.etcd.fingerprint`).

        None when nothing tells: it is compacted away, or (after a bump) changed nothing.
        """
        if revision <= 1:
            return None  # an etcd to which nothing was ever written
        batch: WatchBatch | None = None
        deadline = time.monotonic() + timeout
        try:
            with self.watch(revision, patience=timeout) as watch:
                while batch is None and time.monotonic() < deadline:
                    batch = watch.get(min(timeout, _PROGRESS_SECONDS))
                    # Its report, where it can be trusted, spares the wait for an event that is not there.
                    watch.request_progress()
        except CompactedError:
            return None
        events = [e for e in batch.events if e.kv.mod_revision == revision] if batch else []
        return fingerprint(map(change_of, events)) if events else None

    def compact_revision(self) -> int:
        """The newest compaction, -1 for none yet.  Reads nothing: a watch of the past is told why not."""
        return compacted_up_to(self._connection, self.endpoints, timeout=self._timeout)

    # leases

    def lease_grant(self, ttl: int, *, lease: int = 0) -> int:
        """A lease of `ttl` seconds, with the given id or one that etcd chooses."""
        answer = self._ask(calls.LEASE_GRANT, pb.LeaseGrantRequest(TTL=ttl, ID=lease))
        if answer.error:
            raise EtcdError(answer.error, operation="LeaseGrant")
        return answer.ID

    def lease_revoke(self, lease: int) -> None:
        """End a lease and delete its keys."""
        self._ask(calls.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease))

    def lease_ttl(self, lease: int) -> LeaseTtl | None:
        """What is left of a lease, or None when it has ended."""
        answer = self._ask(calls.LEASE_TTL, pb.LeaseTimeToLiveRequest(ID=lease))
        return None if answer.TTL < 0 else LeaseTtl(answer.ID, answer.TTL, answer.grantedTTL)

    def leases(self) -> tuple[int, ...]:
        """The ids of all leases that the asked member knows."""
        return tuple(lease.ID for lease in self._ask(calls.LEASES, pb.LeaseLeasesRequest()).leases)

    # a member's own

    def status(self, *, timeout: float | None = None) -> Status:
        """The status of the member that answers; of one member, by `member(endpoint).status()`."""
        answer = self._ask(calls.STATUS, pb.StatusRequest(), timeout=timeout)
        return Status(
            header=_header(answer.header),
            version=Version.parse(answer.version),
            db_size=answer.dbSize,
            db_size_in_use=answer.dbSizeInUse,
            db_size_quota=answer.dbSizeQuota,
            leader=answer.leader,
            raft_index=answer.raftIndex,
            raft_term=answer.raftTerm,
            raft_applied_index=answer.raftAppliedIndex,
            is_learner=answer.isLearner,
            storage_version=answer.storageVersion,
            errors=tuple(answer.errors),
        )

    def snapshot(self, *, idle: float = _IDLE_SECONDS) -> SnapshotStream:
        """The database of one member, as it streams.  Close it when done."""
        return SnapshotStream(self._connection, self.endpoints, idle=idle)

    def hash_kv(self, revision: int = 0, *, timeout: float = _SLOW_TIMEOUT) -> HashKv:
        """HashKV of the member that answers, at a revision (0: its newest).

        It reads the keyspace under a lock.  CompactedError when the revision is gone.
        """
        answer = self._ask(calls.HASH_KV, pb.HashKVRequest(revision=revision), timeout=timeout)
        hashed = answer.hash_revision or revision or answer.header.revision
        return HashKv(answer.hash, hashed, answer.compact_revision or -1)

    def defragment(self, *, timeout: float = _SLOW_TIMEOUT) -> None:
        """Defragment the member that answers; it answers nothing else meanwhile."""
        self._ask(calls.DEFRAGMENT, pb.DefragmentRequest(), timeout=timeout)

    def move_leader(self, member_id: int) -> None:
        """Make that member the leader.  Must be asked of the leader."""
        self._ask(calls.MOVE_LEADER, pb.MoveLeaderRequest(targetID=member_id))

    # the cluster

    def alarms(self) -> tuple[Alarm, ...]:
        answer = self._ask(calls.ALARM, pb.AlarmRequest(action=pb.AlarmRequest.GET))
        return tuple(Alarm(alarm.memberID, AlarmKind(alarm.alarm)) for alarm in answer.alarms if alarm.alarm)

    def disarm(self, alarm: Alarm) -> None:
        """Take an alarm back, once its cause is gone."""
        question = pb.AlarmRequest(
            action=pb.AlarmRequest.DEACTIVATE,
            memberID=alarm.member_id,
            alarm=alarm.kind.name,
        )
        self._ask(calls.ALARM, question)

    def member_list(self) -> tuple[Member, ...]:
        question = pb.MemberListRequest(linearizable=True)
        return tuple(map(_member, self._ask(calls.MEMBER_LIST, question).members))

    def member_add(self, peer_urls: Sequence[str], *, learner: bool = False) -> Member:
        question = pb.MemberAddRequest(peerURLs=peer_urls, isLearner=learner)
        return _member(self._ask(calls.MEMBER_ADD, question).member)

    def member_promote(self, member_id: int) -> None:
        """Make a learner a voter.  EtcdError while it lags."""
        self._ask(calls.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=member_id))

    def member_update(self, member_id: int, peer_urls: Sequence[str]) -> None:
        """Have a member reached by other peer URLs."""
        self._ask(calls.MEMBER_UPDATE, pb.MemberUpdateRequest(ID=member_id, peerURLs=peer_urls))

    def member_remove(self, member_id: int) -> None:
        self._ask(calls.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=member_id))

    # users and roles

    def auth_status(self) -> AuthStatus | None:
        """Whether authentication is on; None where etcd cannot say (3.4)."""
        try:
            answer = self._ask(calls.AUTH_STATUS, pb.AuthStatusRequest())
        except EtcdError as error:
            cause = error.__cause__
            if isinstance(cause, grpc.RpcError) and cause.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
        return AuthStatus(answer.enabled, answer.authRevision)

    def auth_enable(self) -> None:
        """Switch authentication on.  Needs a user root with the role root."""
        self._ask(calls.AUTH_ENABLE, pb.AuthEnableRequest())

    def user_add(self, name: str, password: str, *, roles: Sequence[str] = ()) -> None:
        self._ask(calls.USER_ADD, pb.AuthUserAddRequest(name=name, password=password))
        for role in roles:
            self._ask(calls.USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest(user=name, role=role))

    def role_add(self, name: str, keys: tuple[bytes, bytes] | None = None, *, write: bool = False) -> None:
        """A role that may read, or read and write, a range (key and range end, as in a call)."""
        self._ask(calls.ROLE_ADD, pb.AuthRoleAddRequest(name=name))
        if keys is not None:
            kind = pb.Permission.READWRITE if write else pb.Permission.READ
            permission = pb.Permission(permType=kind, key=keys[0], range_end=keys[1])
            question = pb.AuthRoleGrantPermissionRequest(name=name, perm=permission)
            self._ask(calls.ROLE_GRANT_PERMISSION, question)


def _header(header: pb.ResponseHeader) -> Header:
    return Header(header.cluster_id, header.member_id, header.revision, header.raft_term)


def _page(answer: pb.RangeResponse) -> Page:
    return Page(answer.kvs, answer.header.revision, answer.more, answer.count)


def _member(member: pb.Member) -> Member:
    return Member(member.ID, member.name, tuple(member.peerURLs), tuple(member.clientURLs), member.isLearner)
