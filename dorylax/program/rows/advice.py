"""What messages of the row check advise, in one place so that they speak one language."""

from __future__ import annotations

from dorylax.program.symbols import Space

_MANY: dict[Space, str] = {"vertex": "vertices", "edge": "edges"}


def many(space: Space) -> str:
    """The plural of a space's name."""
    return _MANY[space]


def sums(space: Space) -> str:
    """For a sum over rows that is taken and used where its parts cannot meet."""
    if space == "edge":
        return (
            "Take sums over all edges outside loops, branches and functions with derivatives of their own; "
            "sum the edges of each vertex with dorylax.ops.gather_edges or gather"
        )
    return (
        "Take sums over all vertices outside loops, branches and functions with derivatives of their own, with "
        "dorylax.ops.global_sum or x.sum(axis=0); sum over neighbours with dorylax.ops.gather"
    )


def reductions(space: Space) -> str:
    """For a maximum or the like over rows."""
    if space == "edge":
        return (
            "Reduce over the edges of each vertex with dorylax.ops.gather_edges, "
            "or over the features of each edge (axis=-1)"
        )
    return (
        "Reduce over the features of each vertex (axis=-1), or over neighbours with dorylax.ops.gather(reduce='max'); "
        "a softmax over neighbours is dorylax.ops.edge_softmax"
    )


def order(space: Space) -> str:
    """For sorting, cumulative sums and the like along rows."""
    return f"Do this along the features of each {space} (axis=-1): {many(space)} have no order and no fixed neighbours"


def places(space: Space) -> str:
    """For indexing and slicing rows."""
    if space == "edge":
        return (
            "Edges are not addressed by number: reduce them per vertex with dorylax.ops.gather_edges, "
            "or choose edges by an input of the model that holds a mask [E]"
        )
    return (
        "To read the vertices at the ends of edges use dorylax.ops.scatter_src or scatter_dst, to combine neighbours "
        "dorylax.ops.gather; to choose vertices pass a mask [V] as an input of the model"
    )


def pairs(space: Space) -> str:
    """For products of all pairs of rows."""
    return (
        "Products of all pairs need every row at once: compare neighbours only (dorylax.ops.scatter_src and "
        f"scatter_dst give both ends of each edge), or multiply each {space} by parameters"
    )


def loops(space: Space) -> str:
    """For loops over rows."""
    return (
        f"Compute all {many(space)} at once (jax.vmap if the function is written for one {space}), "
        "and loop over layers or features"
    )


STRUCTURE = (
    "Read the graph through dorylax.ops: scatter_src and scatter_dst for the ends of edges, "
    "gather for sums over neighbours, degrees for the number of neighbours"
)
UNKNOWN = "Please report it, with this message; meanwhile the model trains on one machine"
RAGGED = "Keep the axis of rows apart from the others: reshape only what belongs to one row, [V, a, b] ↔ [V, a·b]"
RANDOM = (
    "Draw numbers for rows with jax.random functions of one key and shape [V, …], "
    "or with nnx.Dropout or dorylax.layers.Dropout"
)
NUMBERS = "Pass what needs the place of a row as an input of the model, with one row per vertex or edge"
TERMS = (
    "A loss is a sum over vertices, and a term without rows would be counted once per part of them: "
    "leave weight decay to the optimizer"
)
