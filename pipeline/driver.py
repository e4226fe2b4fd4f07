"""The driver: values without rows for stages, an interval's gradient from its sums, and the state of the next version."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.abstract_array import abstract_array
from dorylax.jax_internals import JaxprEqn, Var, close, eval_jaxpr, is_key, type_of, variables
from dorylax.pipeline.parameters.records import Gradient, Pulled, Sums
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.stages import abstract_like
from dorylax.program.jaxpr.rewrite import live
from dorylax.program.model.base import Tree
from dorylax.program.rows.types import Free
from dorylax.program.tracing.arguments import step_values


@final
class DriverFunctions:
    """The driver's arithmetic in an epoch, as jitted functions shared by all runs of a plan.

    A function contains every equation between its inputs and its outputs, even if a task of the program contains it too: a
    value without rows is often computed only in the stage that reads it.

    Attributes:
        given: Inputs that change: parameters, state, streams, seed, epoch.
        constants: Constant values without rows.
        shown: Outputs of `before`.
        before: `(*given, *constants) -> shown`: the values that steps read, and outputs of the model without rows.
        of_epoch: Whether `before` depends only on the epoch, not on the version.
        finish: `(*given, *constants, *pushed) -> (loss, *gradients)`, where `pushed` contains all values pushed by steps.
            This and the following exist only with a loss.
        statistics: Positions in `pushed` of the values that `advance` reads.
        changing: Indices of the leaves of the model's state that change.
        advance: `(*given, *constants, *statistics) -> leaves`: the changing leaves of the next version.
    """

    def __init__(self, plan: Plan) -> None:
        traced, types = plan.program.traced, plan.program.analysis.types
        equations = traced.step.jaxpr.eqns
        entries = list(zip(traced.step.jaxpr.invars, traced.inputs, strict=True))
        self.given = [var for var, entry in entries if not entry.of_data]
        made = (var for step in plan.once for var in step.writes)
        free = [var for var, _ in entries if var in plan.constants] + list(made)
        self.constants = [var for var in free if isinstance(types[var], Free)]
        known = [*self.given, *self.constants]

        wanted = {var for step in plan.epoch for var in step.reads}
        ends = zip(traced.outputs, traced.step.jaxpr.outvars, strict=True)
        wanted.update(variables(atom for output, atom in ends if output.role == "output"))
        begun = (var for task in plan.before for equation in task.equations for var in equation.outvars)
        self.shown = [var for var in dict.fromkeys(begun) if var in wanted]
        shown_by = live(equations, self.shown, known)
        self.before = _jitted(known, self.shown, shown_by)
        of_version = {var for var, entry in entries if entry.role in ("param", "state")}
        for equation in shown_by:
            if not of_version.isdisjoint(variables(equation.invars)):
                of_version.update(equation.outvars)
        self.of_epoch = of_version.isdisjoint(self.shown)
        if traced.trains:
            self._train(plan, known)

    def _train(self, plan: Plan, known: list[Var]) -> None:
        traced, types = plan.program.traced, plan.program.analysis.types
        equations = traced.step.jaxpr.eqns
        entries = list(zip(traced.step.jaxpr.invars, traced.inputs, strict=True))
        outputs = zip(traced.outputs, traced.step.jaxpr.outvars, strict=True)
        found = {(output.role, output.name): atom for output, atom in outputs}
        pushed = [var for step in plan.epoch for var in step.sums]
        gradients = [found["gradient", entry.name] for entry in traced.inputs if entry.role == "param"]
        result = [found["loss", "loss"], *gradients]
        self.finish = _jitted([*known, *pushed], result, live(equations, result, [*known, *pushed]))

        old = [(var, entry.name) for var, entry in entries if entry.role == "state"]
        self.changing = [leaf for leaf, (_, name) in enumerate(old) if ("state", name) in found]
        new = [found["state", old[leaf][1]] for leaf in self.changing]
        statistics = _statistics(equations, known, {var for var in pushed if isinstance(types[var], Free)})
        advanced_by = live(equations, new, [*known, *statistics])
        read = set(variables([*new, *(atom for equation in advanced_by for atom in equation.invars)]))
        self.statistics = [place for place, var in enumerate(pushed) if var in statistics and var in read]
        inputs = [*known, *(pushed[place] for place in self.statistics)]
        dtypes = [type_of(old[leaf][0]).dtype for leaf in self.changing]
        self.advance = _jitted(inputs, new, advanced_by, dtypes)


class Driver:
    """The driver of a training run or of evaluations.

    Args:
        plan: The plan.
        functions: Functions of the plan.
        constants: Values of `functions.constants`.
        streams: Random streams of the model before the first epoch.
        seed: Seed of the run.
    """

    def __init__(
        self, plan: Plan, functions: DriverFunctions, constants: Mapping[Var, Any], *, streams: Tree, seed: int
    ) -> None:
        self._plan, self._functions, self._traced = plan, functions, plan.program.traced
        self._constants = {var: constants[var] for var in functions.constants}
        self._streams, self._seed = streams, seed
        self._last: tuple[Any, dict[Var, Any]] | None = None

    def values(self, pulled: Pulled, epoch: int) -> Mapping[Var, Any]:
        """Return all values without rows of one version that steps read in an epoch."""
        functions = self._functions
        given = self._given(pulled.params, pulled.state, epoch)
        values = dict(zip(functions.given, given, strict=True)) | self._constants
        key = (epoch, None if functions.of_epoch else (pulled.version, pulled.ahead))
        if self._last is None or self._last[0] != key:
            results = functions.before(*given, *self._constants.values()) if functions.shown else []
            self._last = (key, dict(zip(functions.shown, map(_on_host, results), strict=True)))
        return values | self._last[1]

    def _given(self, params: Tree, state: Tree, epoch: int) -> list[Any]:
        return list(step_values(self._traced, params, self._streams, state, seed=self._seed, epoch=epoch).values())

    def finish(self, params: Tree, state: Tree, epoch: int, sums: Mapping[int, Sums]) -> Gradient:
        """Return an interval's complete gradient from the sums pushed by its stages (`parameters.records.Finish`)."""
        pushed = self._pushed(sums)
        given = self._given(params, state, epoch)
        loss, *gradients = self._functions.finish(*given, *self._constants.values(), *pushed)
        statistics = tuple(pushed[place] for place in self._functions.statistics)
        return jax.tree.unflatten(self._traced.trees["param"], gradients), float(loss), statistics

    def _pushed(self, sums: Mapping[int, Sums]) -> list[Any]:
        return [sums[step.index][str(place)] for step in self._plan.epoch for place in range(len(step.sums))]

    def advance(self, params: Tree, state: Tree, epoch: int, statistics: Tree) -> Tree:
        """Return the state of the next version (`parameters.records.Advance`)."""
        given = self._given(params, state, epoch)
        leaves, structure = jax.tree.flatten(state)
        new = self._functions.advance(*given, *self._constants.values(), *statistics)
        for leaf, value in zip(self._functions.changing, new, strict=True):
            leaves[leaf] = value
        return jax.tree.unflatten(structure, leaves)


