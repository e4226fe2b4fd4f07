"""Scenarios as settings: their files, and the keys of simulations that sweeps may vary in addition to configurations.

`graph.*` describes a graph by its sizes, in place of `data.*`. `cluster.*` changes the cluster that `pipeline.cluster`
names, by the keys of its description (docs/clock.md). `simulation.*` says how a run is simulated.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

from pydantic import Field, model_validator

from dorylax.config import RunConfig
from dorylax.config.files import overrides_from_mapping
from dorylax.cost import find_cluster
from dorylax.cost.cluster_file import changed
from dorylax.cost.fields import inside
from dorylax.near_matches import did_you_mean
from dorylax.settings import strict_yaml
from dorylax.settings.errors import ConfigError, shown
from dorylax.settings.section import Count, Section, Text
from dorylax.settings.strict_yaml import read_text
from dorylax.simulation.paper import GRAPHS
from dorylax.simulation.scenario import Backend, GraphSizes, Scenario, virtual_config
from dorylax.user_code.trust import FolderCode


@final
class GraphConfig(Section):
    """A graph described only by its sizes.

    Raises:
        ConfigError: A value is out of range, a name is unknown, or a size is missing; names the key.
    """

    section: ClassVar[str] = "graph"

    name: Text | None = Field(
        default=None, description="one of the graphs of the Dorylus paper, whose sizes hold where none is given"
    )
    vertices: Count | None = Field(default=None, description="V")
    edges: Count | None = Field(default=None, description="E, directed")
    features: Count | None = Field(default=None, description="of a vertex")
    classes: Count | None = Field(default=None, description="of the labels")
    degree_spread: float | None = Field(
        default=None, description="standard deviation of the logarithm of the degrees; null: 1"
    )
    cut_ratio: float | None = Field(
        default=None,
        description="edges between servers, over those of vertices dealt at random, 1 − 1/servers of all; null: 1",
    )

    @model_validator(mode="after")
    def _check(self) -> GraphConfig:
        self.sizes()
        return self

    def sizes(self) -> GraphSizes:
        """The sizes, completed from the named graph; raises as the class."""
        if self.name is not None and self.name not in GRAPHS:
            raise ConfigError.of("graph.name", f"= {self.name} is no known graph: {did_you_mean(self.name, GRAPHS)}")
        known = {} if self.name is None else dataclasses.asdict(GRAPHS[self.name])
        values = known | {name: value for name, value in self.to_dict().items() if name != "name" and value is not None}
        for name in ("vertices", "edges", "features", "classes"):
            if name not in values:
                raise ConfigError.of(f"graph.{name}", "is missing: give it, or a graph.name")
        try:
            return GraphSizes(**values)
        except ValueError as error:
            raise ConfigError(f"graph: {error}", "graph") from None


@final
class SimulationConfig(Section):
    """How a run is simulated."""

    section: ClassVar[str] = "simulation"

    backend: Backend = Field(
        default="functions",
        description="functions: servers and functions; cpu: the same servers alone; gpu: as many servers with a GPU",
    )
    contention: bool = Field(default=True, description="tasks slow each other down, whatever the cluster says")
    epochs: Count | None = Field(
        default=None,
        description="how many epochs are simulated at most, the others being as the later ones; null: two more than it "
        "takes until they are alike",
    )


SECTIONS: Mapping[str, type[Section]] = {one.section: one for one in (GraphConfig, SimulationConfig)}


def is_of_simulation(key: str) -> bool:
    """Whether a key, dotted or of a section, belongs to simulations and not to configurations."""
    return key.partition(".")[0] in (*SECTIONS, "cluster")


def check_value(key: str, value: Any) -> None:
    """Check a value of `graph` or `simulation` by itself; changes of a cluster are checked on the cluster.

    Raises:
        ConfigError: The key is unknown, or the value has the wrong type or is out of bounds.
    """
    section, _, option = key.partition(".")
    if section == "cluster":
        if not option:
            raise ConfigError("cluster is a section and must hold keys such as cluster.functions", key)
        if isinstance(value, list | dict):
            raise ConfigError.of(key, f"must be a number or text, got {shown(value)}")
    elif option not in SECTIONS[section].options():
        raise SECTIONS[section].unknown(option)
    else:
        SECTIONS[section].check(option, value)


def flatten(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Turn nested or dotted keys into dotted keys; a ConfigError names a key that is given twice."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        inner = {key: value}
        if isinstance(value, Mapping):
            inner = flatten({f"{key}.{name}": one for name, one in value.items()})
        for dotted, entry in inner.items():
            if dotted in flat:
                raise ConfigError(f"{dotted} is given twice")
            flat[dotted] = entry
    return flat


def read(document: strict_yaml.Document, mapping: Mapping[str, Any], inside: strict_yaml.Path = ()) -> dict[str, Any]:
    """Return the dotted keys of a mapping at the place `inside` of a document, all of simulations.

    Raises:
        ConfigError: A key is unknown, or a value is wrong by itself; with file and line.
    """
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        try:
            for dotted, one in flatten({key: value}).items():
                check_value(dotted, one)
                if dotted in found:
                    raise ConfigError(f"{dotted} is given twice")
                found[dotted] = one
        except ConfigError as error:
            raise ConfigError(f"{document.where(*inside, key)}: {error}") from None
    return found


def load(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario file: a configuration's keys, `name`, `contention`, `cluster`, `graph` (docs/simulation.md).

    Raises:
        ConfigError: The file cannot be read, is not YAML, or holds a wrong key or value; with file and line.
        OSError: The machine fails to read it.
    """
    place = Path(path)
    document = strict_yaml.parse(read_text(place), place.name)
    if not isinstance(document.value, dict):
        raise ConfigError(f"{document.where()}: must hold keys such as graph, got {document.value!r}")
    values = dict(document.value)
    name, contention = values.pop("name", place.stem), values.pop("contention", True)
    if not isinstance(name, str):
        raise ConfigError(f"{document.where('name')}: name must be text, got {name!r}")
    if not isinstance(contention, bool):
        raise ConfigError(f"{document.where('contention')}: contention must be true or false, got {contention!r}")
    own = {key: values.pop(key) for key in list(values) if key.partition(".")[0] in ("graph", "cluster")}
    given = read(document, own)
    try:
        simulation = Simulation.of({**given, "simulation.contention": contention})
        return simulation.scenario(name, simulation.config(overrides_from_mapping(document, values)))
    except ConfigError as error:
        if error.key.partition(".")[0] not in ("graph", "cluster"):
            raise
        parts = (error.key,) if error.key in document.value else error.key.split(".")
        raise ConfigError(f"{document.where(*parts)}: {error}") from None


