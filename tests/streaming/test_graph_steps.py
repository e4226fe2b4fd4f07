"""What is pushed to the sources of a unit's edges: sums as the operator defines them, and bits that no cut decides."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dorylax.ops.primitives.extremum import select_sum
from dorylax.ops.primitives.linear import gather_weighted
from dorylax.streaming import graph_steps
from dorylax.streaming.graph_steps import GraphThreads, UnitRows

V, HEADS, WIDTH = 300, 2, 3
FIRST, LAST = 100, 140


def unit(entries: int = 900) -> UnitRows:
    rng = np.random.default_rng(0)
    degrees = rng.multinomial(entries, np.full(LAST - FIRST, 1 / (LAST - FIRST)))
    neighbours = rng.integers(0, V, entries).astype(np.int32)
    neighbours[:50] = 7  # one source has many
    return UnitRows(np.concatenate([[0], np.cumsum(degrees)]), neighbours, FIRST)


def values(rows: int, *shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, (rows, *shape)).astype(np.float32)


def targets(rows: UnitRows) -> np.ndarray:
    return np.repeat(np.arange(len(rows.offsets) - 1), np.diff(rows.offsets))


def pushed(operator: object, operands: list[np.ndarray], rows: UnitRows, threads: int) -> np.ndarray:
    total = values(V, HEADS, WIDTH, seed=9)
    with ThreadPoolExecutor(threads) as pool:
        GraphThreads(pool, threads).push(operator, {"direction": "out"}, operands, rows, [total])  # type: ignore[arg-type]
    return total


@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_weighted_rows(piece: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_steps, "PIECE_BYTES", piece)
    monkeypatch.setattr(graph_steps, "_FEWEST_ENTRIES", 16)
    rows = unit()
    x, weight = values(LAST - FIRST, HEADS, WIDTH), values(900, HEADS, seed=2)
    expected = values(V, HEADS, WIDTH, seed=9)
    np.add.at(expected, rows.neighbours, x[targets(rows)] * weight[:, :, None])
    np.testing.assert_array_equal(pushed(gather_weighted, [x, weight], rows, threads), expected)


@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
def test_rows_of_sources_are_read_too(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_steps, "PIECE_BYTES", piece)
    rows = unit()
    own, other, x = (values(count, HEADS, WIDTH, seed=k) for k, count in enumerate((V, LAST - FIRST, LAST - FIRST)))
    expected = values(V, HEADS, WIDTH, seed=9)
    chosen = own[rows.neighbours] == other[targets(rows)]
    np.add.at(expected, rows.neighbours, np.where(chosen, x[targets(rows)], 0))
    np.testing.assert_array_equal(pushed(select_sum, [own, other, x], rows, 2), expected)


def test_what_is_made_at_a_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_steps, "PIECE_BYTES", 4 * HEADS * WIDTH * 10)
    run, most = graph_steps.row_operators.run, 0

    def watched(*arguments: object, **options: object) -> list[np.ndarray]:
        nonlocal most
        results = run(*arguments, **options)  # type: ignore[arg-type]
        most = max(most, len(results[0]))
        return results

    monkeypatch.setattr(graph_steps.row_operators, "run", watched)
    pushed(gather_weighted, [values(LAST - FIRST, HEADS, WIDTH), values(900, HEADS)], unit(), 2)
    assert most == 10


def test_a_unit_without_edges() -> None:
    rows = UnitRows(np.zeros(LAST - FIRST + 1, np.int64), np.zeros(0, np.int32), FIRST)
    found = pushed(gather_weighted, [values(LAST - FIRST, HEADS, WIDTH), values(0, HEADS)], rows, 2)
    np.testing.assert_array_equal(found, values(V, HEADS, WIDTH, seed=9))
