"""Advice for error messages of the row check, in one place for consistent wording."""

from __future__ import annotations

from dorylax.program.jaxpr.symbols import Space

_MANY: dict[Space, str] = {"vertex": "vertices", "edge": "edges"}


def many(space: Space) -> str:
    """The plural of a space's name."""
    return _MANY[space]


def sums(space: Space) -> str:
    """Advise on a sum over rows that is used where its parts cannot meet."""
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
    """Advise on a maximum or similar reduction over rows."""
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
    """Advise on sorting, cumulative sums and similar operations along rows."""
    return f"Do this along the features of each {space} (axis=-1): {many(space)} have no order and no fixed neighbours"


def places(space: Space) -> str:
    """Advise on indexing and slicing rows."""
    if space == "edge":
        return (
            "Edges are not addressed by number: reduce them per vertex with dorylax.ops.gather_edges, "
            f"or choose edges by a mask [E]; {as_input(space)}"
        )
    return (
        "To read the vertices at the ends of edges use dorylax.ops.scatter_src or scatter_dst, to combine neighbours "
        "dorylax.ops.gather; reorder rows in the data, before training; to choose vertices multiply by a mask [V]; "
        f"{as_input(space)}"
    )


def as_input(space: Space) -> str:
    """Explain how to give a model an array with a row for each vertex or edge."""
    return f"an array of the data is an input of the model: {declared(space)}"


def declared(space: Space) -> str:
    """Show the declaration of an input."""
    return f'Dataset(…, {space}_inputs={{"name": array}}) and def __call__(self, graph, x, *, name)'


def table(rows: int, features: str, space: Space) -> str:
    """Advise on parameters with a row for each vertex or edge; `features` is the width of a row as shown in the message."""
    return (
        f"Look its rows up by id: nnx.Embed(num_embeddings={rows}, features={features}) called with "
        f"dorylax.ops.{space}_ids(graph), or table[dorylax.ops.{space}_ids(graph)]"
    )


def pairs(space: Space) -> str:
    """Advise on products of all pairs of rows."""
    return (
        "Products of all pairs need every row at once: compare neighbours only (dorylax.ops.scatter_src and "
        f"scatter_dst give both ends of each edge), or multiply each {space} by parameters"
    )


def loops(space: Space) -> str:
    """Advise on loops over rows."""
    return (
        f"Compute all {many(space)} at once (jax.vmap if the function is written for one {space}), "
        "and loop over layers or features"
    )


def unknown(primitive: str) -> str:
    """Advise on a primitive without a rule."""
    for names, what_to_do in _UNKNOWN.items():
        if primitive in names or any(name.endswith("*") and primitive.startswith(name[:-1]) for name in names):
            return what_to_do
    return OURS


_UNKNOWN: dict[tuple[str, ...], str] = {
    ("pure_callback", "io_callback"): (
        "It calls Python in this process, and parts of a model run elsewhere: write it in jax.numpy, or compute it "
        f"beforehand ({as_input('vertex')})"
    ),
    ("debug_print", "debug_callback"): (
        "It prints (or calls Python) in this process, and parts of a model run elsewhere: remove it, or train on one "
        "machine with single.optimize=false"
    ),
    ("check",): (
        "It is a check of jax.experimental.checkify: remove it, or train on one machine with single.optimize=false"
    ),
    ("psum*", "pmax", "pmin", "all_gather*", "all_to_all*", "ppermute*", "reduce_scatter*", "axis_index", "pvary"): (
        "Collectives combine devices, or rows under vmap: dorylax spreads rows itself. Reduce over the features of each "
        "row (axis=-1), or over neighbours with dorylax.ops.gather"
    ),
    ("sharding_constraint", "shard_map", "reshard", "layout_constraint", "custom_partitioning"): (
        "dorylax spreads rows itself: remove what says how arrays are spread over devices"
    ),
    ("approx_top_k",): "Use jax.lax.top_k",
    ("ragged_dot_general",): (
        "Its groups are runs of consecutive rows, and rows have no order: take a matrix for each row, "
        "jnp.einsum('nf,nfg->ng', x, kernels[kind])"
    ),
    ("bcoo_*", "bcsr_*", "coo_*", "csr_*", "todense", "spsolve"): (
        "A sparse matrix over vertices is a graph: multiply by it with dorylax.ops.gather(graph, x, edge_weight)"
    ),
    ("new_ref", "empty_ref", "get", "swap", "addupdate", "freeze", "run_state"): (
        "It reads or writes a mutable array (jax.new_ref): compute new arrays instead"
    ),
    ("ffi_call", "pallas_call", "core_map"): "dorylax cannot look into a kernel: write it in jax.numpy",
    ("dot_product_attention_*",): "Use jax.nn.dot_product_attention(…, implementation='xla')",
}
BEFOREHAND = (
    "It depends on data alone, so compute it beforehand with NumPy and close over the result: class weights, for "
    "instance, are an array [C], which loss= multiplies by as weights[labels]"
)
STRUCTURE = (
    "Read the graph through dorylax.ops: scatter_src and scatter_dst for the ends of edges, "
    "gather for sums over neighbours, degrees for the number of neighbours"
)
OURS = "Please report it, with this message; meanwhile the model trains on one machine"
RAGGED = "Keep the axis of rows apart from the others: reshape only what belongs to one row, [V, a, b] ↔ [V, a·b]"
RANDOM = (
    "Draw numbers for rows from one key and with shape [V, …], by jax.random.uniform, normal, bernoulli or another "
    "function that draws once for each element (gamma, beta and poisson draw again and again), or with nnx.Dropout or "
    "dorylax.layers.Dropout"
)
NUMBERS = (
    "What depends on the place of a row is computed from dorylax.ops.vertex_ids(graph) or edge_ids(graph), or "
    f"beforehand: {as_input('vertex')}"
)
TERMS = (
    "A loss is a sum over vertices, and a term without rows would be counted once per part of them: "
    "leave weight decay to the optimizer"
)
