"""Scenarios: a configuration on a data set, or on a graph described by its sizes, and the machines that run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, final, get_args

from dorylax.config import RunConfig
from dorylax.cost import INSTANCES, Cluster, find_cluster
from dorylax.errors import InputError
from dorylax.graph.degree_statistics import DegreeStatistics
from dorylax.pipeline.config import PipelineConfig
from dorylax.settings.errors import ConfigError, shown
from dorylax.user_code.trust import FolderCode

Backend = Literal["functions", "cpu", "gpu"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
GPU_SERVER = INSTANCES["p3.2xlarge"]
"""The paper's server with a GPU."""
ScenarioError = InputError
_CLOCK = "pipeline.clock"


@final
@dataclasses.dataclass(frozen=True)
class GraphSizes:
    """A graph described only by its sizes.

    Attributes:
        vertices, edges: V, and directed edges E.
        features, classes: Width of a vertex's features, and number of classes.
        degree_spread, cut_ratio: See `DegreeStatistics`.

    Raises:
        ValueError: A number is out of range.
    """

    vertices: int
    edges: int
    features: int
    classes: int
    degree_spread: float = 1.0
    cut_ratio: float = 1.0

    def __post_init__(self) -> None:
        for name in ("features", "classes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be ≥ 1, got {getattr(self, name)}")
        self.degrees  # noqa: B018 (checks the others)

    @property
    def degrees(self) -> DegreeStatistics:
        """Statistics of the edges."""
        return DegreeStatistics(self.vertices, self.edges, self.degree_spread, self.cut_ratio)


@final
@dataclasses.dataclass(frozen=True)
class Scenario:
    """A run to simulate.

    Attributes:
        name: Name in tables and messages.
        backend: "functions": servers and the cluster's functions; "cpu": its servers alone; "gpu": as many servers with a
            GPU (`GPU_SERVER`), alone.
        config: Configuration of the run, on the virtual clock; `train.epochs` is the length of the whole run.
        graph: Sizes in place of the data set of `config.data`; None for the data set.
        cluster: The rented machines.
    """

    name: str
    backend: Backend
    config: RunConfig
    graph: GraphSizes | None
    cluster: Cluster

    @property
    def pipeline(self) -> PipelineConfig:
        """Configuration of the pipeline."""
        assert self.config.pipeline is not None
        return self.config.pipeline

    @classmethod
    def of(
        cls,
        name: str,
        settings: Mapping[str, Any],
        *,
        graph: GraphSizes | None = None,
        cluster: Cluster | None = None,
        contention: bool = True,
    ) -> Scenario:
        """Make a scenario on servers and functions.

        Args:
            name: Name in tables and messages.
            settings: Dotted settings of the configuration.
            graph: Sizes in place of a data set.
            cluster: The rented machines; None: those of `pipeline.cluster`.
            contention: Whether tasks slow each other down, in place of the cluster's value.

        Raises:
            ConfigError: A setting is wrong.
        """
        config = virtual_config(settings, sized=graph is not None)
        assert config.pipeline is not None
        rented = find_cluster(config.pipeline.cluster) if cluster is None else cluster
        return cls(name, "functions", config, graph, dataclasses.replace(rented, contention=contention))

    def on(self, backend: Backend) -> Scenario:
        """Return the scenario on another backend.

        Raises:
            ScenarioError: This scenario has already given up its functions or servers.
        """
        if backend == self.backend:
            return self
        if self.backend != "functions":
            raise ScenarioError(f"{self.name} is on {self.backend} already: ask the scenario on functions")
        server = GPU_SERVER if backend == "gpu" else self.cluster.graph_server
        cluster = dataclasses.replace(self.cluster, graph_server=server, functions=0)
        return dataclasses.replace(self, backend=backend, cluster=cluster)

    def assumptions(self) -> str:
        """The assumptions that determine times and dollars most."""
        found = []
        if self.graph is not None:
            servers, ratio = self.pipeline.servers, self.graph.cut_ratio
            found.append(
                f"graph.cut_ratio = {ratio:g}, so {100 * ratio * (1 - 1 / servers):.0f} % of the edges join servers "
                "(`dorylax partition` measures it)"
            )
            found.append(f"graph.degree_spread = {self.graph.degree_spread:g}")
        if slots := self.cluster.functions and (self.pipeline.tensor.slots or self.cluster.functions):
            found.append(f"{slots} functions for each server at a time, {slots * self.pipeline.servers} in all")
        return "; ".join(found)


def virtual_config(*given: Mapping[str, Any], sized: bool, code: FolderCode | None = None) -> RunConfig:
    """Resolve a configuration on the virtual clock.

    Args:
        given: Dotted keys; of several mappings a later one wins.
        sized: Whether the graph is described by its sizes.
        code: Folder that names the model's code, if one does.

    Raises:
        ConfigError: The keys are wrong, name the real clock, or a data set in addition to sizes.
    """
    every = {key: value for mapping in given for key, value in mapping.items()}
    named = next((key for key in every if key.startswith("data.") and every[key] is not None), None)
    if named is not None and sized:
        raise ConfigError.of(named, "names a data set, and graph describes another: leave one of them out")
    if every.get(_CLOCK, "virtual") != "virtual":
        raise ConfigError.of(_CLOCK, f"must be virtual in a simulation, got {shown(every[_CLOCK])}: leave it out")
    return RunConfig.resolve({_CLOCK: "virtual"}, every, code=code)
