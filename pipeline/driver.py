"""What has no rows: values for stages from a version and the epoch, an interval's gradient from its sums, the next state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, final, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.hollow import hollow
from dorylax.jax_internals import JaxprEqn, Var, close, eval_jaxpr, is_key, type_of, variables
from dorylax.pipeline.parameters.records import Gradient, Pulled, Sums
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.stages import hollow_like
from dorylax.program.model.base import Tree
from dorylax.program.rows.types import Free


class FreeFunctions:
    """What has no rows and is computed before them, as a jitted function; the same for all runs of a plan.

    It computes what it gives from what it is given, whichever task of the program has the same equations too: a value
    without rows that a stage reads is often computed in that stage alone.

    Attributes:
        given: inputs that change: parameters, state, streams, seed, epoch.
        constants: values without rows that stay the same.
        shown: what `before` gives.
        before: `(*given, *constants) -> shown`: what steps read, and outputs that need no rows.
        of_epoch: whether `before` depends on the epoch alone, not on the version.
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
        shown_by = _needed(equations, known, self.shown)
        self.before = _jitted(known, self.shown, shown_by)
        of_version = {var for var, entry in entries if entry.role in ("param", "state")}
        for equation in shown_by:
            if not of_version.isdisjoint(variables(equation.invars)):
                of_version.update(equation.outvars)
        self.of_epoch = of_version.isdisjoint(self.shown)


@final
class DriverFunctions(FreeFunctions):
    """The driver's arithmetic of an epoch of training.

    Attributes:
        finish: `(*given, *constants, *pushed) -> (loss, *gradients)`, where `pushed` is all that steps push.
        statistics: which of the values that steps push `advance` reads: their places among them.
        changing: which leaves of the model's state change.
        advance: `(*given, *constants, *statistics) -> changing leaves` of the next version.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        traced, types = plan.program.traced, plan.program.analysis.types
        equations = traced.step.jaxpr.eqns
        entries = list(zip(traced.step.jaxpr.invars, traced.inputs, strict=True))
        known = [*self.given, *self.constants]
        outputs = zip(traced.outputs, traced.step.jaxpr.outvars, strict=True)
        found = {(output.role, output.name): atom for output, atom in outputs}
        pushed = [var for step in plan.epoch for var in step.sums]
        gradients = [found["gradient", entry.name] for entry in traced.inputs if entry.role == "param"]
        result = [found["loss", "loss"], *gradients]
        self.finish = _jitted([*known, *pushed], result, _needed(equations, [*known, *pushed], result))

        old = [(var, entry.name) for var, entry in entries if entry.role == "state"]
        self.changing = [leaf for leaf, (_, name) in enumerate(old) if ("state", name) in found]
        new = [found["state", old[leaf][1]] for leaf in self.changing]
        statistics = _statistics(equations, known, {var for var in pushed if isinstance(types[var], Free)})
        advanced_by = _needed(equations, [*known, *statistics], new)
        read = set(variables([*new, *(atom for equation in advanced_by for atom in equation.invars)]))
        self.statistics = [place for place, var in enumerate(pushed) if var in statistics and var in read]
        inputs = [*known, *(pushed[place] for place in self.statistics)]
        dtypes = [type_of(old[leaf][0]).dtype for leaf in self.changing]
        self.advance = _jitted(inputs, new, advanced_by, dtypes)


class FreeValues:
    """The values without rows that steps read.

    Args:
        plan: the steps.
        functions: of the plan.
        constants: values of `functions.constants`.
        streams: the model's random streams, as before any epoch.
        seed: of the run.
    """

    def __init__(
        self, plan: Plan, functions: FreeFunctions, constants: Mapping[Var, Any], *, streams: Tree, seed: int
    ) -> None:
        self._traced, self._before = plan.program.traced, functions
        self._constants = {var: constants[var] for var in functions.constants}
        self._stream_leaves, self._seed = jax.tree.leaves(streams), seed
        inputs = zip(self._traced.step.jaxpr.invars, self._traced.inputs, strict=True)
        self._roles = [(entry.role, type_of(var).dtype) for var, entry in inputs if not entry.of_data]
        self._last: tuple[Any, dict[Var, Any]] | None = None

    def values(self, pulled: Pulled, epoch: int) -> Mapping[Var, Any]:
        """Everything without rows that steps read in an epoch, of one version."""
        functions = self._before
        given = self._given(pulled.params, pulled.state, epoch)
        values = dict(zip(functions.given, given, strict=True)) | self._constants
        key = (epoch, None if functions.of_epoch else (pulled.version, pulled.ahead))
        if self._last is None or self._last[0] != key:
            results = functions.before(*given, *self._constants.values()) if functions.shown else []
            self._last = (key, dict(zip(functions.shown, map(_on_host, results), strict=True)))
        return values | self._last[1]

    def _given(self, params: Tree, state: Tree, epoch: int) -> list[Any]:
        leaves: dict[str, Iterator[Any]] = {
            "param": iter(jax.tree.leaves(params)),
            "state": iter(jax.tree.leaves(state)),
            "stream": iter(self._stream_leaves),
        }
        given: list[Any] = []
        for role, dtype in self._roles:
            if role in leaves:
                given.append(next(leaves[role]))
            else:  # as NumPy numbers: each jnp.uint32() would be a call of JAX
                given.append(np.asarray({"seed": self._seed, "epoch": epoch, "loss_scale": 1}[role], dtype))
        return given


@runtime_checkable
class DrivesEpochs(Protocol):
    """What a run that trains asks of its driver."""

    def values(self, pulled: Pulled, epoch: int) -> Mapping[Var, Any]:
        """Everything without rows that steps read in an epoch, of one version."""
        ...

    def finish(self, params: Tree, state: Tree, epoch: int, sums: Mapping[int, Sums]) -> Gradient:
        """An interval's complete gradient, from what its stages have pushed (`parameters.records.Finish`)."""
        ...

    def advance(self, params: Tree, state: Tree, epoch: int, statistics: Tree) -> Tree:
        """The state of the next version (`parameters.records.Advance`)."""
        ...


