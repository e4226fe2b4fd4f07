"""Clusters by name or from a description in YAML; every error names its line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from dorylax.cost.cluster import DEFAULT_CLUSTER, Cluster, clusters
from dorylax.cost.fields import entries, inside, key_in
from dorylax.cost.function import Function
from dorylax.cost.instance import INSTANCES, Gpu, Instance
from dorylax.cost.measured import read_measured
from dorylax.cost.variation import Variation
from dorylax.near_matches import did_you_mean
from dorylax.settings import strict_yaml
from dorylax.settings.errors import ConfigError
from dorylax.settings.strict_yaml import read_text

Part = TypeVar("Part", Cluster, Function, Gpu, Instance, Variation)
_PARTS: Mapping[str, Any] = {"function": Function, "variation": Variation, "gpu": Gpu}


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
        return _based(DEFAULT_CLUSTER, document.value, named=True)
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


def _based(base: Cluster, value: Any, *, named: bool) -> Cluster:
    """A cluster; missing keys are those of `base`. Unless names are required, so are those of a server without a name."""
    values = entries(value, "", _names(Cluster))
    if named and "name" not in values:
        raise ConfigError.of("name", "is missing: say what the cluster is called")
    for key in ("graph_server", "parameter_server"):
        if key in values:
            values[key] = _instance(values[key], key, None if named else getattr(base, key))
    if "measured" in values:
        values["measured"] = read_measured(values["measured"], "measured")
    return _changed(base, values, "")


def _instance(value: Any, key: str, base: Instance | None) -> Instance:
    """A known type of server by its name, one with other values, or one described in full; without a name `base`."""
    if isinstance(value, str):
        if value not in INSTANCES:
            raise ConfigError.of(key, f"must be {', '.join(INSTANCES)} or a description, got {value!r}")
        return INSTANCES[value]
    values = entries(value, key, _names(Instance))
    known = INSTANCES.get(values["name"]) if "name" in values else base
    if known is None:  # it has the default server's variation, and the defaults of all other keys that may be missing
        known = DEFAULT_CLUSTER.graph_server
        values = {one.name: one.default for one in fields(Instance)} | {"variation": known.variation} | values
        if lacking := [name for name, value in values.items() if value is MISSING]:
            hint = f"name a known type ({', '.join(INSTANCES)}) or give every key"
            raise ConfigError.of(key_in(key, lacking[0]), f"is missing: {hint}")
    return _changed(known, values, key)


def _changed(base: Part, value: Any, key: str) -> Part:
    """A copy of a section with other values; parts that are missing in `base` must be described in full."""
    values = entries(value, key, _names(type(base)))
    for name, kind in _PARTS.items():
        if name not in values or isinstance(given := values[name], kind) or (kind is Gpu and given is None):
            continue
        before, inner = getattr(base, name), key_in(key, name)
        if before is not None:
            values[name] = _changed(before, given, inner)
            continue
        described = entries(given, inner, _names(kind))
        with inside(inner):
            values[name] = kind(**described)
    with inside(key):
        return replace(base, **values)


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]
