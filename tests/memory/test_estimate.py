"""Phases add up, and the sentence says what they come to."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dorylax.graph.data_shape import DataShape
from dorylax.graph.partition.locality import MOST_FOR_METIS
from dorylax.machine import Limit
from dorylax.memory.estimate import Compiled, Estimate, Phase, Process, Remedy, gibibytes, machine_gibibytes
from dorylax.memory.phases import held, phases

_GIB = 2**30


def _totals(shape: DataShape, *, reads_features: bool = True, **options: bool) -> dict[str, int]:
    compiled = Compiled(800, 0, 10_000, 1_000, 5, reads_features)
    options = {"community": False, "row_normalise": False, **options}
    return {phase.name: phase.total for phase in phases(shape, Process(7, 3), compiled=compiled, **options)}


_V, _E, _F = 1000, 10_000, 16
_FEATURES, _ROWS = 4 * _V * _F, 8 * (_V + 1) + 4 * _E
_SMALL = 4 * _V + (3 + 7) * _V  # labels; masks on the host and, with weights, on the device
_RUNNING = 32 * 2**20
_BASE = 7 + 3 + 5 + 800 + _RUNNING  # libraries, code, parameters, what is kept


def _shape(**options: Any) -> DataShape:
    return DataShape(_V, _E, _F, 4, edge_ids=False, **options)


def test_what_xla_takes_as_it_is_is_there_once() -> None:
    aligned = _totals(_shape(features_in="aligned", graph_in="aligned"))
    assert aligned["hoist"] == _BASE + _FEATURES + _ROWS + _SMALL
    assert aligned["step"] - aligned["hoist"] == 10_700  # 7 % of what XLA assigns come on top
    assert aligned["evaluation"] - aligned["hoist"] == 1_070
    assert _totals(_shape(graph_in="aligned"))["hoist"] - aligned["hoist"] == _FEATURES + 4 * _V
    assert _totals(_shape(features_in="aligned"))["hoist"] - aligned["hoist"] == _ROWS


def test_mapped_arrays_leave_once_they_are_reordered() -> None:
    vertex_ids = 2 * 4 * _V
    for there, copies in (("mapped", 1), ("aligned", 2), ("elsewhere", 2)):
        found = _totals(_shape(features_in=there, graph_in=there), community=True)
        held = copies * (_FEATURES + _ROWS + 4 * _V) + (3 + 3 + 7) * _V
        assert found["hoist"] == _BASE + held + vertex_ids, there


def test_mapped_features_leave_while_steps_do_not_read_them() -> None:
    mapped = _shape(features_in="mapped", graph_in="mapped")
    read, kept = _totals(mapped), _totals(mapped, reads_features=False)
    assert read["step"] - kept["step"] == _FEATURES
    assert {**read, "step": 0} == {**kept, "step": 0}
    for other, community in ((_shape(features_in="aligned"), False), (mapped, True)):
        read, kept = (_totals(other, community=community, reads_features=reads) for reads in (True, False))
        assert read == kept


def test_ids_of_edges_are_there_once_and_reversed_rows_twice_where_they_have_ids() -> None:
    given, community = (_totals(_shape(), community=order)["hoist"] for order in (False, True))
    with_ids = DataShape(_V, _E, _F, 4)
    assert _totals(with_ids)["hoist"] - given == 4 * _E
    assert (
        _totals(with_ids, community=True)["hoist"] - community == 2 * 4 * _E + 28 * _E
    )  # and the sorts that find them
    directed = DataShape(_V, _E, _F, 4, symmetric=False)
    assert _totals(directed)["hoist"] - given == 2 * (_ROWS + 4 * _E) + 4 * _E
    assert _totals(_shape(symmetric=False))["hoist"] - given == _ROWS + 6 * _E


def test_a_data_set_that_is_ordered_is_not_ordered_again() -> None:
    shape = _shape(features_in="aligned", graph_in="aligned")
    found, again = _totals(shape, community=True), _totals(shape, community=True, orders=False)
    assert {name: total for name, total in found.items() if name != "order"} == again
    copy = _FEATURES + _ROWS + 4 * _V + 3 * _V
    assert held(shape, ordered=False) == copy
    assert held(shape, ordered=True) == 2 * copy + 4 * _V  # vertex ids
    assert held(_shape(features_in="mapped", graph_in="mapped"), ordered=False) == 3 * _V


def test_loading_sorts_what_is_not_stored_as_it_is_used() -> None:
    """Six bytes an edge while rows are sorted by the other end; in 64 bits the degrees of a million edges."""
    mapped, sorted_ = (
        [_totals(DataShape(10, edges, 1, 2, graph_in=there))["load"] for edges in (10**8, 2 * 10**8)]
        for there in ("mapped", "elsewhere")
    )
    assert mapped[1] - mapped[0] == 4 * 10**8
    assert sorted_[1] - sorted_[0] == (4 + 6) * 10**8


def test_every_size_counts_in_every_phase() -> None:
    small = _totals(DataShape(1000, 10_000, 16, 4), community=True)
    for larger in (DataShape(2000, 10_000, 16, 4), DataShape(1000, 20_000, 16, 4), DataShape(1000, 10_000, 32, 4)):
        grown = _totals(larger, community=True)
        assert all(grown[name] > small[name] for name in small), larger


def test_ordering_holds_both_data_sets_and_a_bounded_part_of_the_edges() -> None:
    """Beside the rows that are there and the new ones nothing grows with edges; METIS's part depends on vertices."""
    one, two = (_totals(DataShape(1000, edges, 16, 4), community=True)["order"] for edges in (10**8, 2 * 10**8))
    assert two - one == (4 + 4) * 10**8


