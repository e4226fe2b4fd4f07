"""Values of a run: real arrays, or abstract arrays for timing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, final, runtime_checkable

import numpy as np

from dorylax.graph.shard import AnyShard
from dorylax.jax_internals import Var
from dorylax.pipeline.driver import Driver, DrivesEpochs, TimingDriver
from dorylax.pipeline.interval_data import abstract_interval_data, interval_data, stored_values
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.stages import StageFunction, StageSizes, abstract_function
from dorylax.program.model.base import Tree


@runtime_checkable
class Values(Protocol):
    """Source of the functions and data of servers.

    Attributes:
        abstract: Whether values are abstract arrays, see `HostContext`.
    """

    @property
    def abstract(self) -> bool:
        """Whether values are abstract arrays."""
        ...

    def functions(self, sizes: StageSizes, *, of_workers: bool) -> Mapping[int, StageFunction]:
        """Return the functions of stages and driver tasks, see `PreparedPlan.functions`."""
        ...

    def of_intervals(self, shard: AnyShard, sizes: StageSizes) -> list[dict[Var, Any]]:
        """Return the data of each interval of a server, see `interval_data`."""
        ...

    def driver(self, free: Mapping[Var, Any]) -> DrivesEpochs:
        """Return the driver.

        Args:
            free: Constant values without rows.
        """
        ...


@final
class Numbers:
    """Real values, see `Values`.

    Args:
        prepared: The plan and its compiled functions.
        rows: Rows of the data for the shard of each server (`own_rows`).
        num_training: Number of training vertices.
        streams: Random streams of the model before the first epoch.
        seed: Seed of the run.
    """

    abstract = False

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
    """Abstract values, which use no memory and no computation, see `Values`.

    Args:
        prepared: The plan.
    """

    abstract = True

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def functions(self, sizes: StageSizes, *, of_workers: bool) -> Mapping[int, StageFunction]:  # noqa: ARG002
        """See `Values`."""
        steps = (step for step in self._prepared.plan.steps if step.kind in ("stage", "driver"))
        return {step.index: abstract_function(step, 0 if step.space is None else sizes.of(step)) for step in steps}

    def of_intervals(self, shard: AnyShard, sizes: StageSizes) -> list[dict[Var, Any]]:
        """See `Values`."""
        return abstract_interval_data(self._prepared, shard, sizes)

    def driver(self, free: Mapping[Var, Any]) -> DrivesEpochs:
        """See `Values`."""
        return TimingDriver(self._prepared.plan, self._prepared.driver, free)
