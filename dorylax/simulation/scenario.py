"""What is simulated: a configuration on a graph that is there, or on one of which only sizes and degrees are known."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final, get_args

from dorylax.config import RunConfig
from dorylax.cost import INSTANCES, Cluster, find_cluster
from dorylax.errors import InputError
from dorylax.graph.degree_statistics import DegreeStatistics
from dorylax.pipeline.config import PipelineConfig
from dorylax.settings.errors import ConfigError

Backend = Literal["functions", "cpu", "gpu"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
GPU_SERVER = INSTANCES["p3.2xlarge"]
"""Of the paper's GPU variant."""


ScenarioError = InputError


@final
@dataclasses.dataclass(frozen=True)
class GraphSizes:
    """A graph described only by its sizes.

    Attributes:
        vertices, edges: V, and directed edges E.
        features: of a vertex.
        classes: of the labels.
        degree_spread, cut_ratio: as `DegreeStatistics.spread` and `cut_ratio`.

    Raises:
        ValueError: a number out of range.
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
        """The statistics of its edges."""
        return DegreeStatistics(self.vertices, self.edges, self.degree_spread, self.cut_ratio)


@final
@dataclasses.dataclass(frozen=True)
class Scenario:
    """A run to be simulated.

    Attributes:
        name: Name in tables and messages.
        backend: "functions": servers and what functions the cluster has; "cpu": its servers alone; "gpu": as many servers
            with a GPU (`GPU_SERVER`), alone.
        config: the run; its pipeline is on the virtual clock, its `train.epochs` are those of the whole run.
        graph: in place of the data set that `config.data` names; None: that one.
        cluster: The rented machines.
    """

    name: str
    backend: Backend
    config: RunConfig
    graph: GraphSizes | None
    cluster: Cluster

    @property
    def pipeline(self) -> PipelineConfig:
        """How it runs."""
        assert self.config.pipeline is not None
        return self.config.pipeline

    @classmethod
    def of(
        cls,
        name: str,
        settings: dict[str, Any],
        *,
        graph: GraphSizes | None = None,
        cluster: Cluster | None = None,
        contention: bool = True,
    ) -> Scenario:
        """A scenario of dotted settings, on its servers and functions.

        Args:
            name: Name in tables and messages.
            settings: of the configuration; `pipeline.clock` is virtual unless it is given.
            graph: as above.
            cluster: what it runs on; None: what `pipeline.cluster` names.
            contention: whether its tasks slow each other down, whatever the cluster says.

        Raises:
            ConfigError: a setting is wrong.
        """
        config = RunConfig.resolve({"pipeline.clock": "virtual", **settings})
        assert config.pipeline is not None
        if config.pipeline.clock != "virtual":
            raise ConfigError.of("pipeline.clock", "must be virtual in a scenario, got real: leave it out")
        if graph is not None and (given := sorted(key for key in settings if key.startswith("data."))):
            raise ConfigError(f"{given[0]} names a data set, and graph describes another: leave one of them out")
        rented = find_cluster(config.pipeline.cluster) if cluster is None else cluster
        return cls(name, "functions", config, graph, dataclasses.replace(rented, contention=contention))

    def on(self, backend: Backend) -> Scenario:
        """The same on another backend.

        Raises:
            ScenarioError: this one has given up its functions or servers already.
        """
        if backend == self.backend:
            return self
        if self.backend != "functions":
            raise ScenarioError(f"{self.name} is on {self.backend} already: ask the scenario on functions")
        server = GPU_SERVER if backend == "gpu" else self.cluster.graph_server
        cluster = dataclasses.replace(self.cluster, graph_server=server, functions=0)
        return dataclasses.replace(self, backend=backend, cluster=cluster)

    def assumptions(self) -> str:
        """The assumptions that times and dollars hang on most."""
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
