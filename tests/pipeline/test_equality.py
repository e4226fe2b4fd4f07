"""Synchronous pipelines against the un-partitioned model under `jax.value_and_grad`, on one machine.

Tensor stages run in this process, in worker processes and in emulated functions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import pytest
from support.backends import need_emulator
from support.covering import pairwise
from support.pipelines import MODELS, Trained, by_model, farthest, messy_data, train_pipeline, train_single

from dorylax.graph.dataset import Dataset
from dorylax.pipeline import engine, operators
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.stages import StageSizes
from dorylax.serverless.config import TensorConfig

EPOCHS = 8
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
# The pairs come out in the order of these values: in this one 128 intervals fall to the model with the shortest program.
FACTORS: dict[str, Any] = {
    "model": ["gin", "gcn", "sage", "gat", "drifting"],
    "servers": [8, 2, 1, 3],
    "intervals": [1, 16, 3],
    "mode": ["pipe", "no-pipe"],
    "clock": ["virtual", "real"],
    "dtype": ["float64", "float32"],
    "partitioner": ["ldg", "range", "metis", "random"],
    "parameter_servers": [1, 3],
    "edge_chunk": [40, 65536],
}
assert set(FACTORS["model"]) == set(MODELS)

ON_WORKERS: dict[str, Any] = {
    "model": list(MODELS),
    "dtype": ["float64", "float32"],
    "servers": [1, 2],
    "intervals": [1, 3],
    "mode": ["pipe", "no-pipe"],
    "parameter_servers": [1, 3],
    "transport": ["ipc", "tcp"],
    "streaming": [False, True],
}


@pytest.fixture(autouse=True)
def one_compilation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Always as many rows in a call, so that one compilation serves every number of servers and intervals.
    monkeypatch.setattr(engine, "stage_sizes", lambda pieces, edge_chunk: StageSizes(140, 64))
    monkeypatch.setattr(operators, "_PIECE_BYTES", 1)  # else nothing here is large enough to be cut
    yield
    jax.config.update("jax_enable_x64", False)


def graph() -> Dataset:
    return messy_data(140, 700)


@functools.cache
def single(model: str, dtype: str) -> Trained:
    return train_single(model, graph(), EPOCHS, dtype=dtype)


def check(case: dict[str, Any]) -> None:
    options = dict(case)
    model, dtype = options.pop("model"), options.pop("dtype")
    jax.config.update("jax_enable_x64", dtype == "float64")
    found = train_pipeline(model, graph(), EPOCHS, PipelineConfig(**options), dtype=dtype)
    assert farthest(found, single(model, dtype)) <= TOLERANCE[dtype]


def named(case: dict[str, Any]) -> str:
    return "-".join(str(value) for value in case.values())


@pytest.mark.parametrize("case", by_model(pairwise(FACTORS)), ids=named)
def test_losses_and_parameters_after_eight_epochs(case: dict[str, Any]) -> None:
    check(case)


@pytest.mark.parametrize("case", by_model(pairwise(ON_WORKERS)), ids=named)
def test_on_worker_processes(case: dict[str, Any]) -> None:
    """As in this process."""
    options = dict(case)
    transport, streaming = options.pop("transport"), options.pop("streaming")
    tensor = TensorConfig(placement="functions", backend="local", workers=2, transport=transport, streaming=streaming)
    check({**options, "tensor": tensor})


@pytest.mark.parametrize(
    "case",
    [
        {"model": "gcn", "dtype": "float32", "servers": 2, "intervals": 3, "transport": "tcp", "streaming": False},
        {"model": "gat", "dtype": "float64", "servers": 1, "intervals": 3, "transport": "ipc", "streaming": True},
    ],
    ids=named,
)
def test_in_emulated_functions(case: dict[str, Any]) -> None:
    """As in this process."""
    need_emulator()
    options = dict(case)
    transport, streaming = options.pop("transport"), options.pop("streaming")
    tensor = TensorConfig(
        placement="functions", backend="emulator", workers=2, transport=transport, streaming=streaming
    )
    check({**options, "tensor": tensor})


def test_with_the_rows_that_the_intervals_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = train_pipeline("gcn", graph(), EPOCHS, PipelineConfig(servers=3, intervals=5))
    assert farthest(found, single("gcn", "float32")) <= TOLERANCE["float32"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("servers", range(1, 9))
def test_all_numbers_of_servers_and_intervals(servers: int) -> None:
    others = [FACTORS[name] for name in ("model", "dtype", "mode", "clock")]
    turns = itertools.islice(itertools.cycle(itertools.product(*others)), 17 * servers, None)  # all of the 40 in turn
    for intervals, (model, dtype, mode, clock) in zip(range(1, 17), turns, strict=False):
        check(
            {"model": model, "servers": servers, "intervals": intervals, "mode": mode, "clock": clock, "dtype": dtype}
        )
