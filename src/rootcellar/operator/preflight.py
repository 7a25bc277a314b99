"""What has to be there before an operator begins: the kinds that it serves, and its rights.

Without them it would wait for a first list for ever, or stop in the midst of an object.  What is missing is
told at once and whole, and kubelet starts the process again until it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rootcellar.errors import ConfigError, KubeDeniedError, KubeNotFoundError
from rootcellar.kube.kinds import untyped
from rootcellar.kube.rbac import grants

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.rbac import Right
    from rootcellar.operator.shared.contract import Contract

_REVIEWS: Final = untyped("authorization.k8s.io", "v1", "selfsubjectaccessreviews", is_namespaced=False)


def require_kinds(client: KubeClient, contracts: Iterable[Contract]) -> None:
    """Raises ConfigError where the API server does not know the kind of a contract."""
    for contract in contracts:
        definition = contract.definition
        try:
            client.list_page(definition.kind, page=1)
        except KubeNotFoundError as error:
            raise ConfigError(
                f"the API server does not know {definition.full_name}, which {contract.name} is for",
                hint="install the CRDs: kubectl apply --server-side -f charts/rootcellar/crds/",
            ) from error


def require_rights(client: KubeClient, rights: Iterable[Right], namespaces: Mapping[str, str]) -> None:
    """Ask the API server for each right whether we have it; `namespaces` has what the words for where mean,
    and rights for other words are not asked for.  Raises KubeDeniedError with all that are missing.
    """
    rights = tuple(rights)
    missing = [
        line for where, namespace in namespaces.items() for line in _missing(client, rights, where, namespace)
    ]
    if missing:
        raise KubeDeniedError(
            f"this service account may not {'; '.join(missing)}",
            hint="have the chart make its roles again: helm upgrade",
        )


def _missing(client: KubeClient, rights: tuple[Right, ...], where: str, namespace: str) -> Iterator[str]:
    for rule, reasons in grants(rights, where):
        (group,) = rule["apiGroups"]
        for resource in rule["resources"]:
            plural, _, below = resource.partition("/")
            refused = []
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    asked = {"verb": verb, "group": group, "resource": plural, "subresource": below}
                    asked |= {"namespace": namespace, "name": name}
                    if not _is_allowed(client, asked):
                        refused.append(f"{verb} {name}".rstrip())
            if refused:
                place = f" in {namespace}" if namespace else ""
                yield f"{', '.join(refused)} {resource}{place} ({', '.join(reasons)})"


def _is_allowed(client: KubeClient, asked: Mapping[str, str]) -> bool:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool(client.create(_REVIEWS, body)["status"]["allowed"])
