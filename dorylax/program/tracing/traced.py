"""What a model computes, before it is split: inputs and outputs by role, and the jaxprs of forward pass and step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, final

from dorylax.jax_internals import ClosedJaxpr, Var
from dorylax.program.jaxpr.symbols import Dimensions, Space
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType
from dorylax.program.tracing.spec import DataSpec

InputRole = Literal[
    "param",  # trained
    "stream",  # random keys and counters, as before any epoch
    "state",  # what the model keeps besides parameters
    "seed",  # uint32 []
    "epoch",  # uint32 []
    "loss_scale",  # [], the cotangent of the loss; 1 gives gradients of the loss itself
    "count",  # int32 [], the number of vertices or of edges of the whole graph
    "constant",  # an array that the model closes over
    "graph",  # one of the five arrays of the graph's structure
    "ids",  # int32 [n] or [e]
    "places",  # int32 [e], where each edge's values lie in the arrays that the user gives
    "real",  # bool [n] or [e], False for padding
    "rows",  # what the model is called with
    "labels",
    "weights",  # [n], a vertex's share of the loss; 0 where it has no label
]
OutputRole = Literal[
    "loss",  # [], Σ weight · loss
    "metric",  # sums over the vertices whose weight is not 0
    "state",  # new state
    "gradient",  # of the loss towards a parameter
    "input_gradient",  # of the loss towards an array of rows
    "output",  # what the model returns, where there is no loss
]


@final
@dataclasses.dataclass(frozen=True)
class Input:
    """One input of a program.

    Attributes:
        role: what it is.
        name: the path of a parameter (`convs/0/kernel`), the name of an array.
        space: whose rows it has, if any.
    """

    role: InputRole
    name: str
    space: Space | None = None

    @property
    def row_type(self) -> RowType:
        """Its type for the row check."""
        if self.role == "graph":
            return GraphArray()
        return Free() if self.space is None or self.role == "count" else Rows(self.space, 0)

    @property
    def of_data(self) -> bool:
        """Whether it stays the same from epoch to epoch."""
        return self.role in ("count", "constant", "graph", "ids", "places", "real", "rows", "labels", "weights")


@final
@dataclasses.dataclass(frozen=True)
class Output:
    """One output of a program: its role and, for gradients and state, the name of the input that it belongs to."""

    role: OutputRole
    name: str


def whole_outputs(outputs: Sequence[Output]) -> list[int]:
    """Positions of the outputs that are no sums over what intervals contribute: state, and what the model returns."""
    return [k for k, output in enumerate(outputs) if output.role in ("state", "output")]


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Traced:
    """A model with its loss, as jaxprs over symbolic numbers of rows.

    Attributes:
        name: the model's.
        spec: what it was traced on.
        dimensions: its symbols.
        inputs: of both jaxprs, in order.
        constants: values of the inputs of role "constant".
        forward: flat; custom derivatives are opaque, so that it can be differentiated.
        forward_outputs: its outputs: loss, metrics and state, or the model's output where there is no loss.
        step: flat, nothing opaque: `forward` and the gradients.
        outputs: those of `step`.
        trees: tree structures of "param", "stream", "state", "metric" and "output" leaves.
        fused: whether fused operators are in it, which one machine runs fastest and no pipeline can split.
    """

    name: str
    spec: DataSpec
    dimensions: Dimensions
    inputs: tuple[Input, ...]
    constants: tuple[Any, ...]
    forward: ClosedJaxpr
    forward_outputs: tuple[Output, ...]
    step: ClosedJaxpr
    outputs: tuple[Output, ...]
    trees: dict[str, Any]
    fused: bool = False

    @property
    def trains(self) -> bool:
        """Whether there is a loss, and with it gradients."""
        return any(output.role == "loss" for output in self.outputs)

    def variables(self, *roles: InputRole) -> list[Var]:
        """The inputs of the step that have one of these roles."""
        return [var for var, entry in zip(self.step.jaxpr.invars, self.inputs, strict=True) if entry.role in roles]