@final
class AbstractDriver(Driver):
    """Driver for abstract arrays, which computes nothing; arguments as for `Driver`."""

    def __init__(
        self, plan: Plan, functions: DriverFunctions, constants: Mapping[Var, Any], *, streams: Tree, seed: int
    ) -> None:
        super().__init__(plan, functions, constants, streams=streams, seed=seed)
        self._values = {var: abstract_like(var, {}) for var in (*functions.given, *functions.shown)} | self._constants

    def values(self, pulled: Pulled, epoch: int) -> Mapping[Var, Any]:  # noqa: ARG002
        """See `Driver`."""
        return self._values

    def finish(self, params: Tree, state: Tree, epoch: int, sums: Mapping[int, Sums]) -> Gradient:  # noqa: ARG002
        """See `Driver`. The loss is NaN."""
        gradients = jax.tree.map(lambda leaf: abstract_array(leaf.shape, leaf.dtype), params)
        pushed = self._pushed(sums)
        return gradients, math.nan, tuple(pushed[place] for place in self._functions.statistics)

    def advance(self, params: Tree, state: Tree, epoch: int, statistics: Tree) -> Tree:  # noqa: ARG002
        """See `Driver`."""
        return state


def _statistics(equations: Sequence[JaxprEqn], known: Sequence[Var], pushed: set[Var]) -> set[Var]:
    """Return the pushed values that are computed from rows.

    Values that follow from these and from the driver's inputs are excluded. Otherwise, a running mean that a stage uses
    immediately would contain the state pulled by its interval, and an update in between would be lost.
    """
    found, statistics = set(known), set[Var]()
    for equation in equations:
        if found.issuperset(variables(equation.invars)):
            found.update(equation.outvars)
        else:
            statistics.update(pushed.intersection(equation.outvars))
            found |= statistics
    return statistics


def _jitted(
    inputs: list[Var], outputs: list[Any], equations: list[JaxprEqn], dtypes: Sequence[Any] | None = None
) -> Callable[..., list[Any]]:
    """Return the equations as a jitted function, with results cast to `dtypes` if given."""
    closed = close(inputs, outputs, equations)

    def evaluate(*values: Any) -> list[Any]:
        results = eval_jaxpr(closed.jaxpr, closed.consts, *values)
        return results if dtypes is None else [jnp.asarray(*pair) for pair in zip(results, dtypes, strict=True)]

    return jax.jit(evaluate)


def _on_host(value: Any) -> Any:
    return value if is_key(value.aval) else np.asarray(value)
