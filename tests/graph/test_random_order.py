"""An order in pieces is the order in one piece."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.graph import random_order
from dorylax.graph.random_order import order_bytes


class _Few:
    """A generator of few different words, both ends among them: many are equal."""

    def __init__(self) -> None:
        self._bits = np.random.default_rng(0)

    def random_raw(self, count: int) -> np.ndarray:
        words = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1, 12345], np.uint64)
        return words[self._bits.integers(0, len(words), count)]


@pytest.mark.parametrize("generator", [lambda: np.random.PCG64(5), _Few], ids=["pcg64", "few words"])
@pytest.mark.parametrize(("count", "piece"), [(10_000, 999), (10_000, 5000), (10_000, 10_000), (3, 1), (1, 1), (0, 4)])
def test_pieces_are_of_the_order_of_all(monkeypatch: pytest.MonkeyPatch, generator, count: int, piece: int) -> None:
    monkeypatch.setattr(random_order, "_PIECE", piece)
    monkeypatch.setattr(random_order, "_CHUNK", 700)
    pieces = list(random_order.random_order(generator, count))
    assert len(pieces) == max(1, -(-count // piece))
    assert {found.dtype for found in pieces} == {np.dtype(np.int64)}
    assert np.array_equal(np.concatenate(pieces), np.argsort(generator().random_raw(count), kind="stable"))


def test_pieces_are_about_equal_and_so_is_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_order, "_PIECE", 1000)
    sizes = [len(piece) for piece in random_order.random_order(lambda: np.random.PCG64(0), 50_000)]
    assert 850 < min(sizes) <= max(sizes) < 1150
    assert order_bytes(50_000) == order_bytes(5000)
    assert order_bytes(100) < order_bytes(1000)
