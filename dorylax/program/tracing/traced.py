"""A traced model before it is split: inputs and outputs by role, and the jaxprs of forward pass and step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, final

from dorylax.jax_internals import ClosedJaxpr, Jaxpr, Var, close, variables
from dorylax.program.jaxpr.rewrite import live
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType
from dorylax.program.tracing.spec import DataSpec

InputRole = Literal[
    "param",  # a parameter
    "stream",  # random keys and counters, as before any epoch
    "state",  # constants and values that the model carries, other than parameters
    "seed",  # uint32 []
    "epoch",  # uint32 []
    "loss_scale",  # [], the cotangent of the loss; 1 gives gradients of the loss itself
    "count",  # int32 [], the number of vertices or of edges of the whole graph
    "constant",  # an array that the model closes over
    "graph",  # one of the five arrays of the graph's structure
    "ids",  # int32 [n] or [e]
    "places",  # int32 [e], the position of each edge's values in the user's arrays
    "real",  # bool [n] or [e], False for padding
    "rows",  # an input of the model, with rows
    "labels",
    "weights",  # [n], a vertex's share of the loss; 0 without a label
]
OutputRole = Literal[
    "loss",  # [], Σ weight · loss
    "metric",  # sums over the vertices with a weight other than 0
    "state",  # new state
    "gradient",  # of the loss with respect to a parameter
    "input_gradient",  # of the loss with respect to an array of rows
    "output",  # the model's output, for a model without a loss
]


@final
@dataclasses.dataclass(frozen=True)
class Input:
    """One input of a program.

    Attributes:
        role: Role of the input.
        name: Path of a parameter (`convs/0/kernel`), or name of an array.
        space: Space of its rows; None without rows.
    """

    role: InputRole
    name: str
    space: Space | None = None

    @property
    def row_type(self) -> RowType:
        """Type of the input for the row check."""
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
    """One output of a program: its role and, for gradients and state, the name of the input it belongs to."""

    role: OutputRole
    name: str


def whole_outputs(outputs: Sequence[Output]) -> list[int]:
    """Positions of the outputs that are not sums of the intervals' contributions: state, and the model's output."""
    return [k for k, output in enumerate(outputs) if output.role in ("state", "output")]


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Traced:
    """A model with its loss, as jaxprs over symbolic numbers of rows.

    Attributes:
        name: Name of the model.
        spec: Specification of the data.
        inputs: Inputs of both jaxprs, in order.
        constants: Values of the inputs with role "constant".
        forward: Flat forward pass; custom derivatives are opaque, so that it can be differentiated.
        forward_outputs: Outputs of `forward`: loss, metrics and state, or the model's output without a loss.
        step: Flat jaxpr of `forward` and the gradients, without opaque equations.
        outputs: Outputs of `step`.
        trees: Tree structures of "param", "stream", "state", "metric" and "output" leaves.
        fused: Whether it contains fused operators, which are fastest on one machine but which no pipeline can split.
    """

    name: str
    spec: DataSpec
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
        """Whether there is a loss, and so gradients."""
        return any(output.role == "loss" for output in self.outputs)

    def described(self, jaxpr: Jaxpr, outputs: Sequence[Any]) -> list[str]:
        """Describe how values are computed; equal texts mean equal values on the same data.

        Args:
            jaxpr: A jaxpr with the inputs of `step`.
            outputs: Values of the jaxpr.
        """
        constants = iter(self.constants)
        names = {}
        for var, entry in zip(jaxpr.invars, self.inputs, strict=True):
            # Two models' constants have the same names.
            names[var] = f"{entry.role} {id(next(constants)) if entry.role == 'constant' else entry.name}"
        found = []
        for atom in outputs:
            equations = live(jaxpr.eqns, [atom])
            read = {atom, *(var for equation in equations for var in variables(equation.invars))}
            inputs = [var for var in jaxpr.invars if var in read]
            consts = [var for var in jaxpr.constvars if var in read]
            given = ", ".join([*(names[var] for var in inputs), *(f"constant {id(var)}" for var in consts)])
            found.append(f"{given}: {close([*inputs, *consts], [atom], equations).jaxpr}")
        return found

    def variables(self, *roles: InputRole) -> list[Var]:
        """Return the inputs of the step that have one of these roles."""
        return [var for var, entry in zip(self.step.jaxpr.invars, self.inputs, strict=True) if entry.role in roles]
