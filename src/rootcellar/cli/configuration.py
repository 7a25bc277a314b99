"""Reading the configuration file: where it is, what it holds, what its placeholders stand for.

The file is checked as a whole when it is read.  Placeholders are replaced where a value is used and not
before, so that a secret which nobody needs for a restore cannot stop it, and so that no secret is ever shown.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import yaml

from rootcellar.cli import schema
from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PLACES = (Path("rootcellar.yaml"), Path("/etc/rootcellar/config.yaml"))
"""Where the file is looked for when nothing names one."""

_PLACEHOLDER = re.compile(r"\$(\$)?\{([^}]*)\}")
_AT = re.compile(r"(.*) - at `(.*)`\Z")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class Configuration:
    """A configuration file, or none (`path` is None): then everything has its default."""

    def __init__(self, path: Path | None, written: Mapping[str, Any], file: schema.File) -> None:
        self.path = path
        self.written = written
        self.file = file

    def setting(self, place: str) -> str | None:
        """The value at `etcd.tls.ca`, as an option would be given it; None where there is none.

        Raises ConfigError for a placeholder that stands for nothing.
        """
        found: Any = msgspec.to_builtins(self.file)
        for name in place.split("."):
            found = found[name]
        if isinstance(found, list | tuple):
            return ",".join(reveal(each) for each in found) or None
        return None if found is None else reveal(str(found))

    def store(self, name: str | None = None) -> schema.Store:
        """The store of that name, or the first.  Raises ConfigError."""
        for store in self.file.stores:
            if name in (None, store.name):
                return store
            if store.mirror_of is not None and name == f"{store.name}{schema.STANDBY}":
                return standby(store)
        where = self.path or "no configuration file"
        if name is None:
            raise ConfigError(
                "no store is named, and the configuration has none",
                hint="name one: a URL such as s3://BUCKET/PREFIX, a path, or @NAME from the configuration",
            )
        near = get_close_matches(name, [store.name for store in self.file.stores], 1)
        there = ", ".join(f"@{store.name}" for store in self.file.stores)
        raise ConfigError(
            f"{where} has no store @{name}",
            hint=f"did you mean @{near[0]}?"
            if near
            else f"it has {there}"
            if there
            else "add it under stores:",
        )


def standby(mirror: schema.Store) -> schema.Store:
    """Where an agent writes a chain of its own beside a mirror; everything but the place is the mirror's.

    It lies beside the mirror's prefix, and not under it: etcdbrctl reads everything whose name begins with
    the prefix.  Raises ConfigError.
    """
    address, question, query = reveal(mirror.url).partition("?")
    place, slash, last = address.rstrip("/").rpartition("/")
    scheme, separator, bucket = place.partition("://")
    if scheme == "azure":
        bucket = bucket.partition("/")[2]  # what comes first is the account
    if not last or (address.partition("://")[1] and scheme != "file" and not (separator and bucket)):
        raise ConfigError(
            f"store @{mirror.name} is a mirror and has no prefix",
            hint="write one into its URL: a chain of its own lies beside that",
        )
    url = f"{place}{slash}standby-of-{last}{question}{query}"
    return msgspec.structs.replace(mirror, name=f"{mirror.name}{schema.STANDBY}", url=url, mirror_of=None)


def find(explicit: Path | None) -> Path | None:
    """The file to read: the one that is named, else the first of PLACES that is there."""
    if explicit is not None:
        return explicit
    return next((place for place in PLACES if place.is_file()), None)


def read(path: Path | None) -> Configuration:
    """Read and check a file; none gives the defaults.  Raises ConfigError with the line that is wrong."""
    if path is None:
        return Configuration(None, {}, schema.File())
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}",
            hint="name another file with --config or ROOTCELLAR_CONFIG",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text", hint="write it as UTF-8") from error
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        written = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError) as error:
        raise _not_yaml(path, error) from error
    if root is not None:
        _refuse_unknown(path, root, msgspec.inspect.type_info(schema.File), "")
    try:
        file = msgspec.convert(written, schema.File)
    except msgspec.ValidationError as error:
        raise _invalid(path, root, error) from error
    return Configuration(path, written, file)


def _not_yaml(path: Path, error: Exception) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
    return ConfigError(f"{where}: is not YAML ({problem})", hint="values with : or # in them need quotes")


def _refuse_unknown(path: Path, node: yaml.Node, kind: msgspec.inspect.Type, place: str) -> None:
    """Walk the text beside its type, because only the text knows lines, and keys that stand there twice."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            _refuse_unknown(path, node, each, place)
    elif isinstance(kind, msgspec.inspect.VarTupleType) and isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _refuse_unknown(path, item, kind.item_type, f"{place}[{index}]")
    elif isinstance(kind, msgspec.inspect.StructType) and isinstance(node, yaml.MappingNode):
        known = {field.encode_name: field.type for field in kind.fields}
        seen = set[str]()
        for key, value in node.value:
            name, below = str(key.value), f"{place}.{key.value}".lstrip(".")
            if name in seen:
                _refuse(path, key, f"{below} stands there twice", "keep one of them")
            if name not in known:
                near = get_close_matches(name, known, 1)
                meant = f"did you mean {near[0]}? " if near else ""
                _refuse(path, key, f"{below} is unknown", f"{meant}known here: {', '.join(known)}")
            seen.add(name)
            _refuse_unknown(path, value, known[name], below)


