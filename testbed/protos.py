"""Generate the protobuf modules of `rootcellar.etcd._proto`, or with `--check` say whether they are stale.

Generated code runs on its own protobuf major and the next, never on an older one; so the oldest compiler we
support makes it (`make gen` runs this in an environment of its own), and one runtime range serves all.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parents[1] / "src"
PROTOS = Path("rootcellar/etcd/_proto")


def generate(into: Path) -> None:
    """Write every `*_pb2.py` and `*_pb2.pyi` below `into`, in the package's own layout."""
    inputs = sorted(str(path) for path in (SOURCE / PROTOS).glob("*.proto"))
    if protoc.main(["protoc", f"-I{SOURCE}", f"--python_out={into}", f"--pyi_out={into}", *inputs]):
        sys.exit("protoc failed")


def stale(fresh: Path) -> list[str]:
    """Names whose committed text differs from the freshly generated one, on either side."""

    def texts(root: Path) -> dict[str, str]:
        return {path.name: path.read_text() for path in (root / PROTOS).glob("*_pb2.py*")}

    committed, generated = texts(SOURCE), texts(fresh)
    return sorted(name for name in committed | generated if committed.get(name) != generated.get(name))


def main() -> None:
    if sys.argv[1:] != ["--check"]:
        generate(SOURCE)
        return
    with tempfile.TemporaryDirectory() as fresh:
        generate(Path(fresh))
        if names := stale(Path(fresh)):
            sys.exit(f"stale generated code: {', '.join(names)}\nhint: run `make gen`")


if __name__ == "__main__":
    main()
