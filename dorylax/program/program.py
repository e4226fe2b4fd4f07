"""What users hold: `trace` makes a model a `Program`, which says what it costs, draws itself, runs, and is exported."""

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
from dorylax.program.view.describe import describe
from dorylax.program.view.draw import draw
from dorylax.user_code.lines import user_line_noted


@final
class Program(SplitModel):
    """A traced model, split, with what can be asked of it; its fields are those of `SplitModel`."""

    def cost(
        self,
        num_vertices: int | None = None,
        num_edges: int | None = None,
        *,
        intervals: int = 1,
        workers: int | None = None,
        ghosts: Mapping[Direction, Sequence[int]] | None = None,
    ) -> ProgramCost:
        """Estimated FLOPs, gathered and shipped bytes of each task, per epoch and once, and bytes between graph servers.

        Args:
            num_vertices: V (default: that of the data the model was traced on).
            num_edges: E (default: likewise).
            intervals: into how many intervals rows are cut.
            workers: how many workers keep the parameters for an epoch; None: every call fetches those that it reads.
            ghosts: of each graph server over in-edges and out-edges, as a partition's report counts them; None: one server.

        Raises:
            ValueError: a size is neither given nor known; fewer than 1 interval or worker.
        """
        return cost(self, num_vertices, num_edges, intervals=intervals, workers=workers, ghosts=ghosts)

    def describe(self, num_vertices: int | None = None, num_edges: int | None = None) -> str:
        """The tasks as a table in the paper's vocabulary; sizes as in `cost`."""
        return describe(self, num_vertices, num_edges)

    def draw(self) -> str:
        """Return the tasks as a Mermaid flowchart, which GitHub and JupyterLab show as a picture."""
        return draw(self)

    def export(self) -> StageSet:
        """The stages as artefacts that run without the model's code; see `dorylax.program.artefact.export`."""
        return export_stages(self)

    def as_function(self, num_vertices: int, num_edges: int, *, gathered: Gathered = "float32") -> ProgramFunction:
        """The program as one function again, for a graph of this size; what a single machine trains with."""
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
    """Traces a model with its loss and gradients and splits it into graph tasks and stages, not yet optimised.

    Nothing is computed and no data are needed: numbers of vertices and edges stay symbols.

    Args:
        model: a Flax NNX or Linen module, called as `model(graph, *inputs, **named)`, or a function
            `f(params, graph, *inputs, **named)`.
        data_spec: the shapes of inputs and labels; `DataSpec.of(data)` for a data set.
        loss: `(output, labels) -> [V]`, the loss of each vertex; what is minimised is its mean over the training vertices.
            None traces the model's exact forward pass (no dropout, nothing updated) instead.
        metrics: `(output, labels) -> [V, …]`, summed over the training vertices; None for none.
        params: parameters (arrays or shapes) of a plain function.
        rngs: names of the random streams of a Linen module.
        fused: whether operators that others make up (`ops.additive_attention`) stay in one piece, as is fastest on one
            machine; by default they are written out in those others, which a pipeline can split.

    Raises:
        SplitError: the model mixes rows otherwise than by graph operators, or cannot be traced; the message names the line.
        Exception: what the model itself raises, on numbers of vertices and edges as on symbols.
        TypeError: the model is none of these kinds.
        ValueError: it has no parameters.
    """
    traced = trace_model(model, data_spec, loss=loss, metrics=metrics, params=params, rngs=rngs, fused=fused)
    return Program.of(traced)
