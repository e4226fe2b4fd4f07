"""Sums over all vertices in a pipeline: as on one machine where it is synchronous, within the bound where it is not."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from support.covering import pairwise
from support.pipelines import (
    Trained,
    by_model,
    farthest,
    in_dtype,
    make_model,
    make_pipeline,
    messy_data,
    named,
    one_compilation,
    optimizer,
    train_single,
)

from dorylax.pipeline.buffers import PartsBuffer
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.run import PipelineEpoch
from dorylax.pipeline.steps import RUN
from dorylax.pipeline.timeline import Span
from dorylax.serverless.config import TensorConfig
from dorylax.trainer import Trainer

EPOCHS = 20
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
FACTORS: dict[str, Any] = {
    "model": ["BatchNorm", "virtual node", "PNA", "products", "GraphNorm"],
    "servers": [2, 1, 3],
    "intervals": [3, 1],
    "mode": ["pipe", "no-pipe"],
    "clock": ["virtual", "real"],
    "dtype": ["float64", "float32"],
    "parameter_servers": [1, 3],
}
compilation = one_compilation(140, 64)


@pytest.fixture(autouse=True)
def narrow_again() -> Iterator[None]:
    yield
    jax.config.update("jax_enable_x64", False)


def data() -> Any:
    return messy_data(140, 700)


@functools.cache
def single(model: str, dtype: str) -> Trained:
    return train_single(model, data(), EPOCHS, dtype=dtype)


def run(pipeline: Pipeline, parts: Any, epochs: int = EPOCHS) -> list[PipelineEpoch]:
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as started:
        started.barrier(epochs)
        return [started.run_epoch() for _ in range(epochs)]


def check(case: dict[str, Any]) -> None:
    options = dict(case)
    model, dtype = options.pop("model"), options.pop("dtype")
    jax.config.update("jax_enable_x64", dtype == "float64")
    records = run(*make_pipeline(model, data(), PipelineConfig(**options), dtype=dtype))
    found = Trained([record.loss for record in records], named(records[-1].params))
    assert farthest(found, single(model, dtype)) <= TOLERANCE[dtype]


def label(case: dict[str, Any]) -> str:
    return "-".join(str(value) for value in case.values())


@pytest.mark.parametrize("case", by_model(pairwise(FACTORS)), ids=label)
def test_losses_and_parameters_after_twenty_epochs(case: dict[str, Any]) -> None:
    check(case)


@pytest.mark.parametrize("model", ["BatchNorm", "virtual node"])
def test_on_worker_processes(model: str) -> None:
    tensor = TensorConfig(placement="functions", backend="local", workers=2)
    check({"model": model, "dtype": "float64", "servers": 2, "intervals": 3, "tensor": tensor})


def test_running_statistics_are_those_of_one_machine() -> None:
    jax.config.update("jax_enable_x64", True)
    trainer = Trainer(
        model := make_model("BatchNorm", data(), "float64"),
        in_dtype(data(), "float64"),
        optimizer=optimizer(),
        epochs=EPOCHS,
        eval_every=EPOCHS,
        optimize=False,
    )
    trainer.fit()
    pipeline, parts = make_pipeline("BatchNorm", data(), PipelineConfig(servers=2, intervals=3), dtype="float64")
    found = run(pipeline, parts)[-1].state["norms"][0]
    for name in ("mean", "var"):
        np.testing.assert_allclose(found[name], getattr(model.norms[0], name)[...], rtol=1e-9)


def asynchronous(**options: Any) -> PipelineConfig:
    given: dict[str, Any] = {"servers": 2, "intervals": 3, "mode": "async", "clock": "virtual", "update": "per_epoch"}
    if options.get("mode", "async") == "async":
        given |= {"freshness": 0}
        if options.get("update", "per_epoch") == "per_epoch":
            given |= {"stability_gate": False}
    return PipelineConfig(**{**given, **options})


@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("update", ["per_epoch", "per_interval"])
def test_a_part_of_ones_own_is_of_its_epoch_and_others_obey_the_bound(
    monkeypatch: pytest.MonkeyPatch, staleness: int, update: str
) -> None:
    lags: set[int] = set()
    totals = PartsBuffer.totals
    reading: list[IntervalPass] = []

    async def witnessed(server: GraphServer, step: Any, visit: IntervalPass) -> None:
        def seen(self: PartsBuffer) -> list[np.ndarray]:
            if visit.epoch > 0:
                assert self.stamps.epochs[visit.number] == visit.epoch
                lags.update((visit.epoch - self.stamps.epochs).tolist())
            return totals(self)

        reading.append(visit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server.parts[step.index], "totals", functools.partial(seen, server.parts[step.index]))
            await run_sum(server, step, visit)

    run_sum = RUN["sum"]
    monkeypatch.setitem(RUN, "sum", witnessed)
    pipeline, parts = make_pipeline("BatchNorm", data(), asynchronous(staleness=staleness, update=update))
    records = run(pipeline, parts, 8)
    assert reading
    assert 1 <= max(lags) <= staleness + 1
    assert records[-1].loss < records[0].loss


def test_servers_send_one_message_each_where_epochs_are_synchronous() -> None:
    """And one for each interval where they are not."""
    sent = {}
    for name, options in {"pipe": {"mode": "pipe", "update": None}, "async": {"mode": "async"}}.items():
        pipeline, parts = make_pipeline("BatchNorm", data(), asynchronous(**options))
        spans: list[Span] = []
        with contextlib.closing(pipeline.start(parts.params, None, parts.state, trace=spans.append)) as started:
            started.barrier(4)
            for _ in range(4):
                started.run_epoch()
            sent[name] = [span for span in spans if span.name.startswith("GS →") and span.epoch == 3]
    meetings = 2  # of a BatchNorm: forwards and backwards
    assert len(sent["pipe"]) == meetings * 2
    assert len(sent["async"]) == meetings * 6


def test_parts_are_added_in_the_order_of_intervals() -> None:
    buffer = PartsBuffer(3, [((), np.dtype(np.float32))])
    parts = np.float32([1e8, 1.0, -1e8])
    for interval in (2, 0, 1):
        buffer.write(np.array([interval]), 0, (parts[interval : interval + 1],))
    assert buffer.totals() == [np.float32(0)]  # (1e8 + 1) - 1e8, where float32 has no 1e8 + 1


def test_an_older_part_never_replaces_a_newer_one() -> None:
    buffer = PartsBuffer(2, [((2,), np.dtype(np.float32))])
    buffer.write(np.array([0, 1]), 3, (np.ones((2, 2), np.float32),))
    buffer.write(np.array([1]), 2, (np.full((1, 2), 5, np.float32),))
    np.testing.assert_array_equal(buffer.totals()[0], [2, 2])
    assert buffer.stamps.epochs.tolist() == [3, 3]


def test_what_an_interval_has_read_does_not_count_its_own() -> None:
    buffer = PartsBuffer(3, [((), np.dtype(np.float32))])
    buffer.write(np.array([0, 1]), 4, (np.ones(2, np.float32),))
    buffer.write(np.array([2]), 3, (np.ones(1, np.float32),))
    found = buffer.reads(0)
    assert (found.oldest, found.rows) == (3, (1, 1))
