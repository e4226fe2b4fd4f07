"""The user's view of a program: `trace` turns a model into a `Program`, which can be priced, drawn, run and exported."""

from __future__ import annotations

from typing import Any, final

from dorylax.program.artefact.export import export_stages
from dorylax.program.gathers import Gathered
from dorylax.program.model.base import Tree
from dorylax.program.model.loss import RowFunction, confusion, cross_entropy
from dorylax.program.single import ProgramFunction
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tracing.spec import DataSpec
from dorylax.program.tracing.trace import trace_model
from dorylax.program.view import cost as costs
from dorylax.program.view import describe as views
from dorylax.user_code.lines import user_line_noted


@final
class Program(SplitModel):
    """A traced and split model with methods for users; its fields are those of `SplitModel`."""

    cost = costs.cost
    describe = views.describe
    draw = views.draw
    export = export_stages

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
