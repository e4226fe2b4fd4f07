"""Peak memory of each phase of a run on one machine: one formula per phase, with its reason.

All sizes are in bytes. V, E, F, C are the data set's vertices, directed edges, features and classes. Formulas count arrays
that grow with V or E; all others belong to the libraries. `benchmarks/memory.py` compares the formulas with measured peaks.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple, final

from dorylax.graph.data_shape import DataShape
from dorylax.graph.datasets.base import Size
from dorylax.graph.datasets.communities import working_bytes
from dorylax.graph.partition.locality import MOST_FOR_METIS
from dorylax.graph.rows import SPAN
from dorylax.machine import cores

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


@final
@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase, or a kind of process, at its peak.

    Attributes:
        name: "load", "order", "hoist", "step" or "evaluation"; with hosts also "cut", "driver" and kinds of processes.
        parts: Bytes by component.
    """

    name: str
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """Sum of all components, in bytes."""
        return sum(self.parts.values())


class XlaBytes(NamedTuple):
    """Bytes that a call of a compiled function holds, and bytes of results that do not reuse an argument's buffer."""

    temporary: int
    output: int


@final
@dataclasses.dataclass(frozen=True)
class Compiled:
    """Memory of the compiled functions of a run.

    Attributes:
        hoist: Computation of values that are the same in every epoch; its output is the arrays kept.
        step: Training step.
        evaluation: Evaluation.
        parameters: Bytes of parameters, optimizer's and model's state on the device, and copies of parameters on the host.
        reads_features: Whether a step reads the features, instead of only kept values.
    """

    hoist: XlaBytes
    step: XlaBytes
    evaluation: XlaBytes
    parameters: int
    reads_features: bool = True


class Process(NamedTuple):
    """Memory of a process without data: the interpreter with the libraries, and the memory added by compilation."""

    libraries: int
    code: int


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
    arrays["kept from epoch to epoch"] = compiled.hoist.output
    found.append(Phase("hoist", _added(arrays, {WORK: max(_packed(compiled.hoist.temporary), first_use)})))
    # Released before the first step and after each evaluation.
    leaves = shape.features_in == "mapped" and not community and not compiled.reads_features
    during = _without(arrays, "features") if leaves else arrays
    for name, held, call in (("step", during, compiled.step), ("evaluation", arrays, compiled.evaluation)):
        found.append(Phase(name, _added(held, {WORK: _packed(call.temporary + call.output)})))
    return tuple(found)


def _packed(size: int) -> int:
    return round(_PACKED * size)


def _without(sizes: Mapping[str, int], *names: str) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name not in names}


def _loaded(shape: DataShape) -> dict[str, int]:
    """Components of the loaded data set, without the reverse direction and the edge order, which training creates."""
    return _without(shape.copy(), *_FIRST_USE)


def _trained_on(shape: DataShape, *, community: bool) -> dict[str, int]:
    """Components during training: the loaded data set, which its owner keeps, the reordered one, and JAX's copies."""
    V = shape.num_vertices
    loaded = _loaded(shape)
    whole = shape.copy(reordered=True if community else None)
    first_use = {name: size for name, size in whole.items() if name in _FIRST_USE}
    if community:
        # JAX uses the reordered arrays without copies. Mapped arrays of the loaded data set were released.
        loaded = {name: size for name, size in loaded.items() if shape.storage(name) != "mapped"}
        more = _without(whole, *_FIRST_USE)
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
    return _sum(loaded) + (_sum(_without(shape.copy(reordered=True), *_FIRST_USE)) if ordered else 0)


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
    moments = [*_generating(shape)] if shape.origin == "generated" else [*_reading(shape)]
    if row_normalise:
        # `features / sum` is a new array, and the data set with the old one is freed only after that.
        moments.append(_added(_loaded(shape), {WORK: 4 * shape.num_vertices * shape.num_features}))
    return max(moments, key=_sum)


def _generating(shape: DataShape) -> Iterator[dict[str, int]]:
    V, E = shape.num_vertices, shape.num_edges
    whole = _loaded(shape)
    size = Size(V, E, shape.num_features, shape.num_classes or 1)
    working = working_bytes(size, min(cores(), 16))
    yield {"graph": whole["graph"], WORK: working.rows}
    yield _added({name: whole[name] for name in ("graph", "features")}, {WORK: working.features})
    yield _added(whole, {WORK: working.labels})


def _reading(shape: DataShape) -> Iterator[dict[str, int]]:
    V, E = shape.num_vertices, shape.num_edges
    whole = _loaded(shape)
    if shape.graph_in == "mapped":
        # Stored rows are used directly; degrees are counted in spans of a million edges, in 64 bits.
        graph = 8 * min(E, max(SPAN, V)) + 40 * V
    else:
        # Rows by source (4) and a carried byte, in addition to the sorted ones. Published graphs are made symmetric from
        # both directions.
        graph = (32 if shape.origin == "published" else 6) * E + 40 * V
    yield {"graph": whole["graph"], WORK: graph + shape.stored_bytes}
    yield _added(whole, {WORK: shape.stored_bytes + 24 * V})


def _ordering(shape: DataShape) -> dict[str, int]:
    """Components at the peak of ordering: finding communities, or making the reordered data set."""
    V, E = shape.num_vertices, shape.num_edges
    loaded, found = _loaded(shape), communities(shape)
    while_found = _without(loaded, "features") if shape.features_in == "mapped" else loaded
    reordered = _without(shape.copy(reordered=True), *_FIRST_USE)
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
