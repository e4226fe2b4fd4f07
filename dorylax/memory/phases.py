"""What each phase of a run on one machine holds at its peak: one formula for each, with its reason.

Everything is in bytes. V, E, F, C are the data set's vertices, directed edges, features and classes. Formulas count arrays
that grow with V or E; what does not is part of the libraries. `benchmarks/memory.py` holds them against measured peaks.
"""

from __future__ import annotations

import dataclasses
import math
import os
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

# Beside what compiling leaves: threads of XLA and of the native kernels, and their stacks, once functions run.
_RUNNING = 32 * 2**20
# Beside XLA's assignment: operands that matrix products pack for themselves. Measured 2 … 14 % of the temporaries.
_PACKED = 1.07
# Bytes for each sampled entry while entries are joined or contracted, and entries that METIS is left with after that:
# 400,000 clusters with 32 neighbours each, a few more where both ends did not choose each other.
_CONTRACTING = 64
_CONTRACTED = 400_000 * 36


@final
@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase at its peak.

    Attributes:
        name: "load", "order", "hoist", "step" or "evaluation".
        parts: bytes by what they hold.
    """

    name: str
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """All of it, in bytes."""
        return sum(self.parts.values())


class XlaBytes(NamedTuple):
    """What a call of a compiled function allocates, by XLA's buffer assignment.

    Attributes:
        temporary: while it runs.
        output: results that take no argument's place.
    """

    temporary: int
    output: int


@final
@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiled functions of a run take.

    Attributes:
        hoist: of what is computed once; its output are the arrays kept.
        step: of a training step.
        evaluation: of an evaluation.
        parameters: parameters, optimizer's and model's state on the device, and the copies of parameters on the host.
        reads_features: whether a step reads the features, or only what is kept of them.
    """

    hoist: XlaBytes
    step: XlaBytes
    evaluation: XlaBytes
    parameters: int
    reads_features: bool = True


class Process(NamedTuple):
    """What a process holds whatever the data: the interpreter with the libraries, and what compiling adds to it."""

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
    """The phases of a run, in order.

    Args:
        shape: the data set.
        process: of the process.
        community: whether vertices are reordered by community.
        row_normalise: whether features are scaled after loading.
        loads: whether the data set is still to be loaded; otherwise its storage is as it is.
        orders: whether it is still to be reordered, where it is.
        compiled: None where that is not known: what comes after ordering then counts with the arrays alone.
    """
    base = {LIBRARIES: process.libraries}
    found = [Phase("load", _added(base, _loading(shape, row_normalise=row_normalise)))] if loads else []
    if loads and row_normalise:
        shape = dataclasses.replace(shape, features_in="aligned")
    if community and orders:
        # A run that is near the limit has compiled its functions before, to know that it fits.
        found.append(Phase("order", _added(base, {CODE: process.code}, _ordering(shape))))
    arrays = _added(base, _trained_on(shape, community=community))
    first_use = _first_use(shape, community=community)
    if compiled is None:
        return (*found, Phase("hoist", _added(arrays, {WORK: first_use})))
    arrays = _added(arrays, {CODE: process.code + _RUNNING, "parameters": compiled.parameters})
    arrays["kept from epoch to epoch"] = compiled.hoist.output
    found.append(Phase("hoist", _added(arrays, {WORK: max(_packed(compiled.hoist.temporary), first_use)})))
    # Given back before the first step and after each evaluation.
    leaves = shape.features_in == "mapped" and not community and not compiled.reads_features
    during = {name: size for name, size in arrays.items() if not (leaves and name == "features")}
    for name, held, call in (("step", during, compiled.step), ("evaluation", arrays, compiled.evaluation)):
        found.append(Phase(name, _added(held, {WORK: _packed(call.temporary + call.output)})))
    return tuple(found)


def _packed(size: int) -> int:
    return round(_PACKED * size)


def _loaded(shape: DataShape) -> dict[str, int]:
    """The data set as it is loaded: the reverse direction and the order of edges are made when training begins."""
    return _without_first_use(shape.copy())


def _without_first_use(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name not in _FIRST_USE}


