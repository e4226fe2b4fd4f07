"""What is streamed computes what the model does: loss and gradients of the oracle, and the same bits from every layout."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import itertools
import weakref
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from support import zoo
from support.oracle import assert_same, exact_gradients, oracle

from dorylax.graph.compressed import as_int64
from dorylax.graph.graph import Graph
from dorylax.layers import GAT, GCN, GIN, GraphSAGE
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts
from dorylax.program.model.kinds import take_apart
from dorylax.program.passes import optimise
from dorylax.program.program import Program, trace
from dorylax.program.tracing.arguments import RunData, StepResult, training_weights
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.streaming import spare
from dorylax.streaming.data import StreamData
from dorylax.streaming.executor import StreamedProgram
from dorylax.streaming.layout import INDEX, Layout
from dorylax.streaming.residency import lay_out
from dorylax.streaming.schedule import schedule
from dorylax.streaming.spare import SpareArrays
from dorylax.streaming.units import Slices, cut


def layout_of(program: Program, data: RunData, rows: int, budget: int = 1 << 40) -> Layout:
    """As if all inputs lay in files, with the edges from labelled vertices kept apart where that may be."""
    names = {entry.name for entry in program.traced.inputs} | {INDEX}
    offsets, symmetric = as_int64(data.graph.incoming.offsets), data.graph.symmetric
    labelled = np.asarray(data.weights) != 0
    edges = np.diff(offsets)[labelled].sum()
    kept_apart = int(edges) if symmetric and not labelled.all() else None
    options = {"symmetric": symmetric, "mapped": frozenset(names), "labelled_edges": kept_apart}
    return lay_out(program, cut(offsets, rows, 1 << 30), budget, **options)


def tightest(program: Program, data: RunData, rows: int) -> int:
    """The least budget that will do, as the refusal states it; one byte less is refused."""
    with pytest.raises(SplitError) as refused:
        layout_of(program, data, rows, 0)
    least = refused.value.missing
    with pytest.raises(SplitError):
        layout_of(program, data, rows, least - 1)
    return least


def streamed(layout: Layout, data: RunData, scratch: Path) -> StreamedProgram:
    given = StreamData(data.graph, [np.asarray(x) for x in data.inputs], np.asarray(data.labels), data.weights != 0)
    return StreamedProgram(layout, given, scratch)


ROWS = 3  # of a unit; the messy graph has 20
FEW = (
    "GATConv",
    "SAGEConv max",
    "GCN deep",
    "GATv2",
    "GIN deep",
    "APPNP",
    "GCNII",
    "MPNN",
    "sharing",
    "APPNP as a scan",
    "linen GCN",
)
"""One model of each family; the others are as `exhaustive`."""
every_kind = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FEW else [pytest.mark.exhaustive]) for name in zoo.ALL]
)


@functools.lru_cache(maxsize=len(FEW))
def case_of(name: str) -> tuple[ModelParts, RunData, Program, Any]:
    """A model, its data and its program, and the loss and gradients that any streaming must give."""
    case = zoo.ALL[name]
    parts, data = zoo.parts_of(case, "float32"), zoo.data_of(case, "float32")
    program = optimise(trace(parts, zoo.spec_of(case, "float32")))
    return parts, data, program, oracle(parts, data, seed=1, epoch=2)


def step(layout: Layout, parts: ModelParts, data: RunData, scratch: Path, epoch: int = 2) -> StepResult:
    with contextlib.closing(streamed(layout, data, scratch)) as program:
        return program.step(parts.params, parts.streams, parts.state, seed=1, epoch=epoch)


def assert_equal(one: StepResult, other: StepResult) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@every_kind
def test_models_of_all_kinds(name: str, tmp_path: Path) -> None:
    parts, data, program, expected = case_of(name)
    layout = layout_of(program, data, ROWS)
    found = step(layout, parts, data, tmp_path)
    assert_same(
        found, expected, "float32", exact=lambda: exact_gradients(parts, data, seed=1, epoch=2), with_zeros=True
    )
    tight = layout_of(program, data, ROWS, tightest(program, data, ROWS))
    assert_equal(step(tight, parts, data, tmp_path), found)
    assert not any(tmp_path.iterdir())  # names of files are gone at once


@every_kind
def test_units_of_several_slices(name: str, tmp_path: Path) -> None:
    parts, data, program, expected = case_of(name)
    layout = dataclasses.replace(layout_of(program, data, 8), slices=Slices(2, 4), threads=3)
    found = step(layout, parts, data, tmp_path)
    assert_same(
        found, expected, "float32", exact=lambda: exact_gradients(parts, data, seed=1, epoch=2), with_zeros=True
    )


def symmetric_data(num_vertices: int, num_edges: int, width: int, *, seed: int = 0) -> RunData:
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, num_vertices, (2, num_edges))
    graph = Graph.from_coo(*ends, num_vertices=num_vertices).symmetrise()
    labels = rng.integers(0, zoo.C, num_vertices).astype(np.int32)
    mask = rng.random(num_vertices) < 0.5
    x = rng.normal(size=(num_vertices, width)).astype(np.float32)
    return RunData(graph, (x,), labels, training_weights(mask))


def symmetric_program(parts: ModelParts, data: RunData) -> Program:
    spec = DataSpec(
        (RowSpec("vertex", (40,)),), RowSpec("vertex", (), "int32"), self_loops=data.graph.self_loops, symmetric=True
    )
    return optimise(trace(parts, spec))


SYMMETRIC = {
    "GCN": lambda rngs: GCN(40, 24, zoo.C, rngs=rngs),
    "GAT": lambda rngs: GAT(40, 8, zoo.C, heads=2, rngs=rngs),
    "SAGE max": lambda rngs: GraphSAGE(40, 24, zoo.C, aggregation="max", rngs=rngs),
    "GIN": lambda rngs: GIN(40, 24, zoo.C, rngs=rngs),
}


@pytest.mark.parametrize("name", SYMMETRIC)
def test_every_budget_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    data = symmetric_data(600, 3000, 40)
    parts = take_apart(SYMMETRIC[name](nnx.Rngs(0)), data.graph, *data.inputs)
    program = symmetric_program(parts, data)
    least = tightest(program, data, 25)
    slices = Slices(10, 60)  # some are cut where they have enough rows, others where they have enough edges
    layouts = [
        dataclasses.replace(layout_of(program, data, 25, budget), slices=slices)
        for budget in (1 << 40, 2 * least, least)
    ]
    ample, between, tight = layouts
    assert ample.traffic == (0, 0)
    assert tight.bytes < ample.bytes
    assert tight.traffic[0] > between.traffic[0] > 0
    assert tight.blocked
    if name == "GAT":
        steps = [step for sweep in tight.epoch.sweeps for step in sweep.blocked]
        assert any(step.kind == "push" for step in steps), "gradients of rows are added up at their sources in blocks"
    found = [step(layout, parts, data, tmp_path) for layout in layouts]
    assert_same(found[0], oracle(parts, data, seed=1, epoch=2), "float32", with_zeros=True)
    for other in found[1:]:
        assert_equal(other, found[0])


@pytest.mark.parametrize("name", ["GCN", "GIN"])
def test_every_budget_gives_the_same_bits_of_a_hub(name: str, tmp_path: Path) -> None:
    """Longer rows are summed in spans: a block must go through the same edges as a sweep, those from labelled vertices."""
    rng = np.random.default_rng(0)
    ends = np.concatenate([rng.integers(0, 2600, (2, 3000)), [np.zeros(2599, int), np.arange(1, 2600)]], axis=1)
    graph = Graph.from_coo(*ends, num_vertices=2600).symmetrise()
    some = symmetric_data(2600, 1, 40)
    data = RunData(graph, some.inputs, some.labels, some.weights)
    parts = take_apart(SYMMETRIC[name](nnx.Rngs(0)), data.graph, *data.inputs)
    program = symmetric_program(parts, data)
    whole = layout_of(program, data, 500)
    blocked = dict.fromkeys(whole.epoch.of_labelled, 7)
    assert blocked
    epoch = schedule(program, "epoch", symmetric=True, blocked=blocked)
    layout = dataclasses.replace(whole, epoch=epoch, blocked=blocked)
    assert_equal(step(layout, parts, data, tmp_path), step(whole, parts, data, tmp_path))


SHARES = {"GCN": 0.02, "GIN": 0.5, "SAGE mean": 1.0}


@pytest.mark.parametrize(
    ("name", "share"),
    [
        pytest.param(name, share, marks=[] if SHARES[name] == share else [pytest.mark.exhaustive])
        for name, share in itertools.product(SHARES, SHARES.values())
    ],
)
def test_what_only_the_loss_reads_is_gathered_for_labelled_vertices(name: str, share: float, tmp_path: Path) -> None:
    data = symmetric_data(600, 3000, 40)
    mask = np.random.default_rng(1).random(600) < share
    mask[200:300] = share == 1  # units without a label, and one with labels at its end alone
    mask[350 - 1] = True
    data = dataclasses.replace(data, weights=training_weights(mask))
    models = {**SYMMETRIC, "SAGE mean": lambda rngs: GraphSAGE(40, 24, zoo.C, rngs=rngs)}
    parts = take_apart(models[name](nnx.Rngs(0)), data.graph, *data.inputs)
    program = symmetric_program(parts, data)
    layout = dataclasses.replace(layout_of(program, data, 50), slices=Slices(16, 1 << 30), threads=3)
    with contextlib.closing(streamed(layout, data, tmp_path)) as running:
        running.traffic.edges = 0
        found = running.step(parts.params, parts.streams, parts.state, seed=1, epoch=2)
        gathered = running.traffic.edges
    assert_same(found, oracle(parts, data, seed=1, epoch=2), "float32", with_zeros=True)
    degrees = np.diff(as_int64(data.graph.incoming.offsets))
    sweeps = layout.epoch.sweeps
    assert sum(map(layout.epoch.for_labelled, sweeps)) == 1
    assert sum(map(layout.epoch.from_labelled, sweeps)) == 1
    some = 1 if share == 1 else 2
    whole = sum(map(layout.epoch.reads_index, sweeps)) - some
    assert gathered == whole * data.graph.num_edges + some * degrees[mask].sum()
    resident = {value: units for value, units in layout.resident.items() if value not in layout.apart}
    unkept = dataclasses.replace(layout, labelled_edges=None, resident=resident)
    assert_equal(step(unkept, parts, data, tmp_path), found)


def test_what_is_whole_takes_the_same_memory_in_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system clears every page that it gives out, which took a tenth of an epoch."""
    data = symmetric_data(20_000, 60_000, 40)
    parts = take_apart(GCN(40, zoo.C, zoo.C, rngs=nnx.Rngs(0)), data.graph, *data.inputs)
    layout = layout_of(symmetric_program(parts, data), data, 500)
    assert layout.labelled_edges is not None
    made = 0

    def counted(size: int) -> np.ndarray:
        nonlocal made
        made += 1
        return np.zeros(size, np.uint8)

    monkeypatch.setattr(spare, "anonymous", counted)
    with contextlib.closing(streamed(layout, data, tmp_path)) as program:
        counts = []
        for epoch in range(3):
            program.step(parts.params, parts.streams, parts.state, seed=1, epoch=epoch)
            counts.append(made)
    assert counts[0] == counts[1] == counts[2] > 1


