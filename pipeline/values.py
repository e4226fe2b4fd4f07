"""What the values of a run are: numbers, or, where only times are of interest, shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, final, runtime_checkable

import numpy as np

from dorylax.graph.shard import AnyShard
from dorylax.jax_internals import Var
from dorylax.pipeline.driver import Driver, DrivesEpochs, HollowDriver
from dorylax.pipeline.interval_data import hollow_interval_data, interval_data, stored_values
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.stages import StageFunction, StageSizes, hollow_function
from dorylax.program.model.base import Tree


@runtime_checkable
class Values(Protocol):
    """Gives servers what they compute with.

    Attributes:
        hollow: as of `HostContext`.
    """

    @property
    def hollow(self) -> bool:
        """See the class."""
        ...

    def functions(self, sizes: StageSizes, *, of_workers: bool) -> Mapping[int, StageFunction]:
        """Of stages and of the driver's tasks, as of `PreparedPlan.functions`."""
        ...

    def of_intervals(self, shard: AnyShard, sizes: StageSizes) -> list[dict[Var, Any]]:
        """The data of each interval of a server, as of `interval_data`."""
        ...

    def driver(self, free: Mapping[Var, Any]) -> DrivesEpochs:
        """What has no rows, with the values of it that stay the same."""
        ...


@final
class Numbers:
    """See `Values`.

    Args:
        prepared: the plan and its compiled functions.
        rows: what lies beside the shard of each server (`own_rows`).
        num_training: how many vertices are trained on.
        streams: the model's random streams, as before any epoch.
        seed: of the run.
    """

    hollow = False

    def __init__(
        self,
        prepared: Prepared,
        rows: Sequence[Mapping[str, np.ndarray]],
        num_training: int,
        *,
        streams: Tree,
        seed: int,
    ) -> None:
        self._prepared, self._rows, self._num_training = prepared, rows, num_training
        self._streams, self._seed = streams, seed

    def functions(self, sizes: StageSizes, *, of_workers: bool) -> Mapping[int, StageFunction]:
        """See `Values`."""
        return self._prepared.functions(sizes, of_workers=of_workers)

    def of_intervals(self, shard: AnyShard, sizes: StageSizes) -> list[dict[Var, Any]]:
        """See `Values`."""
        own = stored_values(self._prepared, self._rows[shard.server], shard, self._num_training)
        return interval_data(self._prepared, own, shard, sizes)

    def driver(self, free: Mapping[Var, Any]) -> Driver:
        """See `Values`."""
        return Driver(self._prepared.plan, self._prepared.driver, free, streams=self._streams, seed=self._seed)


@final
class Shapes:
    """See `Values`: nothing is computed, nothing takes memory.

    Args:
        prepared: the plan.
    """

    hollow = True

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def functions(self, sizes: StageSizes, *, of_workers: bool) -> Mapping[int, StageFunction]:  # noqa: ARG002
        """See `Values`."""
        steps = (step for step in self._prepared.plan.steps if step.kind in ("stage", "driver"))
        return {step.index: hollow_function(step, 0 if step.space is None else sizes.of(step)) for step in steps}

    def of_intervals(self, shard: AnyShard, sizes: StageSizes) -> list[dict[Var, Any]]:
        """See `Values`."""
        return hollow_interval_data(self._prepared, shard, sizes)

    def driver(self, free: Mapping[Var, Any]) -> DrivesEpochs:
        """See `Values`."""
        return HollowDriver(self._prepared.plan, self._prepared.driver, free)
