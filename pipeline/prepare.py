"""From a model to what a pipeline runs: program, plan, compiled functions; kept for runs that differ in their seed only."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, final

from dorylax.pipeline.driver import DriverFunctions, FreeFunctions
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.stages import StageFunction, StageSizes, compiled
from dorylax.program.artefact.export import StageSet, export_stages
from dorylax.program.model.base import ModelParts, signature
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.program.passes import optimise
from dorylax.program.program import trace
from dorylax.program.tracing.spec import DataSpec


@dataclasses.dataclass(eq=False)
class PreparedPlan:
    """Steps, ready to be run on data of one kind.

    Attributes:
        plan: the steps.
        free: what is computed before rows.
    """

    plan: Plan
    free: FreeFunctions
    _functions: dict[tuple[int, int], StageFunction] = dataclasses.field(default_factory=dict)

    def functions(self, sizes: StageSizes, *, of_workers: bool) -> dict[int, StageFunction]:
        """The functions of stages and of the driver's tasks, by number, compiled for these sizes.

        Args:
            sizes: rows of each call.
            of_workers: those of workers too; False where workers are elsewhere and compile for themselves.
        """
        found: dict[int, StageFunction] = {}
        for step in self.plan.steps:
            if step.kind in ("stage", "driver") and (of_workers or not step.on_worker):
                key = (step.index, 0 if step.space is None else sizes.of(step))
                if key not in self._functions:
                    self._functions[key] = compiled(self.plan, step, key[1])
                found[step.index] = self._functions[key]
        return found


@final
class Prepared(PreparedPlan):
    """A model, ready to be trained.

    Args:
        plan: the steps.

    Attributes:
        driver: the driver's functions.
    """

    def __init__(self, plan: Plan) -> None:
        self.driver = DriverFunctions(plan)
        super().__init__(plan, self.driver)

    @functools.cached_property
    def artefacts(self) -> StageSet:
        """The stages as artefacts, for workers in other processes."""
        return export_stages(self.plan.program)


def prepare_evaluation(parts: ModelParts, spec: DataSpec, passes: tuple[str, ...]) -> PreparedPlan:
    """Traces, splits and plans a model's exact forward pass, which graph servers run without workers.

    Args:
        parts: the model.
        spec: of the data that it will run on.
        passes: which to apply.

    Raises:
        SplitError: the forward pass cannot be split.
    """
    traced = trace(parts, spec, loss=None, metrics=None)
    plan = Plan.of(optimise(traced, passes=passes), workers=False)
    return PreparedPlan(plan, FreeFunctions(plan))


def prepare(
    parts: ModelParts,
    spec: DataSpec,
    passes: tuple[str, ...],
    *,
    loss: RowFunction = cross_entropy,
    stale_price: float = 0.0,
    workers: bool = True,
) -> Prepared:
    """Traces, splits and plans a model; the same model and kind of data give the same object.

    Args:
        parts: the model.
        spec: of the data that it will run on.
        passes: which to apply.
        loss: `(output, labels) -> [V]`.
        stale_price: see `passes.reorder`.
        workers: as of `Plan.of`.

    Raises:
        SplitError: the model cannot be split.
    """
    question = _Question(parts, spec, passes, loss, stale_price, workers=workers)
    try:
        return _prepared(question)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return question.answer()


@final
class _Question:
    """What decides which program it is, hashable where the model's structure is."""

    def __init__(
        self,
        parts: ModelParts,
        spec: DataSpec,
        passes: tuple[str, ...],
        loss: RowFunction,
        stale_price: float,
        *,
        workers: bool,
    ) -> None:
        self._parts, self._spec, self._passes, self._loss, self._stale_price = parts, spec, passes, loss, stale_price
        self._workers = workers
        self._key: Any = (
            parts.structure,
            spec,
            passes,
            loss,
            stale_price,
            workers,
            signature((parts.params, parts.streams, parts.state)),
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self._key == other._key

    def answer(self) -> Prepared:
        traced = trace(self._parts, self._spec, loss=self._loss, metrics=None)
        program = optimise(traced, passes=self._passes, stale_price=self._stale_price)
        return Prepared(Plan.of(program, workers=self._workers))


@functools.lru_cache(maxsize=8)
def _prepared(question: _Question) -> Prepared:
    return question.answer()