@final
class Driver(FreeValues):
    """See `DrivesEpochs`; arguments as of `FreeValues`."""

    def __init__(
        self, plan: Plan, functions: DriverFunctions, constants: Mapping[Var, Any], *, streams: Tree, seed: int
    ) -> None:
        super().__init__(plan, functions, constants, streams=streams, seed=seed)
        self._plan, self._functions = plan, functions

    def finish(self, params: Tree, state: Tree, epoch: int, sums: Mapping[int, Sums]) -> Gradient:
        """See `DrivesEpochs`."""
        pushed = [sums[step.index][str(place)] for step in self._plan.epoch for place in range(len(step.sums))]
        given = self._given(params, state, epoch)
        loss, *gradients = self._functions.finish(*given, *self._constants.values(), *pushed)
        statistics = tuple(pushed[place] for place in self._functions.statistics)
        return jax.tree.unflatten(self._traced.trees["param"], gradients), float(loss), statistics

    def advance(self, params: Tree, state: Tree, epoch: int, statistics: Tree) -> Tree:
        """See `DrivesEpochs`."""
        given = self._given(params, state, epoch)
        leaves, structure = jax.tree.flatten(state)
        new = self._functions.advance(*given, *self._constants.values(), *statistics)
        for leaf, value in zip(self._functions.changing, new, strict=True):
            leaves[leaf] = value
        return jax.tree.unflatten(structure, leaves)


@final
class HollowDriver:
    """See `DrivesEpochs`: in the place of a `Driver` where values are hollow.

    Args:
        plan: the steps.
        functions: of the plan.
        constants: hollow values of `functions.constants`.
    """

    def __init__(self, plan: Plan, functions: DriverFunctions, constants: Mapping[Var, Any]) -> None:
        self._functions = functions
        self._values = {var: hollow_like(var, {}) for var in (*functions.given, *functions.shown)}
        self._values |= {var: constants[var] for var in functions.constants}
        self._pushed = [(step.index, str(place)) for step in plan.epoch for place in range(len(step.sums))]

    def values(self, pulled: Pulled, epoch: int) -> Mapping[Var, Any]:  # noqa: ARG002
        """See `DrivesEpochs`."""
        return self._values

    def finish(self, params: Tree, state: Tree, epoch: int, sums: Mapping[int, Sums]) -> Gradient:  # noqa: ARG002
        """See `DrivesEpochs`. Nobody knows the loss."""
        gradients = jax.tree.map(lambda leaf: hollow(leaf.shape, leaf.dtype), params)
        pushed = [sums[stage][place] for stage, place in self._pushed]
        return gradients, math.nan, tuple(pushed[place] for place in self._functions.statistics)

    def advance(self, params: Tree, state: Tree, epoch: int, statistics: Tree) -> Tree:  # noqa: ARG002
        """See `DrivesEpochs`."""
        return state


def _needed(equations: Sequence[JaxprEqn], inputs: Sequence[Var], outputs: Sequence[Any]) -> list[JaxprEqn]:
    """Those equations, in order, by which the outputs follow from the inputs."""
    known = set(inputs)
    needed = set(variables(outputs)) - known
    kept = []
    for equation in reversed(equations):
        if not needed.isdisjoint(equation.outvars):
            kept.append(equation)
            needed.update(var for var in variables(equation.invars) if var not in known)
    return kept[::-1]


def _statistics(equations: Sequence[JaxprEqn], known: Sequence[Var], pushed: set[Var]) -> set[Var]:
    """Of the values that steps push, those that are made of rows.

    What follows from these and from what the driver knows is not among them: a running mean that a stage uses at once
    would bring along the state that its interval has pulled, and an update that came in between would be lost.
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
    """The equations as a function; results in these dtypes, in their own where None."""
    closed = close(inputs, outputs, equations)

    def evaluate(*values: Any) -> list[Any]:
        results = eval_jaxpr(closed.jaxpr, closed.consts, *values)
        return results if dtypes is None else [jnp.asarray(*pair) for pair in zip(results, dtypes, strict=True)]

    return jax.jit(evaluate)


def _on_host(value: Any) -> Any:
    return value if is_key(value.aval) else np.asarray(value)
