"""YAML as this project reads and writes it: the core schema of YAML 1.2, no key twice, and a line for each value.

PyYAML alone follows YAML 1.1, where `1e-2` is text, `off` is false and `1:30` is ninety, and where the second of two
equal keys silently wins.
"""

from __future__ import annotations

import errno
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from dorylax.errors import named
from dorylax.settings.errors import CONTROL, ConfigError

Path = tuple[str | int, ...]

_USER_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM}
"""Errors of a wrong name; all others are failures of the machine."""
_MOST = 1 << 24

# https://yaml.org/spec/1.2.2/#1032-tag-resolution
_CORE_SCHEMA = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN"),
)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the core schema's scalars."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (PyYAML's class attribute)


for _tag, _pattern, _first in _CORE_SCHEMA:
    # Integers come before floats, so that the first full match is the narrower type.
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), [*_first, *([""] if "null" in _tag else [])])


def _integer(_: _Loader, node: yaml.ScalarNode) -> int:
    return int(node.value, 16 if node.value[1:2] == "x" else 10)


def _float(_: _Loader, node: yaml.ScalarNode) -> float:
    return float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes every text which YAML 1.1 or the core schema would read as something else."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's class attribute)
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *_Loader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
    }


@dataclass(frozen=True)
class Document:
    """A parsed file.

    Attributes:
        name: Name of the file in errors.
        value: Content as dicts, lists and scalars; None if empty.
        lines: Line (from 1) of each value, by its path of keys and indices.
    """

    name: str
    value: Any
    lines: Mapping[Path, int] = field(default_factory=dict)

    def where(self, *path: str | int) -> str:
        """Return `file:line` of the value at `path`, or of its nearest known parent."""
        known = next((path[:n] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)
        return self.name if known is None else f"{self.name}:{self.lines[known]}"

    def error(self, problem: object, *path: str | int) -> ConfigError:
        """Return an error about the value at `path`, which names file and line."""
        return ConfigError(f"{self.where(*path)}: {problem}")

    def need(self, good: object, problem: object, *path: str | int) -> None:
        """Raise the `error` about the value at `path` unless it is good."""
        if not good:
            raise self.error(problem, *path)


def read_text(path: pathlib.Path) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: The file does not exist, may not be read, is too long, or is not text; the message says which.
        OSError: The machine fails to read the file (a bad disk, too many open files); the error names it.
    """
    try:
        with named(path), path.open(encoding="utf-8") as file:
            text = file.read(_MOST + 1)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    except OSError as error:
        if error.errno not in _USER_ERRORS:
            raise
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(text) > _MOST:  # perhaps without an end: /dev/zero
        raise ConfigError(f"{path} has more than {_MOST:,} characters: give a file of settings")
    return text


def parse(text: str, name: str) -> Document:
    """Read one YAML document, called `name` in errors.

    Raises:
        ConfigError: The text is no YAML, a key comes twice, or a key is not text; names file and line.
    """
    lines: dict[Path, int] = {}
    try:
        loader = _Loader(text)  # refuses control characters
        try:
            node = loader.get_single_node()
            if node is None:
                return Document(name, None)
            _check(node, (), name, lines, set())
            return Document(name, loader.construct_document(node), lines)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise ConfigError(f"{place}: not valid YAML: {error.problem or error.context}") from None
    except RecursionError:
        raise ConfigError(f"{name}: not valid YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None


def dump(value: Any) -> str:
    """Return a document that `parse`, and any reader of YAML 1.1, reads back to the same values."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def scalar(text: str) -> Any:
    """Return the value of `key=value` on a command line, by the rules of files: `1e-2`, `null`, `[1, 2]`, `text`."""
    return parse(text, "value").value


def _check(node: yaml.Node, path: Path, name: str, lines: dict[Path, int], seen_nodes: set[int]) -> None:
    """Note the line of every value; refuse keys that come twice or are not text, and aliases (they may be circular)."""
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if id(node) in seen_nodes:
        raise ConfigError(f"{name}:{line}: aliases (*name) are not supported, write the value out")
    seen_nodes.add(id(node))
    if isinstance(node, yaml.ScalarNode) and CONTROL.search(node.value):  # by an escape: the loader refuses others
        raise ConfigError(f"{name}:{line}: texts must have no control characters, got {node.value!r}")
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag != "tag:yaml.org,2002:str":
                got = key.value if isinstance(key, yaml.ScalarNode) else "a collection"
                raise ConfigError(f"{name}:{line}: a key must be text, got {got}")
            if key.value in seen:
                raise ConfigError(f"{name}:{line}: {key.value} is given twice (first on line {seen[key.value]})")
            seen[key.value] = line
            lines[(*path, key.value)] = line
            _check(value, (*path, key.value), name, lines, seen_nodes)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _check(value, (*path, index), name, lines, seen_nodes)
