"""Peak memory of each phase of a run on one machine: one formula per phase, with its reason.

All sizes are in bytes. V, E, F, C are the data set's vertices, directed edges, features and classes. Formulas count arrays
that grow with V or E; all others belong to the libraries. `benchmarks/memory.py` compares the formulas with measured peaks.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Mapping

from dorylax.graph.data_shape import DataShape, Size
from dorylax.graph.datasets.communities import working_bytes
from dorylax.graph.partition.locality import MOST_FOR_METIS
from dorylax.graph.rows import SPAN
from dorylax.machine import cores
from dorylax.memory.estimate import Compiled, Phase, Process

LIBRARIES = "interpreter and libraries"
CODE = "compiled code"
WORK = "working memory"
_FIRST_USE = ("reversed graph", "order of reversed edges", "edge order")

# In addition to memory left by compilation: threads of XLA and of the native kernels, and their stacks, once functions run.
_RUNNING = 32 * 2**20
# In addition to XLA's assignment: operands packed by matrix products. Measured 2 … 14 % of the temporaries.
_PACKED = 1.07
# Bytes per sampled entry while entries are joined or contracted, and the entries left for METIS after that: 400,000 clusters
# with 32 neighbours each, and a few more where both ends did not choose each other.
_CONTRACTING = 64
_CONTRACTED = 400_000 * 36


def phases(
    shape: DataShape,
    process: Process,
    *,
    community: bool,
    row_normalise: bool = False,
    loads: bool = True,
    orders: bool = True,
    compiled: Compiled | None,
) -> tuple[Phase, ...]:
    """Return the phases of a run, in order.

    Args:
        shape: Shape of the data set.
        process: Memory of the process without data.
        community: Whether training uses community order.
        row_normalise: Whether features are scaled after loading.
        loads: Whether the data set has yet to be loaded.
        orders: Whether a data set in community order has yet to be reordered.
        compiled: Memory of the compiled functions; None if unknown: later phases are then one, with the arrays alone.
    """
    base = {LIBRARIES: process.libraries}
    found = [Phase("load", _added(base, _loading(shape, row_normalise=row_normalise)))] if loads else []
    if loads and row_normalise:
        shape = dataclasses.replace(shape, features_in="aligned")
    if community and orders:
        # The check of a run near the limit has already compiled its functions.
        found.append(Phase("order", _added(base, {CODE: process.code}, _ordering(shape))))
    arrays = _added(base, _trained_on(shape, community=community))
    first_use = _first_use(shape, community=community)
    if compiled is None:
        return (*found, Phase("hoist", _added(arrays, {WORK: first_use})))
    arrays = _added(arrays, {CODE: process.code + _RUNNING, "parameters": compiled.parameters})
    arrays["kept from epoch to epoch"] = compiled.kept
    hoist, step, evaluation = (round(_PACKED * size) for size in (compiled.hoist, compiled.step, compiled.evaluation))
    # Released before the first step and after each evaluation.
    leaves = shape.features_in == "mapped" and not community and not compiled.reads_features
    during = _without(arrays, "features") if leaves else arrays
    return (
        *found,
        Phase("hoist", _added(arrays, {WORK: max(hoist, first_use)})),
        Phase("step", _added(during, {WORK: step})),
        Phase("evaluation", _added(arrays, {WORK: evaluation})),
    )


def _without(sizes: Mapping[str, int], *names: str) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name not in names}


def _loaded(shape: DataShape, *, reordered: bool | None = None) -> dict[str, int]:
    """Components of a data set in memory, without the reverse direction and the edge order, which training creates."""
    return _without(shape.copy(reordered=reordered), *_FIRST_USE)


def _trained_on(shape: DataShape, *, community: bool) -> dict[str, int]:
    """Components during training: the loaded data set, which its owner keeps, the reordered one, and JAX's copies."""
    V = shape.num_vertices
    loaded = _loaded(shape)
    whole = shape.copy(reordered=True if community else None)
    first_use = {name: size for name, size in whole.items() if name in _FIRST_USE}
    if community:
        # JAX uses the reordered arrays without copies. Mapped arrays of the loaded data set were released.
        loaded = {name: size for name, size in loaded.items() if shape.storage(name) != "mapped"}
        more = _loaded(shape, reordered=True)
    else:
        more = {name: size for name, size in loaded.items() if shape.storage(name) == "elsewhere"}
        more = _without(more, "masks", "vertex ids")
    if not shape.symmetric and shape.edge_ids_fit:
        # Arrays of SciPy, which JAX copies. If edges have no ids, the graph for which they were made is freed.
        more = _added(more, _without(first_use, "edge order"))
    # The device holds the vertices' ids, all masks in one array, and the vertices' float32 weights in the loss.
    return _added(loaded, more, first_use, {"vertex ids": whole.get("vertex ids", 0), "masks": 7 * V})