def _refuse(path: Path, node: yaml.Node, message: str, hint: str) -> NoReturn:
    raise ConfigError(f"{path}:{node.start_mark.line + 1}: {message}", hint=hint)


def _invalid(path: Path, root: yaml.Node | None, error: msgspec.ValidationError) -> ConfigError:
    found = _AT.match(str(error))
    message, place = (found[1], found[2]) if found else (str(error), "$")
    node = _node(root, place)
    where = f"{path}:{node.start_mark.line + 1}" if node is not None else str(path)
    shown = place.removeprefix("$").lstrip(".")
    message = message[:1].lower() + message[1:]
    return ConfigError(
        f"{where}: {shown}: {message}" if shown else f"{where}: {message}",
        hint="`rootcellar config schema` and docs/configuration.md say what is possible",
    )


def _node(root: yaml.Node | None, place: str) -> yaml.Node | None:
    node = root
    for name, index in _STEP.findall(place):
        if isinstance(node, yaml.SequenceNode) and index:
            node = node.value[int(index)]
        elif isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == name), node)
    return node


def reveal(text: str) -> str:
    """`text` with `${file:/path}` and `${env:NAME}` replaced; `$${` is a plain `${`.  Raises ConfigError."""
    return _PLACEHOLDER.sub(lambda found: found[0][1:] if found[1] else _stands_for(found[2]), text)


def _stands_for(inner: str) -> str:
    kind, _, name = inner.partition(":")
    if kind == "file" and name:
        try:
            return Path(name).read_text("utf-8").strip()
        except OSError as error:
            raise ConfigError(
                f"${{{inner}}} cannot be read: {(error.strerror or str(error)).lower()}",
                hint="the file holds the value and nothing else",
            ) from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"${{{inner}}} is no text", hint="the file holds the value in UTF-8") from error
    if kind == "env" and name:
        try:
            return os.environ[name]
        except KeyError as error:
            raise ConfigError(f"${{{inner}}} is not set", hint=f"export {name}") from error
    raise ConfigError(
        f"${{{inner}}} means nothing", hint="write ${file:/path} or ${env:NAME}; $${ is a plain ${"
    )


def placeholders(written: Any) -> Iterable[str]:
    """Every text in a file that has a placeholder in it."""
    if isinstance(written, str):
        if _PLACEHOLDER.search(written):
            yield written
    elif isinstance(written, dict):
        for value in written.values():
            yield from placeholders(value)
    elif isinstance(written, list):
        for value in written:
            yield from placeholders(value)


SECRETS = frozenset({"password"})
IDENTITY_MARK = "AGE-SECRET-KEY-"


def masked(written: Any, name: str = "") -> Any:
    """What a file says, with secrets that stand in it as themselves blotted out."""
    if isinstance(written, dict):
        return {key: masked(value, str(key)) for key, value in written.items()}
    if isinstance(written, list):
        return [masked(value, name) for value in written]
    if isinstance(written, str) and IDENTITY_MARK in written.upper():
        return "***"  # a private key in the place of a public one
    if name in SECRETS and isinstance(written, str):
        return written if _PLACEHOLDER.fullmatch(written) else "***"
    return written
