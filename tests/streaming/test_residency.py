"""What stays in memory, by arithmetic alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from flax import nnx

from dorylax.layers import GAT, GCN, GraphSAGE
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.passes import optimise
from dorylax.program.program import Program, trace
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.streaming import residency
from dorylax.streaming.layout import INDEX, Layout, Value
from dorylax.streaming.residency import even_units, lay_out, unit_rows, units_for
from dorylax.streaming.units import MOST_ENTRIES

V, E, F, H, C = 65_600_000, 3_600_000_000, 32, 16, 50
MAPPED = frozenset({"features", INDEX})


def program() -> Program:
    spec = DataSpec(
        (RowSpec("vertex", (F,), name="features"),), RowSpec("vertex", (), "int32", "labels"), symmetric=True
    )
    return optimise(trace(GCN(F, H, C, dropout=0.0, rngs=nnx.Rngs(0)), spec, metrics=None))


@pytest.fixture(scope="module")
def friendster() -> Program:
    return program()


def layout(friendster: Program, gib: float) -> Layout:
    return lay_out(friendster, even_units(V, E, friendster), round(gib * 2**30), symmetric=True, mapped=MAPPED)


def in_whole(found: Layout) -> dict[Value, frozenset[int]]:
    return {value: units for value, units in found.resident.items() if len(units) == len(found.units)}


def in_part(found: Layout) -> dict[Value, frozenset[int]]:
    return {value: units for value, units in found.resident.items() if len(units) < len(found.units)}


def test_friendster_in_ten_gibibytes(friendster: Program) -> None:
    """The study's epoch: hidden rows are whole, one after the other; Â·X and index are read; logits never exist."""
    found = layout(friendster, 10)
    assert not found.blocked or found.once.whole
    assert found.index_reads == 2
    read, written = found.traffic
    index, hidden, features = 4 * E, 4 * V * H, 4 * V * F
    assert 2 * index <= read <= 2 * index + 3 * features + 3 * hidden + 20 * V
    assert written <= 3 * hidden
    assert found.bytes <= 10 * 2**30


def test_with_less_memory_the_widest_is_gathered_in_blocks(friendster: Program) -> None:
    found = layout(friendster, 4)
    assert found.blocked
    assert found.bytes <= 4 * 2**30
    assert found.index_reads + sum(len(sweep.blocked) for sweep in found.once.sweeps) > 2


def test_memory_that_is_left_is_not_for_what_is_made_in_blocks(friendster: Program) -> None:
    """It stays in the files that it is written to, block after block."""
    found = layout(friendster, 4)
    made = {var for sweep in found.epoch.sweeps for step in sweep.blocked for var in step.writes}
    assert made
    assert not made & residency._reads(found).keys()


def test_with_plenty_all_is_in_memory(friendster: Program) -> None:
    found = layout(friendster, 100)
    assert found.traffic == (0, 0)
    assert INDEX in found.resident
    assert not found.blocked


def test_what_does_not_fit_is_in_memory_in_part(friendster: Program) -> None:
    """Of Â·X, which is read twice, as much as is left holds: a plan of 12 GiB left two of them."""
    found = layout(friendster, 12)
    ((value, units),) = in_part(found).items()
    sizes = [found.size_of_unit(value, unit) for unit in range(len(found.units))]
    assert 12 * 2**30 - max(sizes) < found.bytes <= 12 * 2**30
    nothing = dataclasses.replace(found, resident=in_whole(found))
    saved = sum(sizes[unit] for unit in units)
    assert found.traffic[0] == nothing.traffic[0] - 2 * saved
    assert found.scratch_bytes == nothing.scratch_bytes - saved
    assert found.lasting_bytes == nothing.lasting_bytes + saved
    share = len(units) / len(sizes)
    for count in (100, 500, len(sizes)):
        assert abs(sum(unit < count for unit in units) - share * count) <= 1, "a sweep reads all the time"


def test_more_memory_never_moves_more(friendster: Program) -> None:
    """What is not written need not be read again; so it is bytes in both directions that a plan saves."""
    moved = [sum(layout(friendster, gib).traffic) for gib in (4, 6, 8, 12, 16, 24, 32, 64)]
    assert moved == sorted(moved, reverse=True)


def test_too_little(friendster: Program) -> None:
    with pytest.raises(SplitError, match=r"GCN takes \S+ bytes .* and 107,374,182 are left"):
        layout(friendster, 0.1)
    enough = least(friendster)
    assert layout(friendster, enough / 2**30).bytes <= enough
    with pytest.raises(SplitError) as caught:
        layout(friendster, (enough - 1) / 2**30)
    assert caught.value.missing == 1