def held(shape: DataShape, *, ordered: bool) -> int:
    """Bytes of a loaded data set without mapped arrays; if `ordered`, also of its copy in community order."""
    loaded = {name: size for name, size in _loaded(shape).items() if shape.storage(name) != "mapped"}
    return _sum(loaded) + (_sum(_loaded(shape, reordered=True)) if ordered else 0)


def _first_use(shape: DataShape, *, community: bool) -> int:
    """Bytes of working memory for arrays that a graph computes at first use."""
    E = shape.num_edges
    # `transpose`: with ids, carried positions (4) and the result; without, the result, and a byte carried and moved.
    reversing = 0 if shape.symmetric else (4 if shape.edge_ids_fit else 6) * E
    # `edge_order`: both ends of the edges in the user's numbers (8), positions (4), and two sorts' results (8 each).
    ids = 28 * E if shape.edge_ids_fit and (community or shape.reordered) else 0
    return max(reversing, ids)


def _loading(shape: DataShape, *, row_normalise: bool) -> dict[str, int]:
    """Components at the peak of loading."""
    V, E, F = shape.num_vertices, shape.num_edges, shape.num_features
    whole = _loaded(shape)
    rows = {"graph": whole["graph"]}
    if shape.origin == "generated":
        working = working_bytes(Size(V, E, F, shape.num_classes or 1), min(cores(), 16))
        with_features = rows | {"features": whole["features"]}
        moments = [
            rows | {WORK: working.rows},
            with_features | {WORK: working.features},
            whole | {WORK: working.labels},
        ]
    else:
        if shape.graph_in == "mapped":
            # Stored rows are used directly; degrees are counted in spans of a million edges, in 64 bits.
            work = 8 * min(E, max(SPAN, V)) + 40 * V
        else:
            # Rows by source (4) and a carried byte, in addition to the sorted ones. Published graphs are made symmetric
            # from both directions.
            work = (32 if shape.origin == "published" else 6) * E + 40 * V
        moments = [rows | {WORK: work + shape.stored_bytes}, whole | {WORK: shape.stored_bytes + 24 * V}]
    if row_normalise:
        # `features / sum` is a new array, and the data set with the old one is freed only after that.
        moments.append(whole | {WORK: 4 * V * F})
    return max(moments, key=_sum)


def _ordering(shape: DataShape) -> dict[str, int]:
    """Components at the peak of ordering: finding communities, or making the reordered data set."""
    V, E = shape.num_vertices, shape.num_edges
    loaded, found = _loaded(shape), communities(shape)
    while_found = _without(loaded, "features") if shape.features_in == "mapped" else loaded
    reordered = _loaded(shape, reordered=True)
    # `graph.reorder`: entries, keys and their sources, for a span of edges on each thread; the order and its inverse,
    # degrees and checks.
    work = 28 * SPAN * min(os.cpu_count() or 1, 8, -(-E // SPAN)) + 40 * V
    return max(_added(while_found, {WORK: found}), _added(loaded, reordered, {WORK: work}), key=_sum)


def communities(shape: DataShape) -> int:
    """Bytes for finding communities: a sample of 12 neighbours of each vertex, cut by METIS or contracted first.

    See `graph.partition.locality`.
    """
    V, E = shape.num_vertices, shape.num_edges
    degree = E / V if V else 0.0
    sampled = 12 * V * -math.expm1(-degree / 12)  # fewer from rows with few neighbours; for a skewed law of degrees
    # Both directions of each sampled pair, once if it was sampled from both ends (a share of sampled / E of them).
    entries = 2 * sampled - (sampled * sampled / E if shape.symmetric and E else 0.0)
    fixed = 40 * V + round(8 * sampled)  # the sampled pairs
    if V > MOST_FOR_METIS:
        contracted = min(entries, _CONTRACTED)
        return round(max(_CONTRACTING * entries, 4 * entries + 8 * 15 * contracted)) + fixed
    # METIS counts in 64 bits. Per entry it holds neighbour and weight, those of the coarser graphs (as much again), and the
    # halves of recursive bisection: 15 numbers, measured on graphs of 4 to 50 edges per vertex.
    return round(8 * 15 * entries) + fixed


def _added(*parts: Mapping[str, int]) -> dict[str, int]:
    """Add up sizes by component, in order of first occurrence."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _sum(parts: Mapping[str, int]) -> int:
    return sum(parts.values())
