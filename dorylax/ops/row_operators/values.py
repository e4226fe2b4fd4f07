"""What the values are that each graph primitive reads, and whose rows it runs over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dorylax.ops.primitives.base import FUSED, Direction

Role = Literal["own", "neighbour", "edge"]

ROLES: dict[str, tuple[Role, ...]] = {
    "dorylax_collect": ("edge",),
    "dorylax_collect_extremum": ("edge",),
    "dorylax_degrees": (),
    "dorylax_edge_dot": ("own", "neighbour"),
    "dorylax_edge_softmax": ("edge", "own"),
    "dorylax_expand": ("neighbour",),
    "dorylax_gather_extremum": ("neighbour",),
    "dorylax_gather_sum": ("neighbour",),
    "dorylax_gather_weighted": ("neighbour", "edge"),
    "dorylax_select_sum": ("own", "neighbour", "neighbour"),
    "dorylax_self_loops": (),
}
"""What each dense operand of each primitive is, seen from an entry of a row: values of the row's "own" vertex, of the
"neighbour" at the entry's other end, or of the "edge" itself. `roles` adds what depends on parameters."""


def roles(name: str, params: Mapping[str, Any]) -> tuple[Role, ...]:
    """The role of each dense operand.

    Args:
        name: a graph primitive's name, as "dorylax_gather_sum".
        params: its parameters.

    Raises:
        ValueError: no such primitive, or a fused one.
    """
    if name in FUSED:
        raise ValueError(
            f"{name!r} is a fused operator, which runs on a whole graph only: trace the model with fused=False, which "
            "writes it out in operators that can be split"
        )
    if name not in ROLES:
        raise ValueError(f"{name!r} is no graph operator: expected one of {', '.join(sorted(ROLES))}")
    # A destination's row is copied to its in-edges, which lie side by side; a source's to wherever it is a neighbour.
    return ("own",) if name == "dorylax_expand" and params["direction"] == "in" else ROLES[name]


def rows_side(name: str, params: Mapping[str, Any]) -> Direction:
    """Whose rows an operator runs over: "in", by destination, or "out", by source.

    What gives a value per edge runs over in-rows whatever its direction, because edges are numbered in their order.

    Args:
        name: a graph primitive's name.
        params: its parameters.

    Raises:
        ValueError: no such primitive.
    """
    roles(name, params)
    direction: Direction = params.get("direction", "in")
    return "in" if name == "dorylax_expand" else direction


def is_push(name: str, params: Mapping[str, Any]) -> bool:
    """Whether an operator sums per source what only the destinations' servers hold.

    Values of edges live with their destination, and so does the choice of which edges attained an extremum: a server
    cannot pull these over its out-rows. Destinations sum them per source and send the sums.

    Args:
        name: a graph primitive's name.
        params: its parameters.

    Raises:
        ValueError: no such primitive.
    """
    reads_edges = "edge" in roles(name, params) or name == "dorylax_select_sum"
    return reads_edges and rows_side(name, params) == "out"
