"""Phases add up, and the sentence says what they come to."""

from __future__ import annotations

import pytest

from dorylax.graph.partition.locality import MOST_FOR_METIS
from dorylax.memory.estimate import Estimate, Remedy, gibibytes, machine_gibibytes
from dorylax.memory.limit import Limit
from dorylax.memory.phases import Compiled, Phase, Process, XlaBytes, phases
from dorylax.memory.shapes import DataShape

_GIB = 2**30


def _totals(shape: DataShape, **options: bool) -> dict[str, int]:
    compiled = Compiled(XlaBytes(0, 800), XlaBytes(10_000, 0), XlaBytes(1_000, 0), 5)
    options = {"community": False, "row_normalise": False, **options}
    return {phase.name: phase.total for phase in phases(shape, Process(7, 3), compiled=compiled, **options)}


def test_later_phases_hold_two_copies_of_the_data_or_three_where_they_are_reordered() -> None:
    shape = DataShape(1000, 10_000, 16, 4)
    copy, weights = sum(shape.copy().values()), 4 * 1000
    ids = 4 * (1000 + 10_000)
    given, community = _totals(shape), _totals(shape, community=True)
    assert set(community) - set(given) == {"order"}
    running = given["hoist"] - (7 + 3 + 5 + 2 * copy + weights + 800)
    assert running == 32 * 2**20
    assert given["step"] - given["hoist"] == 10_700  # 7 % of what XLA assigns come on top
    assert given["evaluation"] - given["hoist"] == 1_070
    left = community["hoist"] - given["hoist"] - (copy + 2 * ids)
    assert 0 < left < 64 * 2**20


def test_every_size_counts_in_every_phase() -> None:
    small = _totals(DataShape(1000, 10_000, 16, 4), community=True)
    for larger in (
        DataShape(2000, 10_000, 16, 4),
        DataShape(1000, 20_000, 16, 4),
        DataShape(1000, 10_000, 16, 4, symmetric=False),
    ):
        grown = _totals(larger, community=True)
        assert all(grown[name] > small[name] for name in small), larger


def test_large_graphs_order_by_their_edges() -> None:
    """32 bytes an edge beside the 8 of the graph that is there; METIS's part depends on vertices."""
    one, two = (_totals(DataShape(1000, edges, 16, 4), community=True)["order"] for edges in (10**8, 2 * 10**8))
    assert two - one == (32 + 8) * 10**8


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
    assert short.verdict(
        [Remedy("single.order=given", 3 * _GIB), Remedy("data.row_normalise=false", 9 * _GIB // 2)]
    ) == (
        "does not fit: needs 5.0 GiB at its peak (order), the control group of this process has 4.0 GiB; "
        "single.order=given needs 3.0 GiB (saves 2.0 GiB, fits), data.row_normalise=false needs 4.5 GiB (saves 0.5 GiB), "
        "a machine with 6 GiB would do"
    )


@pytest.mark.parametrize(("need", "machine"), [(1, 4), (4, 6), (5.5, 8), (10, 12), (51.2, 64), (90, 128)])
def test_machines_leave_a_tenth_free(need: float, machine: int) -> None:
    assert machine_gibibytes(round(need * _GIB)) == machine


def test_sizes_for_people() -> None:
    assert [gibibytes(size) for size in (0, 52 * 2**20, 5 * _GIB)] == ["0 MiB", "52 MiB", "5.0 GiB"]