def least(friendster: Program) -> int:
    """Bytes, as errors say what is missing: of the parts of a program only that of the first that does not fit."""
    size = 100 << 20
    while True:
        try:
            layout(friendster, size / 2**30)
        except SplitError as error:
            size += error.missing
        else:
            return size


def test_edges_from_labelled_vertices_are_kept_apart(friendster: Program) -> None:
    def planned(gib: float, edges: int | None) -> Layout:
        units = even_units(V, E, friendster)
        options = {"symmetric": True, "mapped": MAPPED, "labelled_edges": edges}
        return lay_out(friendster, units, round(gib * 2**30), **options)

    # Of what is in memory in part there is less beside what is kept apart: not what is counted here.
    plans = [planned(10, edges) for edges in (None, E // 2)]
    plain, apart = (dataclasses.replace(plan, resident=in_whole(plan)) for plan in plans)
    index, kept = 4 * E, 4 * (V + E // 2 + E // 2)
    assert apart.traffic[0] == plain.traffic[0] - 2 * index + kept
    assert apart.scratch_bytes == plain.scratch_bytes + kept
    assert apart.traffic_of_once == (plain.traffic_of_once[0] + index, plain.traffic_of_once[1] + kept)
    assert apart.index_reads == plain.index_reads
    assert planned(64, E // 2).traffic == (0, 0)
    assert planned(64, E // 2).scratch_bytes == 0
    assert planned(4, E // 2).bytes <= 4 * 2**30


def test_data_in_memory_are_not_counted_again(friendster: Program) -> None:
    units = even_units(V, E, friendster)
    found = lay_out(friendster, units, 100 << 30, symmetric=True, mapped=frozenset())
    assert INDEX not in found.resident


def test_units_have_one_number_of_rows_but_for_dense_ones(friendster: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "most_entries", lambda _: 20)
    degrees = [2] * 20 + [30] * 4 + [2] * 20
    found = units_for(np.concatenate([[0], np.cumsum(degrees)]), friendster)
    sizes = np.diff(found.vertices)
    assert sizes.sum() == 44
    assert max(np.diff(found.edges)) <= 40
    assert list(sizes[:3]) == [4, 4, 4]


def test_units_are_the_same_whatever_there_is(friendster: Program) -> None:
    assert unit_rows(friendster) == ((16 << 20) // (4 * C), MOST_ENTRIES)
    assert [len(layout(friendster, gib).units) for gib in (4, 100)] == [-(-V // (MOST_ENTRIES * V // E))] * 2


def max_program() -> Program:
    spec = DataSpec(
        (RowSpec("vertex", (300,), name="features"),), RowSpec("vertex", (), "int32", "labels"), symmetric=True
    )
    model = GraphSAGE(300, 512, 25, aggregation="max", rngs=nnx.Rngs(0))
    return optimise(trace(model, spec, metrics=None))


def test_blocks_are_as_wide_as_fits() -> None:
    """A block too narrow for what was left of the memory read the index 500 times."""
    program = max_program()
    units = even_units(293_480, 10_000_000, program)
    found = lay_out(program, units, 900 << 20, symmetric=True, mapped=MAPPED, threads=3)
    assert found.blocked
    assert found.filed, "what is read in order next comes from a file, and leaves its memory to a block"
    assert found.index_reads <= 6
    assert found.bytes <= 900 << 20
    reads = [
        lay_out(program, units, mebibytes << 20, symmetric=True, mapped=MAPPED, threads=3).index_reads
        for mebibytes in (400, 600, 900, 1500, 3000)
    ]
    assert reads == sorted(reads, reverse=True)


def test_sums_at_sources_are_made_in_blocks() -> None:
    spec = DataSpec(
        (RowSpec("vertex", (300,), name="features"),), RowSpec("vertex", (), "int32", "labels"), symmetric=True
    )
    program = optimise(trace(GAT(300, 32, 25, rngs=nnx.Rngs(0)), spec, metrics=None))
    units = even_units(293_480, 10_000_000, program)
    found = lay_out(program, units, 600 << 20, symmetric=True, mapped=MAPPED, threads=3)
    blocked = [step for sweep in found.epoch.sweeps for step in sweep.blocked]
    assert any(step.kind == "push" for step in blocked)
    rows = 4 * 293_480 * 256
    assert found.bytes <= 600 << 20
    assert found.bytes < 2 * rows + (100 << 20), "rows and their gradients are not whole at once"