@pytest.mark.parametrize("name", SYMMETRIC)
def test_values_in_files_between_their_gathers(name: str, tmp_path: Path) -> None:
    data = symmetric_data(600, 3000, 40)
    parts = take_apart(SYMMETRIC[name](nnx.Rngs(0)), data.graph, *data.inputs)
    spec = DataSpec(
        (RowSpec("vertex", (40,)),), RowSpec("vertex", (), "int32"), self_loops=data.graph.self_loops, symmetric=True
    )
    ample = layout_of(optimise(trace(parts, spec)), data, 25)
    filed = frozenset(var for var in ample.epoch.whole if var in ample.epoch.made and var not in ample.epoch.pushed)
    assert filed
    layout = dataclasses.replace(ample, filed=filed, resident={})
    assert layout.traffic[1] > dataclasses.replace(ample, resident={}).traffic[1]
    with contextlib.closing(streamed(layout, data, tmp_path)) as program:
        epochs = [program.step(parts.params, parts.streams, parts.state, seed=1, epoch=2) for _ in range(2)]
        read = program.traffic.read
    expected = step(ample, parts, data, tmp_path)
    for found in epochs:
        assert_equal(found, expected)
    assert read > 2 * 600 * 24


def test_what_is_let_go_of_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever traced the stages of a first epoch holds no rows of it."""
    data = symmetric_data(600, 3000, 40)
    parts = take_apart(SYMMETRIC["SAGE max"](nnx.Rngs(0)), data.graph, *data.inputs)
    program = symmetric_program(parts, data)
    layout = layout_of(program, data, 25, 2 * tightest(program, data, 25))
    assert layout.blocked
    clear, cleared = SpareArrays.clear, 0

    def watched(self: SpareArrays) -> None:
        nonlocal cleared
        memory = [weakref.ref(array.base) for array in self._spare]
        clear(self)
        assert not any(one() is not None for one in memory)
        cleared += len(memory)

    monkeypatch.setattr(SpareArrays, "clear", watched)
    gc.disable()
    try:
        step(layout, parts, data, tmp_path)
    finally:
        gc.enable()
    assert cleared


def test_blocks_of_columns_are_in_memory_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = symmetric_data(600, 3000, 40)
    parts = take_apart(SYMMETRIC["GCN"](nnx.Rngs(0)), data.graph, *data.inputs)
    program = symmetric_program(parts, data)
    layout = layout_of(program, data, 25, tightest(program, data, 25))
    gathered, blocks = StreamedProgram._gathered, []

    def watched(self: StreamedProgram, var: Any, block: slice | None) -> np.ndarray:
        array = gathered(self, var, block)
        if block is not None:
            there = [one for one in (block() for block in blocks) if one is not None]
            assert all(np.shares_memory(one, array) for one in there)
            blocks.append(weakref.ref(array))
        return array

    monkeypatch.setattr(StreamedProgram, "_gathered", watched)
    step(layout, parts, data, tmp_path)
    assert len(blocks) > 2
