"""A program as one function again: what a single machine trains with.

The same equations after the same passes, without cuts: XLA sees the whole. What the passes hoisted is a function of
its own, to be run once. What XLA cannot fuse with a gather is folded into it (`fold`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

from dorylax.jax_internals import close, eval_jaxpr, is_literal, variables
from dorylax.program.jaxpr.instantiate import instantiate
from dorylax.program.jaxpr.simplify import live
from dorylax.program.jaxpr.symbols import SYMBOLS
from dorylax.program.model.base import Tree
from dorylax.program.single.fold import fold
from dorylax.program.single.narrow import Gathered, narrow
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tracing.arguments import RunData, StepResult, data_values, step_values, unpack, unpack_output


@final
class ProgramFunction:
    """Pure functions that may be jitted. Shapes must be those that it was made for.

    Args:
        program: the program.
        num_vertices: V.
        num_edges: E.
        gathered: how an epoch stores the rows that it sums over neighbours (`narrow`). What was hoisted is exact.

    Attributes:
        reads_rows: whether `step` reads what the model is called with besides the graph, or only what `prepare` made of it.
    """

    def __init__(
        self, program: SplitModel, num_vertices: int, num_edges: int, *, gathered: Gathered = "float32"
    ) -> None:
        self._traced = program.traced
        jaxpr = program.traced.step.jaxpr
        made_once = {var for task in program.tasks if task.when == "once" for var in task.defined}
        kept = {var: None for task in program.tasks if task.when == "epoch" for var in task.read if var in made_once}
        kept |= {atom: None for atom in jaxpr.outvars if not is_literal(atom) and atom in made_once}
        by_edge = {
            var
            for var, entry in zip(jaxpr.invars, program.traced.inputs, strict=True)
            if entry.role == "rows" and entry.space == "edge"
        }
        sizes = {SYMBOLS["vertex"]: num_vertices, SYMBOLS["edge"]: num_edges}
        # Without their equations, what was kept is an input.
        rest = live(
            [equation for equation in jaxpr.eqns if not any(var in kept for var in equation.outvars)], jaxpr.outvars
        )
        # Values per edge are led from the user's order into slots once, and not in every epoch.
        kept |= {var: None for equation in rest for var in variables(equation.invars) if var in by_edge}
        before = close(jaxpr.invars, list(kept), live(jaxpr.eqns, kept))
        given = set(program.traced.variables("rows")) - kept.keys()
        self.reads_rows = any(var in given for equation in rest for var in equation.invars if not is_literal(var))
        self._read = [k for k, var in enumerate(jaxpr.invars) if var not in kept]
        after = close([*kept, *(jaxpr.invars[k] for k in self._read)], jaxpr.outvars, rest)
        self._before, self._after = fold(instantiate(before, sizes)), fold(instantiate(after, sizes))
        if gathered == "bfloat16":
            self._after = narrow(self._after)

    @property
    def constants(self) -> tuple[Any, ...]:
        """The arrays that the model closes over; the last of what `step` and `output` take as `kept`."""
        return self._traced.constants

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """For each array that `prepare` computes a text that says how: equal texts, equal arrays.

        Functions of other programs on the same data may then take it as theirs.
        """
        jaxpr, constants = self._before.jaxpr, iter(self._traced.constants)
        roles = {}
        for var, entry in zip(jaxpr.invars, self._traced.inputs, strict=True):
            # Two models' constants have the same names.
            name = f"{id(next(constants))}" if entry.role == "constant" else entry.name
            roles[var] = f"{entry.role} {name}"
        found = []
        for atom in jaxpr.outvars:
            equations = live(jaxpr.eqns, [atom])
            read = {var for equation in equations for var in variables(equation.invars)} | {atom}
            inputs = [var for var in jaxpr.invars if var in read]
            consts = [var for var in jaxpr.constvars if var in read]
            names = ", ".join([*(roles[var] for var in inputs), *(f"constant {id(var)}" for var in consts)])
            found.append(f"{names}: {close([*inputs, *consts], [atom], equations).jaxpr}")
        return tuple(found)

    def prepare(self, data: RunData) -> tuple[Any, ...]:
        """What is the same in every epoch, for `step`: what was hoisted, and the arrays that the model closes over."""
        values = data_values(self._traced, data)
        inputs = [values.get(k, 0) for k in range(len(self._traced.inputs))]
        return (*eval_jaxpr(self._before.jaxpr, self._before.consts, *inputs), *self._traced.constants)

    def step(
        self, kept: tuple[Any, ...], data: RunData, params: Tree, streams: Tree, state: Tree, *, seed: Any, epoch: Any
    ) -> StepResult:
        """One epoch: loss, metrics, gradients and new state.

        Args:
            kept: of `prepare`.
            data: the same as there.
            params: parameters.
            streams: the model's random streams, as before any epoch.
            state: its other state.
            seed: of the run, uint32.
            epoch: number of the epoch, uint32.
        """
        changing = step_values(self._traced, params, streams, state, seed=seed, epoch=epoch)
        return unpack(self._traced, self._run(kept, data, changing), state, data.graph)

    def output(self, kept: tuple[Any, ...], data: RunData, params: Tree, streams: Tree, state: Tree) -> Any:
        """The model's output, of a program traced without a loss."""
        changing = step_values(self._traced, params, streams, state, seed=0, epoch=0)
        return unpack_output(self._traced, self._run(kept, data, changing), data.graph)

    def _run(self, kept: Sequence[Any], data: RunData, changing: Mapping[int, Any]) -> list[Any]:
        values = {**data_values(self._traced, data), **changing}
        count = len(kept) - len(self._traced.constants)
        places = (k for k, entry in enumerate(self._traced.inputs) if entry.role == "constant")
        values.update(zip(places, kept[count:], strict=True))  # arguments: XLA would fold what it takes for a constant
        inputs = [values[k] for k in self._read]
        results: list[Any] = eval_jaxpr(self._after.jaxpr, self._after.consts, *kept[:count], *inputs)
        return results
