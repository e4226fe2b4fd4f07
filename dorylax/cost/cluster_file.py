"""Clusters by name or from a strictly read description in YAML; every error names its line."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from dorylax.cost.cluster import DEFAULT_CLUSTER, Cluster, clusters
from dorylax.cost.function import Function
from dorylax.cost.instance import INSTANCES, Gpu, Instance
from dorylax.cost.measured import read_measured
from dorylax.cost.variation import Variation
from dorylax.near_matches import did_you_mean
from dorylax.settings import strict_yaml
from dorylax.settings.errors import ConfigError
from dorylax.settings.text_file import read_text
from dorylax.settings.words import TYPE_WORDS

Part = TypeVar("Part", Cluster, Function, Gpu, Instance, Variation)
Where = tuple[str, ...]
_UNSHARED = ("threads_per_core", "lone_thread", "total_memory_bandwidth", "gpu", "memory", "row_latency")
_OPTIONAL = ("variation", *_UNSHARED)
"""Optional keys of a server's description: by default it has the default cluster's variation, and shares nothing."""
_UNWRITTEN = ("one_machine",)
"""Keys set by runs, not by files."""
_TYPES = {kind.__name__: words for kind, words in TYPE_WORDS.items()}


def find_cluster(name_or_path: str | os.PathLike[str]) -> Cluster:
    """Return a known cluster by its name, or the one that a YAML file describes (docs/clock.md).

    Names that end in `.yaml` or `.yml`, or contain a folder, are files.

    Raises:
        ConfigError: There is no such cluster, or the file is unreadable or wrong; names file, line and key.
        OSError: The machine fails to read the file.
    """
    given = os.fspath(name_or_path)
    if given in (known := clusters()):
        return known[given]
    if Path(given).suffix in (".yaml", ".yml") or Path(given).name != given:
        return _read(Path(given))
    raise ConfigError(f"unknown cluster {given!r}: {did_you_mean(given, known)} (or give the path of a .yaml file)")


def _read(path: Path) -> Cluster:
    document = strict_yaml.parse(read_text(path), path.name)
    try:
        return _cluster(document.value)
    except ConfigError as error:
        place = [int(part) if part.isdecimal() else part for part in error.key.split(".")]
        raise error.at(document.where(*place)) from None


def changed(cluster: Cluster, changes: Mapping[str, Any]) -> Cluster:
    """Return a copy of a cluster with changes.

    Args:
        cluster: The cluster.
        changes: Values by dotted key of its description: `{"functions": 50, "function.variation.sigma": 0.5}`. A server's
            name replaces it by the known type of that name.

    Raises:
        ConfigError: A key is unknown, or a value has the wrong type or is out of range.
    """
    nested: dict[str, Any] = {}
    for key, value in changes.items():
        *sections, last = key.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError.of(key, "is given with what it is a part of: leave one of them out")
        if last in place:
            raise ConfigError.of(key, "is given with one of its parts: leave one of them out")
        place[last] = value
    return _based(cluster, nested, named=False)


def _cluster(value: Any) -> Cluster:
    values = _mapping(value, (), Cluster)
    if "name" not in values:
        raise ConfigError.of("name", "is missing: say what the cluster is called")
    return _based(DEFAULT_CLUSTER, values, named=True)


def _based(base: Cluster, value: dict[str, Any], *, named: bool) -> Cluster:
    """A cluster; missing keys are those of `base`. Unless names are required, so are those of a server without a name."""
    values = _mapping(value, (), Cluster)
    for key in ("graph_server", "parameter_server"):
        if key in values:
            values[key] = _instance(values[key], (key,), None if named else getattr(base, key))
    if "function" in values:
        where = ("function",)
        values["function"] = _filled(base.function, _mapping(values["function"], where, Function), where)
    if "measured" in values:
        values["measured"] = read_measured(values["measured"], "measured")
    return _filled(base, values, ())


def _instance(value: Any, where: Where, base: Instance | None) -> Instance:
    """A known type of server by its name, one with other values, or one described in full; `base` if it has no name."""
    if isinstance(value, str):
        if value not in INSTANCES:
            raise ConfigError.of(".".join(where), f"must be {', '.join(INSTANCES)} or a description, got {value!r}")
        return INSTANCES[value]
    values = _mapping(value, where, Instance)
    known = INSTANCES.get(values["name"]) if "name" in values else base
    if values.get("gpu") is not None:
        values["gpu"] = _gpu(values["gpu"], (*where, "gpu"), None if known is None else known.gpu)
    if known is not None:
        return _filled(known, values, where)
    for field in dataclasses.fields(Instance):
        if field.name not in values and field.name not in _OPTIONAL:
            hint = f"name a known type ({', '.join(INSTANCES)}) or give every key"
            raise ConfigError.of(".".join((*where, field.name)), f"is missing: {hint}")
    unshared = {field.name: field.default for field in dataclasses.fields(Instance) if field.name in _UNSHARED}
    return _filled(DEFAULT_CLUSTER.graph_server, unshared | values, where)


def _gpu(value: Any, where: Where, base: Gpu | None) -> Gpu:
    """A GPU with other values, or one described in full if there is none."""
    values = _mapping(value, where, Gpu)
    if base is not None:
        return _filled(base, values, where)
    for field in dataclasses.fields(Gpu):
        if field.name not in values:
            raise ConfigError.of(".".join((*where, field.name)), "is missing: give every key of a GPU")
    try:
        return Gpu(**values)
    except ConfigError as error:
        raise ConfigError.of(".".join((*where, error.key)), error.problem) from None


def _filled(base: Part, values: dict[str, Any], where: Where) -> Part:
    """A section; missing keys have the values of `base`."""
    if "variation" in values:
        inside = (*where, "variation")
        given = _mapping(values["variation"], inside, Variation)
        variation: Variation = getattr(base, "variation")  # noqa: B009 (of servers and functions only)
        values["variation"] = _filled(variation, given, inside)
    try:
        return dataclasses.replace(base, **values)
    except ConfigError as error:
        raise ConfigError.of(".".join((*where, error.key)), error.problem) from None


def _mapping(value: Any, where: Where, kind: type[Part]) -> dict[str, Any]:
    """The entries of a section: each key known, each value of its type."""
    types = {field.name: str(field.type) for field in dataclasses.fields(kind) if field.name not in _UNWRITTEN}
    if not isinstance(value, dict):
        raise ConfigError.of(".".join(where), f"must hold keys such as {next(iter(types))}, got {value!r}")
    for key in value:
        if key not in types:
            raise ConfigError.of(".".join((*where, key)), f"is not a key of a cluster: {did_you_mean(key, types)}")
    return {key: _typed(entry, types[key], (*where, key)) for key, entry in value.items()}


def _typed(value: Any, kind: str, where: Where) -> Any:
    """A value in its type; sections are returned unchanged."""
    if kind == "float" and type(value) is int:
        return float(value)
    if kind in _TYPES and type(value).__name__ != kind:
        raise ConfigError.of(".".join(where), f"must be {_TYPES[kind]}, got {value!r}")
    return value
