"""Preparation of a model: program, plan and compiled functions, cached for runs that differ only in their seed."""

from __future__ import annotations

import functools
from typing import Any, final

from dorylax.pipeline.driver import DriverFunctions
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.stages import StageFunction, StageSizes, compiled
from dorylax.program.artefact.export import StageSet, export_stages
from dorylax.program.model.base import ModelParts, signature
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.program.passes import optimise
from dorylax.program.program import trace
from dorylax.program.tracing.spec import DataSpec


@final
class Prepared:
    """A plan with its functions, for data of one kind.

    Args:
        plan: The plan.

    Attributes:
        driver: Functions of the driver.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.driver = plan, DriverFunctions(plan)
        self._functions: dict[tuple[int, int], StageFunction] = {}

    def functions(self, sizes: StageSizes, *, of_workers: bool) -> dict[int, StageFunction]:
        """Return the functions of stages and driver tasks by task index, compiled for these sizes.

        Args:
            sizes: Numbers of rows per call.
            of_workers: Whether to include the stages of workers; False if workers are remote and compile their stages.
        """
        found: dict[int, StageFunction] = {}
        for step in self.plan.steps:
            if step.kind in ("stage", "driver") and (of_workers or not step.on_worker):
                key = (step.index, 0 if step.space is None else sizes.of(step))
                if key not in self._functions:
                    self._functions[key] = compiled(self.plan, step, key[1])
                found[step.index] = self._functions[key]
        return found

    @functools.cached_property
    def artefacts(self) -> StageSet:
        """Exported stages for workers in other processes."""
        return export_stages(self.plan.program)


def prepare(
    parts: ModelParts,
    spec: DataSpec,
    passes: tuple[str, ...],
    *,
    loss: RowFunction | None = cross_entropy,
    stale_price: float = 0.0,
    workers: bool = True,
) -> Prepared:
    """Trace, split and plan a model. Results are cached by model and kind of data.

    Args:
        parts: The model.
        spec: Specification of the data.
        passes: Passes to apply.
        loss: Loss per vertex, `(output, labels) -> [V]`; None for the exact forward pass of evaluations.
        stale_price: Price of a stale byte, see `passes.reorder`.
        workers: Whether tensor workers run the stages intended for them, see `Plan.of`.

    Raises:
        SplitError: The model cannot be split.
    """
    key = (
        parts.structure,
        spec,
        passes,
        loss,
        stale_price,
        workers,
        signature((parts.params, parts.streams, parts.state)),
    )
    try:
        found = _prepared(key)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        found = []
    if not found:
        traced = trace(parts, spec, loss=loss, metrics=None)
        found.append(Prepared(Plan.of(optimise(traced, passes=passes, stale_price=stale_price), workers=workers)))
    return found[0]


@functools.lru_cache(maxsize=8)
def _prepared(key: tuple[Any, ...]) -> list[Prepared]:  # noqa: ARG001
    """Return the model prepared for a key, or an empty list, to which the caller adds it."""
    return []
