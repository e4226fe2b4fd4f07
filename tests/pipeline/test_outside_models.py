"""Models from outside, trained by a pipeline of 2 servers with 3 intervals each: as in one piece, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest
from support.graphs import messy_graph
from support.outside import OUTSIDE
from support.outside.measure import data_of, distance, parts_of, tolerance, trained_by_pipe, trained_in_one_piece
from support.pipelines import one_compilation

EPOCHS = 3
EXACT = [name for name, case in OUTSIDE.items() if case.refused is None]
# One of each that a pipeline does otherwise: norms of vertices and of edges, products over all, reading neighbours in
# every way, state that is used at once, draws for edges, every sort of input, of label, and of model.
COVERING = [
    "GCN ogbn-arxiv",
    "SGFormer",
    "GatedGCN",
    "PNA",
    "R-GCN",
    "UniMP",
    "SchNet",
    "DropEdge",
    "running mean used at once",
    "multi-task",
]
compilation = one_compilation(60, 64)


@pytest.fixture(autouse=True)
def narrow_again() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def check(name: str) -> None:
    case = OUTSIDE[name]
    data = data_of(case, messy_graph(60, 240), "float64")
    parts = parts_of(case, data, "float64")
    found, wanted = trained_by_pipe(case, parts, data, EPOCHS), trained_in_one_piece(case, parts, data, EPOCHS)
    assert distance(found, wanted) <= tolerance(case, "float64")


@pytest.mark.parametrize("name", COVERING)
def test_three_epochs_are_those_of_one_machine(name: str) -> None:
    check(name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in EXACT if name not in COVERING])
def test_three_epochs_of_every_other_model(name: str) -> None:
    check(name)
