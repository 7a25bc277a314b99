"""Who a cluster consists of: members, their ids, and the rows that hold them.

Ids are not random: etcd derives a member's id from its peer URLs and a token, and the cluster's from its
members' (`membership.NewMember`, `genID`), so every host of a restore computes the same ones without
talking to another.  The same URLs with the same token give the ids of the destroyed cluster back; use a
fresh token per restore, or a survivor of the old cluster can join the new one.

URLs are normalised as etcd's `types.NewURLs` does, because the ids are hashes of the normal form.  What etcd
tolerates but no peer can dial (user info, query, no host, a port out of range) is refused here.
"""

from __future__ import annotations

import hashlib
import ipaddress
import itertools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from rootcellar.errors import RecordError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T")

_UINT64_MAX = (1 << 64) - 1
_SCHEMES = ("http", "https", "unix", "unixs")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[A-Za-z0-9._~-]+):(?P<port>[0-9]{1,5})", re.ASCII)
_ZONE = re.compile(r"%25[A-Za-z0-9._~-]+", re.ASCII)
_KEY = re.compile(r"[1-9a-f][0-9a-f]{0,15}", re.ASCII)
_URL_HINT = "write a peer URL as http://host:2380 or https://host:2380, without a path"

# What Go's encoding/json escapes beyond the standard; these characters occur only inside strings.
_GO_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


@dataclass(frozen=True, slots=True)
class Member:
    """A member as etcd knows it.  `client_urls` are published by the member itself once it runs."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...] = ()
    is_learner: bool = False

    @property
    def key(self) -> str:
        """The key of its row: the id in lower hex without padding."""
        return f"{self.id:x}"

    def raft_attributes(self) -> dict[str, Any]:
        """What consensus needs to know, under etcd's names; `isLearner` only when true, as Go's omitempty."""
        attributes: dict[str, Any] = {"peerURLs": list(self.peer_urls)}
        if self.is_learner:
            attributes["isLearner"] = True
        return attributes

    def attributes(self) -> dict[str, Any]:
        """What the member says of itself, under etcd's names, empty values left out."""
        attributes: dict[str, Any] = {}
        if self.name:
            attributes["name"] = self.name
        if self.client_urls:
            attributes["clientURLs"] = list(self.client_urls)
        return attributes


def go_json(value: Any) -> bytes:
    """JSON as Go's `json.Marshal` writes it: no spaces, UTF-8, and `<`, `>`, `&` escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_GO_ESCAPES).encode()


def normalise_peer_urls(urls: Iterable[str]) -> tuple[str, ...]:
    """Peer URLs in etcd's normal form: trimmed, scheme in lower case, sorted; else UsageError with a hint."""
    normal = sorted(_normalise(url) for url in urls)
    if not normal:
        raise UsageError("a member without a peer URL", hint=_URL_HINT)
    for one, other in itertools.pairwise(normal):
        if one == other:
            raise UsageError(
                f"peer URL {one} is given twice", hint="every peer URL belongs to one member, once"
            )
    return tuple(normal)


def _normalise(url: str) -> str:
    trimmed = url.strip()
    scheme, colon, rest = trimmed.partition("://")
    scheme = scheme.lower()
    if not colon or scheme not in _SCHEMES:
        raise UsageError(f"peer URL {trimmed!r} has no scheme of {', '.join(_SCHEMES)}", hint=_URL_HINT)
    authority, slash, _ = rest.partition("/")
    if slash:
        raise UsageError(f"peer URL {trimmed!r} must not contain a path", hint=_URL_HINT)
    match = _AUTHORITY.fullmatch(authority)
    if not match or not _is_host(match["host"]) or not 1 <= int(match["port"]) <= 65535:
        raise UsageError(f"peer URL {trimmed!r} is not of the form scheme://host:port", hint=_URL_HINT)
    return f"{scheme}://{authority}"


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        return True
    address, percent, zone = host[1:-1].partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or _ZONE.fullmatch(percent + zone) is not None


def member_id(peer_urls: Iterable[str], token: str) -> int:
    """The id etcd gives a member of a new cluster: 8 bytes of SHA-1 over its sorted URLs and the token."""
    joined = "".join(sorted(peer_urls)) + token
    return int.from_bytes(hashlib.sha1(joined.encode(), usedforsecurity=False).digest()[:8], "big")


