"""What a controller may do, declared beside it, and the rules of Roles and ClusterRoles made from that.

A `Right` says one thing that is touched, and why.  Where it holds is a word: `CLUSTER` or `OWN`, or one that
whoever binds the rules gives a meaning to, such as the namespaces that generated secrets are in.  There are
no wildcards: what is not named is not granted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rootcellar.kube.kinds import Kind

CLUSTER: Final = "cluster"
"""Cluster-scoped objects, and those of all namespaces."""
OWN: Final = "own"
"""The namespace that the process itself is in."""

READ: Final = ("get", "list", "watch")
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_NAMELESS = {"create", "deletecollection"}
"""What RBAC cannot restrict to names: the name is not known yet, or there is none."""

Rule = dict[str, list[str]]
"""As in a Role: `apiGroups`, `resources`, `verbs` and, where it is about some objects, `resourceNames`."""


@dataclass(frozen=True, slots=True)
class Right:
    """`verbs` on a `resource` (`secrets`, `backupbuckets/status`) of a `group`, which is empty for the
    oldest; with `names` on objects of these names alone.  Raises ValueError for a wildcard, an unknown verb,
    and for a verb that no name can restrict.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    where: str = CLUSTER
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "*" in (self.group, self.resource, *self.names):
            raise ValueError(
                f"a right to {self.resource} of {self.group!r} names what it is about: no wildcards"
            )
        if unknown := sorted(set(self.verbs) - set(_VERBS)):
            raise ValueError(f"a right to {self.resource} has no verb {', '.join(unknown)}")
        if self.names and (loose := sorted(_NAMELESS & set(self.verbs))):
            raise ValueError(
                f"no name restricts {', '.join(loose)} of {self.resource}: RBAC ignores it there"
            )

    @classmethod
    def to(cls, kind: Kind[Any], *verbs: str, why: str, below: str = "", where: str = CLUSTER) -> Right:
        """A right to a kind, or to what is `below` it, such as `status`."""
        return cls(kind.group, f"{kind.plural}/{below}" if below else kind.plural, verbs, why, where)


class Grant(NamedTuple):
    """A rule, and why it is there."""

    rule: Rule
    reasons: tuple[str, ...]


class _Target(NamedTuple):
    group: str
    resource: str
    names: tuple[str, ...]


def places(rights: Iterable[Right]) -> tuple[str, ...]:
    """The words that `rights` use for where, in order."""
    return tuple(sorted({right.where for right in rights}))


def grants(rights: Iterable[Right], where: str) -> tuple[Grant, ...]:
    """Rules that grant exactly `rights` there, in an order of their own.

    What is granted of all objects is not granted of named ones again, and resources of a group with the same
    verbs share a rule.
    """
    verbs: defaultdict[_Target, set[str]] = defaultdict(set)
    reasons: defaultdict[_Target, set[str]] = defaultdict(set)
    for right in rights:
        if right.where == where:
            target = _Target(right.group, right.resource, tuple(sorted(set(right.names))))
            verbs[target] |= set(right.verbs)
            reasons[target].add(right.why)
    for target in [target for target in verbs if target.names]:
        whole = target._replace(names=())
        verbs[target] -= verbs.get(whole, set())
    return tuple(_shared(verbs, reasons))


def rules(rights: Iterable[Right], where: str) -> list[Rule]:
    """The same for a Role or ClusterRole."""
    return [grant.rule for grant in grants(rights, where)]


def text(rights: Iterable[Right]) -> str:
    """YAML: the rules by where they hold, each below a comment with its reasons."""
    rights = tuple(rights)
    lines: list[str] = []
    for where in places(rights):
        lines.append(f"{where}:")
        for grant in grants(rights, where):
            lines += [f"# {reason}" for reason in grant.reasons]
            lines += yaml.safe_dump([grant.rule], sort_keys=True).splitlines()
    return "\n".join(lines) + "\n"


def _shared(verbs: dict[_Target, set[str]], reasons: dict[_Target, set[str]]) -> list[Grant]:
    together: defaultdict[tuple[str, tuple[str, ...], tuple[str, ...]], list[_Target]] = defaultdict(list)
    for target, left in verbs.items():
        if left:
            together[target.group, tuple(sorted(left)), target.names].append(target)
    found = []
    for (group, granted, names), targets in together.items():
        rule: Rule = {
            "apiGroups": [group],
            "resources": sorted(target.resource for target in targets),
            "verbs": list(granted),
            **({"resourceNames": list(names)} if names else {}),
        }
        why = {reason for target in targets for reason in reasons[target]}
        found.append(Grant(rule, tuple(sorted(why))))
    return sorted(found, key=_order)


def _order(grant: Grant) -> tuple[list[str], ...]:
    rule = grant.rule
    return rule["apiGroups"], rule["resources"], rule.get("resourceNames", []), rule["verbs"]
