"""A program as one function, with which a single machine trains.

It has the same equations after the same passes, without cuts, so that XLA sees the whole. Hoisted equations form a separate
function that runs once. `fold` merges arithmetic that XLA cannot fuse with a gather into the gather.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

from dorylax.jax_internals import close, eval_jaxpr, is_literal, variables
from dorylax.program.gathers import Gathered, fold, narrow
from dorylax.program.jaxpr.rewrite import instantiate, live
from dorylax.program.jaxpr.symbols import SYMBOLS
from dorylax.program.model.base import Tree
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tracing.arguments import RunData, StepResult, data_values, step_values, unpack, unpack_output


@final
class ProgramFunction:
    """Pure functions that may be jitted, for fixed shapes.

    Args:
        program: The program.
        num_vertices: V.
        num_edges: E.
        gathered: Type in which an epoch stores rows for sums over neighbours (`narrow`). Hoisted values are not rounded.

    Attributes:
        reads_rows: Whether `step` reads the model's inputs other than the graph, instead of only values from `prepare`.
    """

    def __init__(
        self, program: SplitModel, num_vertices: int, num_edges: int, *, gathered: Gathered = "float32"
    ) -> None:
        self._traced = program.traced
        jaxpr = program.traced.step.jaxpr
        kept = dict.fromkeys(program.kept_of_once)
        by_edge = {
            var
            for var, entry in zip(jaxpr.invars, program.traced.inputs, strict=True)
            if entry.role == "rows" and entry.space == "edge"
        }
        sizes = {SYMBOLS["vertex"]: num_vertices, SYMBOLS["edge"]: num_edges}
        # Their equations are removed, so kept values are inputs.
        rest = live(jaxpr.eqns, jaxpr.outvars, kept)
        # Values per edge are moved from the user's order into slots once, not in every epoch.
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
        """Arrays that the model closes over; the last of the arrays that `step` and `output` take as `kept`."""
        return self._traced.constants

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Description of the computation of each array from `prepare`; equal texts mean equal arrays.

        Functions of other programs on the same data may then share the array.
        """
        return tuple(self._traced.described(self._before.jaxpr, self._before.jaxpr.outvars))

    def prepare(self, data: RunData) -> tuple[Any, ...]:
        """Compute the unchanging values for `step`: hoisted values, and the arrays that the model closes over."""
        values = data_values(self._traced, data)
        inputs = [values.get(k, 0) for k in range(len(self._traced.inputs))]
        return (*eval_jaxpr(self._before.jaxpr, self._before.consts, *inputs), *self._traced.constants)

    def step(
        self, kept: tuple[Any, ...], data: RunData, params: Tree, streams: Tree, state: Tree, *, seed: Any, epoch: Any
    ) -> StepResult:
        """Run one epoch; return loss, metrics, gradients and new state.

        Args:
            kept: Result of `prepare`.
            data: The data given to `prepare`.
            params: Parameters.
            streams: The model's random streams, as before any epoch.
            state: The model's other state.
            seed: Seed of the run, uint32.
            epoch: Number of the epoch, uint32.
        """
        changing = step_values(self._traced, params, streams, state, seed=seed, epoch=epoch)
        return unpack(self._traced, self._run(kept, data, changing), state, data.graph)

    def output(self, kept: tuple[Any, ...], data: RunData, params: Tree, streams: Tree, state: Tree) -> Any:
        """Return the model's output, for a program traced without a loss."""
        changing = step_values(self._traced, params, streams, state, seed=0, epoch=0)
        return unpack_output(self._traced, self._run(kept, data, changing), data.graph)

    def _run(self, kept: Sequence[Any], data: RunData, changing: Mapping[int, Any]) -> list[Any]:
        values = {**data_values(self._traced, data), **changing}
        count = len(kept) - len(self._traced.constants)
        places = (k for k, entry in enumerate(self._traced.inputs) if entry.role == "constant")
        values.update(zip(places, kept[count:], strict=True))  # as arguments, since XLA would fold constants
        inputs = [values[k] for k in self._read]
        results: list[Any] = eval_jaxpr(self._after.jaxpr, self._after.consts, *kept[:count], *inputs)
        return results
