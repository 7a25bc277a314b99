"""Every method we call, as data: its path, its messages, whether it may be repeated, what it asks of a user.

"May be repeated" decides failover.  A read may always go to the next endpoint; a write may only when the
first endpoint surely never got it, else it might be carried out twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from rootcellar.etcd._proto import rpc_pb2 as pb

Question = TypeVar("Question", bound=Message)
Answer = TypeVar("Answer", bound=Message)

_ADMIN = "the role root"


@dataclass(frozen=True, slots=True)
class Call(Generic[Question, Answer]):
    """One method.  `name` is `Service/Method`; `needs` completes the sentence "the user needs ..."."""

    name: str
    question: type[Question]
    answer: type[Answer]
    needs: str
    repeatable: bool = False

    @property
    def path(self) -> str:
        return f"/etcdserverpb.{self.name}"


RANGE = Call("KV/Range", pb.RangeRequest, pb.RangeResponse, "permission to read these keys", repeatable=True)
PUT = Call("KV/Put", pb.PutRequest, pb.PutResponse, "permission to write this key")
DELETE_RANGE = Call(
    "KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse, "permission to write these keys"
)
TXN = Call("KV/Txn", pb.TxnRequest, pb.TxnResponse, "permission for every key in the transaction")
COMPACT = Call("KV/Compact", pb.CompactionRequest, pb.CompactionResponse, _ADMIN)

WATCH = Call("Watch/Watch", pb.WatchRequest, pb.WatchResponse, "permission to read all keys that it watches")

LEASE_GRANT = Call("Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse, "any user")
LEASE_REVOKE = Call(
    "Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse, "permission to write the lease's keys"
)
LEASE_TTL = Call(
    "Lease/LeaseTimeToLive",
    pb.LeaseTimeToLiveRequest,
    pb.LeaseTimeToLiveResponse,
    "permission to read the lease's keys",
    repeatable=True,
)
LEASES = Call(
    "Lease/LeaseLeases",
    pb.LeaseLeasesRequest,
    pb.LeaseLeasesResponse,
    "permission to read all leased keys",
    repeatable=True,
)

MEMBER_ADD = Call("Cluster/MemberAdd", pb.MemberAddRequest, pb.MemberAddResponse, _ADMIN)
MEMBER_REMOVE = Call("Cluster/MemberRemove", pb.MemberRemoveRequest, pb.MemberRemoveResponse, _ADMIN)
MEMBER_PROMOTE = Call("Cluster/MemberPromote", pb.MemberPromoteRequest, pb.MemberPromoteResponse, _ADMIN)
MEMBER_UPDATE = Call("Cluster/MemberUpdate", pb.MemberUpdateRequest, pb.MemberUpdateResponse, _ADMIN)
MEMBER_LIST = Call(
    "Cluster/MemberList", pb.MemberListRequest, pb.MemberListResponse, "any user", repeatable=True
)

ALARM = Call("Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse, "any user", repeatable=True)
STATUS = Call("Maintenance/Status", pb.StatusRequest, pb.StatusResponse, "any user", repeatable=True)
DEFRAGMENT = Call("Maintenance/Defragment", pb.DefragmentRequest, pb.DefragmentResponse, _ADMIN)
HASH_KV = Call("Maintenance/HashKV", pb.HashKVRequest, pb.HashKVResponse, _ADMIN, repeatable=True)
SNAPSHOT = Call("Maintenance/Snapshot", pb.SnapshotRequest, pb.SnapshotResponse, _ADMIN)
MOVE_LEADER = Call("Maintenance/MoveLeader", pb.MoveLeaderRequest, pb.MoveLeaderResponse, _ADMIN)

AUTHENTICATE = Call(
    "Auth/Authenticate",
    pb.AuthenticateRequest,
    pb.AuthenticateResponse,
    "the right password",
    repeatable=True,
)
AUTH_STATUS = Call(
    "Auth/AuthStatus",
    pb.AuthStatusRequest,
    pb.AuthStatusResponse,
    f"{_ADMIN} (from etcd 3.7 on any user will do)",
    repeatable=True,
)
AUTH_ENABLE = Call("Auth/AuthEnable", pb.AuthEnableRequest, pb.AuthEnableResponse, _ADMIN)
USER_ADD = Call("Auth/UserAdd", pb.AuthUserAddRequest, pb.AuthUserAddResponse, _ADMIN)
USER_GRANT_ROLE = Call(
    "Auth/UserGrantRole", pb.AuthUserGrantRoleRequest, pb.AuthUserGrantRoleResponse, _ADMIN
)
ROLE_ADD = Call("Auth/RoleAdd", pb.AuthRoleAddRequest, pb.AuthRoleAddResponse, _ADMIN)
ROLE_GRANT_PERMISSION = Call(
    "Auth/RoleGrantPermission",
    pb.AuthRoleGrantPermissionRequest,
    pb.AuthRoleGrantPermissionResponse,
    _ADMIN,
)