def test_mapped_features_are_not_there_while_communities_are_found() -> None:
    shapes = [DataShape(100_000, 1_000_000, 16, 4, features_in=there) for there in ("aligned", "mapped")]
    aligned, mapped = (_totals(shape, community=True)["order"] for shape in shapes)
    assert aligned - mapped == 4 * 100_000 * 16


def test_label_propagation_takes_less_than_metis() -> None:
    metis, labels = (
        _totals(DataShape(num_vertices, 50_000_000, 1, 4), community=True)["order"]
        for num_vertices in (MOST_FOR_METIS, MOST_FOR_METIS + 1)
    )
    assert labels < 0.9 * metis


def test_row_normalising_holds_two_features_while_loading() -> None:
    shape = DataShape(100_000, 1000, 500, 4)
    assert _totals(shape, row_normalise=True)["load"] - _totals(shape)["load"] > 0.9 * 4 * 100_000 * 500


def _estimate(peak: float, limit: Limit | None) -> Estimate:
    parts = (Phase("load", {"a": _GIB}), Phase("order", {"a": _GIB, "b": round((peak - 1) * _GIB)}))
    return Estimate(DataShape(2, 2, 1, 1), parts, limit, Process(0, 0))


def test_verdicts() -> None:
    assert _estimate(5, Limit(8 * _GIB, "machine")).verdict() == (
        "fits: needs 5.0 GiB at its peak (order), this machine has 8.0 GiB"
    )
    assert _estimate(5, None).fits
    short = _estimate(5, Limit(4 * _GIB, "cgroup"))
    assert not short.fits
    ways = (Remedy("single.order=given", 3 * _GIB), Remedy("data.row_normalise=false", 9 * _GIB // 2))
    assert dataclasses.replace(short, remedies=ways).verdict() == (
        "does not fit: needs 5.0 GiB at its peak (order), the control group of this process has 4.0 GiB; "
        "single.order=given needs 3.0 GiB (saves 2.0 GiB, fits), data.row_normalise=false needs 4.5 GiB (saves 0.5 GiB), "
        "a machine with 6 GiB would do"
    )


@pytest.mark.parametrize(("need", "machine"), [(1, 4), (4, 6), (5.5, 8), (10, 12), (51.2, 64), (90, 128)])
def test_machines_leave_a_tenth_free(need: float, machine: int) -> None:
    assert machine_gibibytes(round(need * _GIB)) == machine


def test_sizes_for_people() -> None:
    assert [gibibytes(size) for size in (0, 52 * 2**20, 5 * _GIB)] == ["0 MiB", "52 MiB", "5.0 GiB"]


def test_code_is_there_while_ordering() -> None:
    def found(process: Process) -> dict[str, int]:
        parted = phases(_shape(), process, community=True, compiled=Compiled(0, 0, 0, 0, 0))
        return {phase.name: phase.total for phase in parted}

    assert found(Process(0, 9))["order"] - found(Process(0, 0))["order"] == 9


def test_normalised_features_are_aligned() -> None:
    """Wherever they came from: neither copied by JAX nor given back."""
    totals = [_totals(_shape(features_in=there), row_normalise=True)["step"] for there in ("elsewhere", "aligned")]
    assert totals[0] == totals[1]
