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

from dorylax.graph.partition.locality import MOST_FOR_METIS
from dorylax.memory.shapes import DataShape

LIBRARIES = "interpreter and libraries"
CODE = "compiled code"
HEAP = "freed, kept by the heap"
WORK = "working memory"

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
    """

    hoist: XlaBytes
    step: XlaBytes
    evaluation: XlaBytes
    parameters: int


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
    compiled: Compiled | None,
) -> tuple[Phase, ...]:
    """The phases of a run, in order.

    Args:
        shape: the data set.
        process: of the process.
        community: whether vertices are reordered by community.
        row_normalise: whether features are scaled after loading.
        loads: whether the data set is still to be loaded.
        compiled: None where that is not known: what comes after ordering then counts with the arrays alone.
    """
    base = {LIBRARIES: process.libraries}
    found = [Phase("load", _added(base, _loading(shape, row_normalise=row_normalise)))] if loads else []
    loaded = shape.copy()
    if community:
        found.append(Phase("order", _added(base, loaded, _ordering(shape))))
    arrays = _added(base, loaded, *_copies(shape, community=community))
    if compiled is None:
        return (*found, Phase("hoist", arrays))
    arrays = _added(arrays, {CODE: process.code + _RUNNING, "parameters": compiled.parameters})
    if community:
        arrays[HEAP] = _left(_communities(shape.num_vertices, shape.num_edges, symmetric=shape.symmetric)[WORK])
    kept = {"kept from epoch to epoch": compiled.hoist.output}
    found.append(Phase("hoist", _added(arrays, kept, _working(compiled.hoist.temporary))))
    for name, call in (("step", compiled.step), ("evaluation", compiled.evaluation)):
        found.append(Phase(name, _added(arrays, kept, _working(call.temporary + call.output))))
    return tuple(found)


def _working(size: int) -> dict[str, int]:
    return {WORK: round(_PACKED * size)}


def _left(work: int) -> int:
    """Of METIS's many small arrays, what the C library does not give back to the system.

    Up to 64 MiB, twice glibc's largest `M_MMAP_THRESHOLD`; measured as a fifth of them where that is less.
    """
    return min(64 * 2**20, work // 5)


def _copies(shape: DataShape, *, community: bool) -> Iterator[dict[str, int]]:
    """The copies of the data set that training holds besides the one that was loaded, which its owner keeps."""
    if community:
        yield shape.copy(reordered=True)
    # `jax.device_put` copies NumPy's arrays: it shares only those on multiples of 64 bytes, and large ones lie 16 after one.
    # With the masks go the vertices' weights in the loss, float32.
    yield _added(shape.copy(reordered=True if community else None), {"masks": 4 * shape.num_vertices})


def _loading(shape: DataShape, *, row_normalise: bool) -> dict[str, int]:
    """The largest of the moments of loading."""
    moments = [*_generating(shape)] if shape.origin == "generated" else [*_reading(shape)]
    if row_normalise:
        # `features / sum` is a new array, and the data set with the old one is returned to nobody only after that.
        moments.append(_added(shape.copy(), {WORK: 4 * shape.num_vertices * shape.num_features}))
    return max(moments, key=lambda parts: sum(parts.values()))


def _generating(shape: DataShape) -> Iterator[dict[str, int]]:
    V, E = shape.num_vertices, shape.num_edges
    whole = shape.copy()
    whole.pop("order of reversed edges", None)  # made when the graph is first used
    threads = min(os.cpu_count() or 1, 16)
    blocks = max(1, math.isqrt(E >> 16))  # of rows, as `block_model` cuts them: each thread sorts a block's 64-bit keys
    drawing = 8 * E * min(threads, blocks) // blocks
    # Per vertex: community 4, propensity 8, cell 8, argsort of cells 8 + 4, and a list of 4 bytes for each unit of
    # propensity, which are 10.8 on average (Pareto, density θ^-2.5 from 4 to 400).
    yield {"graph": whole["graph"], WORK: 75 * V + drawing}
    # Features are filled by blocks of 4,096 rows, each from 64-bit words by a few steps of 8 bytes.
    yield _added(
        {name: whole[name] for name in ("graph", "features")}, {WORK: threads * 4096 * shape.num_features * 32}
    )
    # The split sorts 64-bit random words and labels, with the positions of both.
    yield _added(whole, {WORK: 40 * V})


def _reading(shape: DataShape) -> Iterator[dict[str, int]]:
    V, E = shape.num_vertices, shape.num_edges
    whole = shape.copy()
    graph = {name: size for name, size in whole.items() if "graph" in name or "edges" in name}
    # Rows by source are read (4), counting sorts bring them by target and, to see whether they are symmetric, back: indices,
    # positions and a carried array (4 each) beside the result. Published graphs are made symmetric, from both directions.
    sorting = (32 if shape.origin == "published" else 16) * E + 24 * V
    yield _added(graph, {WORK: sorting + shape.stored_bytes})
    yield _added(whole, {WORK: shape.stored_bytes + 8 * V})


def _ordering(shape: DataShape) -> dict[str, int]:
    """The larger of finding communities and of making the reordered data set."""
    V, E = shape.num_vertices, shape.num_edges
    return max(_communities(V, E, symmetric=shape.symmetric), _reordering(shape), key=lambda parts: sum(parts.values()))


def _communities(V: int, E: int, *, symmetric: bool) -> dict[str, int]:
    """A sample of 12 neighbours of each vertex, cut by METIS or contracted first; see `graph.partition.locality`."""
    degree = E / V if V else 0.0
    sampled = 12 * V * -math.expm1(-degree / 12)  # rows with fewer neighbours give fewer; a skewed law of degrees
    # Both directions of each sampled pair, once where it was sampled from both ends (a share of sampled / E of them).
    entries = 2 * sampled - (sampled * sampled / E if symmetric and E else 0.0)
    fixed = 40 * V + round(8 * sampled)  # the pairs as they were sampled
    if V > MOST_FOR_METIS:
        contracted = min(entries, _CONTRACTED)
        return {WORK: round(max(_CONTRACTING * entries, 4 * entries + 8 * 15 * contracted)) + fixed}
    # METIS counts in 64 bits. Per entry it holds neighbour and weight, those of the coarser graphs (as much again), and
    # the halves that recursive bisection cuts them into: 15 numbers, measured over graphs of 4 to 50 edges a vertex.
    return {WORK: round(8 * 15 * entries) + fixed}


def _reordering(shape: DataShape) -> dict[str, int]:
    """New features, labels and masks, and the edges through two counting sorts."""
    rows = {name: size for name, size in shape.copy().items() if name in ("features", "labels", "masks")}
    # `graph.reorder`: targets (4), both ends of the edges in the new order (8), their positions (4), and the two sorts'
    # results, each with neighbours and positions (8): the second is the new graph.
    return _added(rows, {WORK: 32 * shape.num_edges + 24 * shape.num_vertices})


def _added(*parts: Mapping[str, int]) -> dict[str, int]:
    """Sums by name, in the order in which names first come."""
    total: dict[str, int] = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total
