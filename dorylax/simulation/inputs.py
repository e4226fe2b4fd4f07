"""The inputs of simulations, kept from one to the next: many points of a search have the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from dorylax.graph.cutting import Cutting
from dorylax.graph.data_shape import AbstractData, DataShape, abstract_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.shard import AnyShard
from dorylax.pipeline.setup import check_counts, layout_for
from dorylax.simulation.scenario import Scenario
from dorylax.trainer.from_config import prepare_data


class Input(NamedTuple):
    """The data set, or an abstract one, its sizes, and the shard of each server."""

    data: Dataset | AbstractData
    shape: DataShape
    shards: Sequence[AnyShard]


@final
class Inputs:
    """Makes inputs; keeps the last data set and the last shards."""

    def __init__(self) -> None:
        self._data: tuple[object, Dataset] | None = None
        self._shards: tuple[object, Sequence[AnyShard]] | None = None

    def of(self, scenario: Scenario) -> Input:
        """Return the inputs of a scenario.

        Raises:
            ConfigError: There are more servers or intervals than vertices, or the partition does not fit.
            ValueError, OSError: The data set cannot be loaded.
        """
        graph, pipeline, seed = scenario.graph, scenario.pipeline, scenario.config.train.seed
        data: Dataset | AbstractData
        if graph is None:
            data = self._dataset(scenario)
            check_counts(pipeline, data.graph.num_vertices)
            shape = DataShape.of(data)
        else:
            check_counts(pipeline, graph.vertices)
            shape = DataShape(graph.vertices, graph.edges, graph.features, graph.classes)
            data = abstract_data(shape)
        names = ("servers", "intervals", "partitioner", "balance", "partition")
        key = (graph or scenario.config.data, seed, *(getattr(pipeline, name) for name in names))
        if self._shards is None or self._shards[0] != key:
            self._shards = None  # makes room
            if isinstance(data, Dataset):
                self._shards = key, list(Cutting(data.graph, layout_for(data.graph, pipeline, seed)))
            else:
                assert graph is not None
                self._shards = key, graph.degrees.shards(pipeline.servers, pipeline.intervals)
        return Input(data, shape, self._shards[1])

    def _dataset(self, scenario: Scenario) -> Dataset:
        config = scenario.config.data
        if self._data is None or self._data[0] != config:
            self._data = None
            self._data = config, prepare_data(config)
        return self._data[1]