@final
@dataclasses.dataclass(frozen=True)
class Simulation:
    """The part of a scenario that is not in its configuration.

    Attributes:
        graph: Sizes in place of the data set; None for the data set.
        how: The section `simulation`.
        cluster: Changes of the cluster that the configuration names, by dotted key of its description.
    """

    graph: GraphConfig | None
    how: SimulationConfig
    cluster: Mapping[str, Any]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Simulation:
        """Make one of dotted keys; raises a ConfigError if a key is unknown or a value is wrong."""
        parts: dict[str, dict[str, Any]] = {name: {} for name in (*SECTIONS, "cluster")}
        for key, value in given.items():
            check_value(key, value)
            section, _, option = key.partition(".")
            parts[section][option] = value
        graph = GraphConfig(**parts["graph"]) if any(value is not None for value in parts["graph"].values()) else None
        changes = {key: value for key, value in parts["cluster"].items() if value is not None}
        return cls(graph, SimulationConfig(**parts["simulation"]), changes)

    def dotted(self) -> dict[str, Any]:
        """All values, by dotted key."""
        sections = [self.how] if self.graph is None else [self.graph, self.how]
        found = {part.key(name): value for part in sections for name, value in part.to_dict().items()}
        return found | {f"cluster.{key}": value for key, value in self.cluster.items()}

    def identity(self) -> dict[str, Any]:
        """The values that differ from the defaults; keys added later do not change it."""
        usual = {f"simulation.{name}": field.default for name, field in SimulationConfig.options().items()}
        return {
            key: value
            for key, value in self.dotted().items()
            if value is not None and (key not in usual or value != usual[key])
        }

    def config(self, *given: Mapping[str, Any], code: FolderCode | None = None) -> RunConfig:
        """The configuration of dotted keys; see `virtual_config`."""
        return virtual_config(*given, sized=self.graph is not None, code=code)

    def scenario(self, name: str, config: RunConfig) -> Scenario:
        """The scenario of a configuration, whose pipeline is on the virtual clock.

        Raises:
            ConfigError: The cluster cannot be changed in this way; names the key.
        """
        assert config.pipeline is not None
        base = dataclasses.replace(find_cluster(config.pipeline.cluster), contention=self.how.contention)
        graph = None if self.graph is None else self.graph.sizes()
        made = Scenario(name, "functions", config, graph, base).on(self.how.backend)
        with inside("cluster"):
            cluster = changed(made.cluster, self.cluster)
        if made.backend != "functions" and cluster.functions:
            raise ConfigError.of(
                "cluster.functions",
                f"= {shown(cluster.functions)} needs simulation.backend=functions, got {made.backend}",
            )
        return dataclasses.replace(made, cluster=cluster)
