"""What has no rows: values for stages from parameters and the epoch, and an interval's gradient from its sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import jax
import numpy as np

from dorylax.jax_internals import JaxprEqn, Var, close, eval_jaxpr, is_key, is_literal, type_of, variables
from dorylax.pipeline.parameters.messages import Complete, Sums
from dorylax.pipeline.plan import Plan
from dorylax.program.arguments import unpack
from dorylax.program.model.base import Tree
from dorylax.program.rows.types import Free, Summed
from dorylax.program.simplify import live


@final
class DriverFunctions:
    """The driver's tasks of an epoch as two jitted functions; the same for all runs of a plan.

    Attributes:
        given: inputs that change: parameters, state, streams, seed, epoch.
        constants: values without rows that stay the same.
        shown: what `before` gives.
        before: `(*given, *constants) -> shown`: what steps read.
        after: `(*given, *constants, *sums) -> outputs of the program`.
        of_epoch: whether `before` does not depend on parameters.
        summed_state: names of the state that each interval has only its share of.
    """

    def __init__(self, plan: Plan) -> None:
        traced, types = plan.program.traced, plan.program.facts.types
        before = [equation for task in plan.before for equation in task.equations]
        after = [equation for task in plan.after for equation in task.equations]
        wanted = {var for step in plan.epoch for var in step.reads}
        entries = list(zip(traced.step.jaxpr.invars, traced.inputs, strict=True))
        self.given = [var for var, entry in entries if not entry.of_data]
        made = (var for step in plan.once for var in step.writes)
        free = [var for var, _ in entries if var in plan.constants] + list(made)
        self.constants = [var for var in free if isinstance(types[var], Free)]
        self.shown = [var for equation in before for var in equation.outvars if var in wanted]
        known = [*self.given, *self.constants]
        self.before = _function(known, self.shown, before)
        sums = [var for step in plan.epoch for var in step.sums]
        self.after = _function([*known, *sums], list(traced.step.jaxpr.outvars), [*before, *after])
        changing = {var for var, entry in entries if entry.role in ("param", "state")}
        for equation in before:
            if not changing.isdisjoint(variables(equation.invars)):
                changing.update(equation.outvars)
        self.of_epoch = changing.isdisjoint(self.shown)
        outputs = zip(traced.outputs, traced.step.jaxpr.outvars, strict=True)
        self.summed_state = frozenset(
            output.name
            for output, atom in outputs
            if output.role == "state" and isinstance(atom, Var) and isinstance(types[atom], Summed)
        )


@final
class Driver:
    """The driver of a run.

    Args:
        plan: the steps.
        functions: of the plan.
        constants: values of `functions.constants`.
        streams: the model's random streams, as before any epoch.
        state: what the model keeps besides parameters.
        seed: of the run.

    Attributes:
        state: that of the newest finished epoch.
    """

    def __init__(
        self,
        plan: Plan,
        functions: DriverFunctions,
        constants: Mapping[Var, Any],
        *,
        streams: Tree,
        state: Tree,
        seed: int,
    ) -> None:
        self._plan, self._traced, self._functions = plan, plan.program.traced, functions
        self._constants = {var: constants[var] for var in functions.constants}
        self._stream_leaves, self._seed = jax.tree.leaves(streams), seed
        inputs = zip(self._traced.step.jaxpr.invars, self._traced.inputs, strict=True)
        self._roles = [(entry.role, type_of(var).dtype) for var, entry in inputs if not entry.of_data]
        self.state = state
        self._last: tuple[Any, dict[Var, Any]] | None = None

    def values(self, params: Tree, version: int, epoch: int) -> Mapping[Var, Any]:
        """Everything without rows that steps read in an epoch, with the parameters of one version."""
        functions = self._functions
        given = self._given(params, epoch)
        values = dict(zip(functions.given, given, strict=True)) | self._constants
        key = (epoch, None if functions.of_epoch else version)
        if self._last is None or self._last[0] != key:
            results = functions.before(*given, *self._constants.values()) if functions.shown else []
            self._last = (key, dict(zip(functions.shown, map(_on_host, results), strict=True)))
        return values | self._last[1]

    def finish(self, params: Tree, epoch: int, sums: Mapping[int, Sums]) -> Complete:
        """An interval's complete gradient, from the sums of its stages (`parameters.messages.Finish`)."""
        parts = [sums[step.index][str(place)] for step in self._plan.epoch for place in range(len(step.sums))]
        outputs = self._functions.after(*self._given(params, epoch), *self._constants.values(), *parts)
        result = unpack(self._traced, outputs, self.state)
        return Complete(result.gradients, float(result.loss), result.state)

    def joined(self, states: Mapping[int, Tree]) -> Tree:
        """The state after an epoch, from that of all intervals: shares are added up, the rest is the same for all."""
        trees = [states[k] for k in sorted(states)]
        names = [entry.name for entry in self._traced.inputs if entry.role == "state"]
        leaves = zip(*(jax.tree.leaves(tree) for tree in trees), strict=True)
        joined = [
            sum(column[1:], start=column[0]) if name in self._functions.summed_state else column[0]
            for name, column in zip(names, leaves, strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(trees[0]), joined)

    def _given(self, params: Tree, epoch: int) -> list[Any]:
        leaves: dict[str, Iterator[Any]] = {
            "param": iter(jax.tree.leaves(params)),
            "state": iter(jax.tree.leaves(self.state)),
            "stream": iter(self._stream_leaves),
        }
        given: list[Any] = []
        for role, dtype in self._roles:
            if role in leaves:
                given.append(next(leaves[role]))
            else:  # as NumPy numbers: each jnp.uint32() would be a call of JAX
                given.append(np.asarray({"seed": self._seed, "epoch": epoch, "loss_scale": 1}[role], dtype))
        return given


def _function(inputs: list[Var], outputs: list[Any], equations: list[JaxprEqn]) -> Any:
    unique = list({id(equation): equation for equation in equations}.values())
    closed = close(inputs, outputs, live(unique, [atom for atom in outputs if not is_literal(atom)]))
    return jax.jit(lambda *values: eval_jaxpr(closed.jaxpr, closed.consts, *values))


def _on_host(value: Any) -> Any:
    return value if is_key(value.aval) else np.asarray(value)
