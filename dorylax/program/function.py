"""A program as one function again: what a single machine trains with.

The same equations after the same passes, without cuts: XLA sees the whole. What the passes hoisted is a function of
its own, to be run once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from dorylax.jax_internals import close, eval_jaxpr, is_literal
from dorylax.program.arguments import RunData, StepResult, data_values, step_values, unpack, unpack_output
from dorylax.program.instantiate import instantiate
from dorylax.program.model.base import Tree
from dorylax.program.program import Program
from dorylax.program.simplify import live
from dorylax.program.symbols import SYMBOLS


@final
class ProgramFunction:
    """Pure functions that may be jitted. Shapes must be those that it was made for.

    Args:
        program: the program.
        num_vertices: V.
        num_edges: E.

    Attributes:
        reads_rows: whether `step` reads what the model is called with besides the graph, or only what `prepare` made of it.
    """

    def __init__(self, program: Program, num_vertices: int, num_edges: int) -> None:
        self._traced = program.traced
        jaxpr = program.traced.step.jaxpr
        made_once = {var for task in program.tasks if task.when == "once" for var in task.defined}
        kept = {var: None for task in program.tasks if task.when == "epoch" for var in task.read if var in made_once}
        kept |= {atom: None for atom in jaxpr.outvars if not is_literal(atom) and atom in made_once}
        sizes = {SYMBOLS["vertex"]: num_vertices, SYMBOLS["edge"]: num_edges}
        before = close(jaxpr.invars, list(kept), live(jaxpr.eqns, kept))
        # Without their equations, what was kept is an input.
        rest = live(
            [equation for equation in jaxpr.eqns if not any(var in kept for var in equation.outvars)], jaxpr.outvars
        )
        given = set(program.traced.variables("rows"))
        self.reads_rows = any(var in given for equation in rest for var in equation.invars if not is_literal(var))
        after = close([*kept, *jaxpr.invars], jaxpr.outvars, rest)
        self._before, self._after = instantiate(before, sizes), instantiate(after, sizes)

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
        return unpack(self._traced, self._run(kept, data, changing), state)

    def output(self, kept: tuple[Any, ...], data: RunData, params: Tree, streams: Tree, state: Tree) -> Any:
        """The model's output, of a program traced without a loss."""
        changing = step_values(self._traced, params, streams, state, seed=0, epoch=0)
        return unpack_output(self._traced, self._run(kept, data, changing))

    def _run(self, kept: Sequence[Any], data: RunData, changing: Mapping[int, Any]) -> list[Any]:
        values = {**data_values(self._traced, data), **changing}
        count = len(kept) - len(self._traced.constants)
        places = (k for k, entry in enumerate(self._traced.inputs) if entry.role == "constant")
        values.update(zip(places, kept[count:], strict=True))  # arguments: XLA would fold what it takes for a constant
        inputs = [values[k] for k in range(len(self._traced.inputs))]
        results: list[Any] = eval_jaxpr(self._after.jaxpr, self._after.consts, *kept[:count], *inputs)
        return results
