"""The user's view of a program: `trace` turns a model into a `Program`, which can be priced, drawn, run and exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from dorylax.ops.primitives.structure import Direction
from dorylax.program.artefact.export import StageSet, export_stages
from dorylax.program.model.base import Tree
from dorylax.program.model.loss import RowFunction, confusion, cross_entropy
from dorylax.program.single.function import ProgramFunction
from dorylax.program.single.narrow import Gathered
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tracing.spec import DataSpec
from dorylax.program.tracing.trace import trace_model
from dorylax.program.view.cost import ProgramCost, cost
from dorylax.program.view.describe import describe, draw
from dorylax.user_code.lines import user_line_noted


@final
class Program(SplitModel):
    """A traced and split model with methods for users; its fields are those of `SplitModel`."""

    def cost(
        self,
        num_vertices: int | None = None,
        num_edges: int | None = None,
        *,
        intervals: int = 1,
        workers: int | None = None,
        ghosts: Mapping[Direction, Sequence[int]] | None = None,
    ) -> ProgramCost:
        """Estimate FLOPs, gathered and shipped bytes of each task, per epoch and once, and bytes between graph servers.

        Args:
            num_vertices: V (default: that of the traced data).
            num_edges: E (default: that of the traced data).
            intervals: Number of intervals into which rows are cut.
            workers: Number of workers that keep the parameters for an epoch; None: every call fetches the parameters it
                reads.
            ghosts: Ghosts of each graph server over in-edges and out-edges, as counted in a partition's report; None: one
                server.

        Raises:
            ValueError: A size is neither given nor known, or there are fewer than 1 interval or worker.
        """
        return cost(self, num_vertices, num_edges, intervals=intervals, workers=workers, ghosts=ghosts)

    def describe(self, num_vertices: int | None = None, num_edges: int | None = None) -> str:
        """Describe the tasks in a table with the paper's vocabulary; sizes as in `cost`."""
        return describe(self, num_vertices, num_edges)

    def draw(self) -> str:
        """Return the tasks as a Mermaid flowchart, which GitHub and JupyterLab show as a picture."""
        return draw(self)

    def export(self) -> StageSet:
        """Export the stages as artefacts that run without the model's code; see `dorylax.program.artefact.export`."""
        return export_stages(self)

    def as_function(self, num_vertices: int, num_edges: int, *, gathered: Gathered = "float32") -> ProgramFunction:
        """Return the program as one function for a graph of this size, with which a single machine trains."""
        return ProgramFunction(self, num_vertices, num_edges, gathered=gathered)


@user_line_noted()
def trace(
    model: Any,
    data_spec: DataSpec,
    *,
    loss: RowFunction | None = cross_entropy,
    metrics: RowFunction | None = confusion,
    params: Tree = None,
    rngs: tuple[str, ...] = ("dropout",),
    fused: bool = False,
) -> Program:
    """Trace a model with its loss and gradients and split it into graph tasks and stages, not yet optimised.

    Tracing computes no values and needs no data: numbers of vertices and edges stay symbols.

    Args:
        model: A Flax NNX or Linen module, called as `model(graph, *inputs, **named)`, or a function
            `f(params, graph, *inputs, **named)`.
        data_spec: The shapes of inputs and labels; `DataSpec.of(data)` for a data set.
        loss: `(output, labels) -> [V]`, the loss of each vertex, averaged over the training vertices. None: trace the
            model's exact forward pass (no dropout, no updates) instead.
        metrics: `(output, labels) -> [V, …]`, summed over the training vertices; None: no metrics.
        params: Parameters (arrays or abstract arrays) of a plain function.
        rngs: Names of the random streams of a Linen module.
        fused: Whether fused operators (`ops.additive_attention`) stay in one piece, which is fastest on one machine. False:
            they are replaced by their component operators, which a pipeline can split.

    Raises:
        SplitError: The model mixes rows other than by graph operators, or cannot be traced; the message names the line.
        Exception: The model raises, on numbers of vertices and edges as well as on symbols.
        TypeError: The model is of another kind.
        ValueError: The model has no parameters.
    """
    traced = trace_model(model, data_spec, loss=loss, metrics=metrics, params=params, rngs=rngs, fused=fused)
    return Program.of(traced)
