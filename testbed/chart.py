"""Write what of the Helm chart is made from types and rights, or with `--check` say whether it is stale."""

from __future__ import annotations

import sys
from pathlib import Path

from rootcellar.kube import crd, rbac
from rootcellar.operator.contracts import CONTRACTS
from rootcellar.operator.shared import rights

CHART = Path(__file__).resolve().parents[1] / "charts" / "rootcellar"
LEASE = '{{ include "rootcellar.name" . }}'
"""Its name is the release's: helm renders the files of rights, too."""
CRDS, RIGHTS = Path("crds"), Path("files/rights")
_NOTE = "# Made by `make gen` from {}; do not edit.\n"


def generated() -> dict[Path, str]:
    """The texts by their paths in the chart."""
    own = rbac.text(rights.operator_rights(LEASE))
    texts = {RIGHTS / "operator.yaml": _NOTE.format(rights.__name__) + own}
    for contract in CONTRACTS:
        package = f"rootcellar.operator.{contract.name}"
        manifest = crd.text(crd.manifest(contract.definition))
        texts[CRDS / f"{contract.definition.kind.plural}.yaml"] = _NOTE.format(f"{package}.types") + manifest
        text = rbac.text(contract.rights)
        texts[RIGHTS / f"{contract.name}.yaml"] = _NOTE.format(f"{package}.rights") + text
    return texts


def stale() -> list[str]:
    """Paths in the chart whose text is not what would be made now, on either side."""
    there = {
        path.relative_to(CHART): path.read_text()
        for directory in (CRDS, RIGHTS)
        for path in (CHART / directory).glob("*")
    }
    made = generated()
    return sorted(str(path) for path in there | made if there.get(path) != made.get(path))


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if paths := stale():
            sys.exit(f"stale parts of charts/rootcellar: {', '.join(paths)}\nhint: run `make gen`")
        return
    for path, text in generated().items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        (CHART / path).write_text(text)


if __name__ == "__main__":
    main()
