"""What the operator itself touches in Kubernetes, whichever contracts it serves."""

from __future__ import annotations

from typing import Final

from rootcellar.kube.kinds import LEASES
from rootcellar.kube.rbac import OWN, Right

ELECTION: Final = "rootcellar-operator"
"""The Lease of who works, in the operator's own namespace, where nobody names another."""
HEARTBEAT: Final = "gardener-extension-heartbeat"
"""The Lease by which gardenlet sees that an extension lives, beside it."""
GENERATED: Final = "generatedSecrets"
"""Where a right holds that is about generated secrets: the namespaces that the chart is told."""
WATCHED: Final = "watchedSecrets"
"""Everywhere, but only for an operator that acts without the annotation that asks: it has to see for itself
when credentials or namespaces change, and so reads all secrets there are.
"""


def operator_rights(lease: str = ELECTION) -> tuple[Right, ...]:
    """Those of an operator whose election is by this Lease."""
    return (
        Right.to(LEASES, "create", why="to stand for election, and to show that it lives", where=OWN),
        Right(
            LEASES.group,
            LEASES.plural,
            ("get", "patch"),
            "to renew these two",
            OWN,
            names=(lease, HEARTBEAT),
        ),
        Right.to(LEASES, "list", why="to see whether another controller for the same objects lives"),
        Right(
            "", "namespaces", ("get",), "the UID by which buckets know this cluster", names=("kube-system",)
        ),
        Right("events.k8s.io", "events", ("create", "patch"), "to tell what happened to an object"),
    )