def _trained_on(shape: DataShape, *, community: bool) -> dict[str, int]:
    """The data set while it is trained on: as it was loaded, which its owner keeps, in order, and as JAX holds it."""
    V = shape.num_vertices
    loaded = _loaded(shape)
    whole = shape.copy(reordered=True if community else None)
    first_use = {name: size for name, size in whole.items() if name in _FIRST_USE}
    if community:
        # JAX takes the reordered arrays as they are. Of the loaded ones, those that are mapped were given back.
        loaded = {name: size for name, size in loaded.items() if shape.storage(name) != "mapped"}
        more = _without_first_use(whole)
    else:
        more = {name: size for name, size in loaded.items() if shape.storage(name) == "elsewhere"}
        more = {name: size for name, size in more.items() if name not in ("masks", "vertex ids")}
    if not shape.symmetric and shape.edge_ids_fit:
        # Arrays of SciPy, which JAX copies. Where edges have no ids, the graph that they were made for is gone.
        more = _added(more, {name: size for name, size in first_use.items() if name != "edge order"})
    # On the device are the vertices' ids, all masks in one array, and the vertices' weights in the loss, float32.
    return _added(loaded, more, first_use, {"vertex ids": whole.get("vertex ids", 0), "masks": 7 * V})


def held(shape: DataShape, *, ordered: bool) -> int:
    """What a loaded data set itself holds, where nothing that is mapped is resident.

    Args:
        shape: the data set.
        ordered: whether it is there in order of communities too.
    """
    loaded = {name: size for name, size in _loaded(shape).items() if shape.storage(name) != "mapped"}
    return _sum(loaded) + (_sum(_without_first_use(shape.copy(reordered=True))) if ordered else 0)


def _first_use(shape: DataShape, *, community: bool) -> int:
    """Working memory of making what a graph computes when it is first used."""
    E = shape.num_edges
    # `transpose`: with ids the carried positions (4) beside the result; without, the result, and a byte carried and moved.
    reversing = 0 if shape.symmetric else (4 if shape.edge_ids_fit else 6) * E
    # `edge_order`: both ends of the edges as the user calls them (8), positions (4), and two sorts' results (8 each).
    ids = 28 * E if shape.edge_ids_fit and (community or shape.reordered) else 0
    return max(reversing, ids)


def _loading(shape: DataShape, *, row_normalise: bool) -> dict[str, int]:
    """The largest of the moments of loading."""
    moments = [*_generating(shape)] if shape.origin == "generated" else [*_reading(shape)]
    if row_normalise:
        # `features / sum` is a new array, and the data set with the old one is returned to nobody only after that.
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
        # Rows are used as they are stored; degrees are counted in spans of a million edges, in 64 bits.
        graph = 8 * min(E, max(SPAN, V)) + 40 * V
    else:
        # Rows by source (4) and a carried byte, both beside the sorted ones. Published graphs are made symmetric, from
        # both directions.
        graph = (32 if shape.origin == "published" else 6) * E + 40 * V
    yield {"graph": whole["graph"], WORK: graph + shape.stored_bytes}
    yield _added(whole, {WORK: shape.stored_bytes + 24 * V})


def _ordering(shape: DataShape) -> dict[str, int]:
    """The larger of finding communities and of making the reordered data set."""
    V, E = shape.num_vertices, shape.num_edges
    loaded, found = _loaded(shape), communities(shape)
    while_found = {
        name: size for name, size in loaded.items() if not (name == "features" and shape.features_in == "mapped")
    }
    reordered = _without_first_use(shape.copy(reordered=True))
    # `graph.reorder`: entries, keys and what they are made of, for a span of edges on each thread; the order and its
    # inverse, degrees and checks.
    work = 28 * SPAN * min(os.cpu_count() or 1, 8, -(-E // SPAN)) + 40 * V
    return max(_added(while_found, {WORK: found}), _added(loaded, reordered, {WORK: work}), key=_sum)


def communities(shape: DataShape) -> int:
    """What finding communities takes: a sample of 12 neighbours of each vertex, cut by METIS or contracted first.

    See `graph.partition.locality`.
    """
    V, E = shape.num_vertices, shape.num_edges
    degree = E / V if V else 0.0
    sampled = 12 * V * -math.expm1(-degree / 12)  # rows with fewer neighbours give fewer; a skewed law of degrees
    # Both directions of each sampled pair, once where it was sampled from both ends (a share of sampled / E of them).
    entries = 2 * sampled - (sampled * sampled / E if shape.symmetric and E else 0.0)
    fixed = 40 * V + round(8 * sampled)  # the pairs as they were sampled
    if V > MOST_FOR_METIS:
        contracted = min(entries, _CONTRACTED)
        return round(max(_CONTRACTING * entries, 4 * entries + 8 * 15 * contracted)) + fixed
    # METIS counts in 64 bits. Per entry it holds neighbour and weight, those of the coarser graphs (as much again), and
    # the halves that recursive bisection cuts them into: 15 numbers, measured over graphs of 4 to 50 edges a vertex.
    return round(8 * 15 * entries) + fixed


def _added(*parts: Mapping[str, int]) -> dict[str, int]:
    """Sums by name, in the order in which names first come."""
    total: dict[str, int] = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


def _sum(parts: Mapping[str, int]) -> int:
    return sum(parts.values())