def cluster_id(member_ids: Iterable[int]) -> int:
    """The id etcd gives a new cluster: 8 bytes of SHA-1 over its members' ids in ascending order."""
    joined = b"".join(member.to_bytes(8, "big") for member in sorted(member_ids))
    return int.from_bytes(hashlib.sha1(joined, usedforsecurity=False).digest()[:8], "big")


def parse_members(values: Iterable[str], *, token: str) -> tuple[Member, ...]:
    """The members of a new cluster, ascending by id, from values in etcd's --initial-cluster syntax.

    One value may hold several members, comma-separated, and one member with several URLs (`a=url1,a=url2`),
    as in etcd; a name that comes again in another value is taken for a slip.  UsageError with a hint.
    """
    urls: dict[str, list[str]] = {}
    for value in values:
        seen = _parse_initial_cluster(value)
        for name in seen.keys() & urls.keys():
            raise UsageError(
                f"member {name} is given twice",
                hint=f"to give a member several peer URLs, write them as one value: {name}=URL1,{name}=URL2",
            )
        urls.update(seen)
    if not urls:
        raise UsageError("no members are given", hint="name at least one as name=http://host:2380")
    members = [_new_member(name, given, token) for name, given in urls.items()]
    _refuse_shared_urls(members)
    return tuple(sorted(members, key=lambda member: member.id))


def _parse_initial_cluster(value: str) -> dict[str, list[str]]:
    urls: dict[str, list[str]] = {}
    for part in value.split(","):
        if not part.strip():
            continue  # etcd overlooks leading, trailing and doubled commas
        name, equals, url = part.partition("=")
        name = name.strip()
        if not equals or "://" in name:
            raise UsageError(f"member {part.strip()!r} has no name", hint="write it as name=http://host:2380")
        if not name or not name.isprintable():
            raise UsageError(f"{name!r} is no name for a member", hint="write it as name=http://host:2380")
        urls.setdefault(name, []).append(url)
    return urls


def _new_member(name: str, urls: list[str], token: str) -> Member:
    peer_urls = normalise_peer_urls(urls)
    return Member(id=member_id(peer_urls, token), name=name, peer_urls=peer_urls)


def _refuse_shared_urls(members: list[Member]) -> None:
    owner: dict[str, str] = {}
    for member in members:
        for url in member.peer_urls:
            if url in owner:
                raise UsageError(
                    f"members {owner[url]} and {member.name} share the peer URL {url}",
                    hint="every member needs a peer URL of its own",
                )
            owner[url] = member.name


class _RaftAttributes(msgspec.Struct):
    peer_urls: list[str] | None = msgspec.field(name="peerURLs")
    is_learner: bool = msgspec.field(name="isLearner", default=False)


class _Attributes(msgspec.Struct):
    name: str = ""
    client_urls: list[str] | None = msgspec.field(name="clientURLs", default=None)


class _Row(_RaftAttributes, kw_only=True):
    id: Annotated[int, msgspec.Meta(ge=1)]
    name: str = ""
    client_urls: list[str] | None = msgspec.field(name="clientURLs", default=None)


def encode_member(member: Member) -> tuple[bytes, bytes]:
    """Key and value of a member's row in the bucket `members`, byte for byte as etcd writes them."""
    return member.key.encode(), go_json({"id": member.id, **member.raft_attributes(), **member.attributes()})


def decode_member(key: bytes, value: bytes) -> Member:
    """A row of the bucket `members`; RecordError if it is none, or if key and value differ in the id."""
    row = _decode(value, _Row, f"member row {key!r}")
    if key != f"{row.id:x}".encode() or row.id > _UINT64_MAX:
        raise RecordError(f"member row {key!r} holds the member {row.id:x}")
    return Member(row.id, row.name, tuple(row.peer_urls or ()), tuple(row.client_urls or ()), row.is_learner)


def decode_attributes(key: str, raft_attributes: str, attributes: str) -> Member:
    """A member from its two values in the v2 store; the second is empty until the member published itself."""
    raft = _decode(raft_attributes, _RaftAttributes, f"member {key}")
    own = _decode(attributes or "{}", _Attributes, f"member {key}")
    urls = tuple(raft.peer_urls or ()), tuple(own.client_urls or ())
    return Member(parse_member_key(key), own.name, *urls, raft.is_learner)


def parse_member_key(key: str) -> int:
    """The id in the key of a member's row: lower hex without padding.  RecordError if it is no such key."""
    member = int(key, 16) if _KEY.fullmatch(key) else 0
    if not member:
        raise RecordError(f"{key!r} is no member id")
    return member


def _decode(value: bytes | str, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{what} cannot be read: {error}") from error
