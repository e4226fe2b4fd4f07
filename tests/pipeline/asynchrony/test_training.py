"""What the options of asynchronous training do to a run, beside runs without them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from support.pipelines import messy_data, one_compilation, running

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.parameters.records import Pulled
from dorylax.pipeline.recorder import Trace
from dorylax.pipeline.run import PipelineEpoch, PipelineRun
from dorylax.pipeline.timeline import Span

PLAIN = {"servers": 2, "intervals": 3, "parameter_servers": 2, "clock": "virtual", "edge_chunk": 40}
compilation = one_compilation(40, 40)


def trained(
    model: str, epochs: int = 5, trace: Trace | None = None, **options: Any
) -> tuple[list[PipelineEpoch], PipelineRun]:
    with running(model, messy_data(40, 160), PipelineConfig(**PLAIN | options), trace=trace) as run:
        return [run.run_epoch() for _ in range(epochs)], run


@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "drifting", "BatchNorm"])
def test_all_fresh_and_nobody_ahead_is_synchronous_training(model: str) -> None:
    """Bit for bit, of the same program."""
    one, run = trained(model, mode="async", staleness=0, freshness=1)
    other, _ = trained(model, mode="pipe")
    assert run.counters()["stale_rows"] == 0
    for mine, theirs in zip(one, other, strict=True):
        assert mine.loss == theirs.loss
        assert jax.tree.all(jax.tree.map(np.array_equal, mine.params, theirs.params))


@pytest.mark.parametrize("predict_weights", ["linear", "optimizer"])
def test_where_nobody_is_ahead_nothing_is_predicted(predict_weights: str) -> None:
    spans: list[Span] = []
    one, _ = trained("gcn", trace=spans.append, mode="async", staleness=0, predict_weights=predict_weights)
    other, _ = trained("gcn", mode="async", staleness=0, predict_weights="none")
    assert [record.loss for record in one] == [record.loss for record in other]
    assert [record.seconds for record in one] == [record.seconds for record in other]
    assert spans
    assert not [span for span in spans if span.name == "predict"]


def test_a_prediction_takes_its_time_on_a_parameter_server() -> None:
    """Once for each version and lead, however many intervals ask for it."""
    told: list[Span] = []
    trained("gcn", trace=told.append, mode="async", staleness=1, predict_weights="linear", stability_gate=False)
    spans = [span for span in told if span.name == "predict"]
    assert spans
    assert all(span.resource == "parameters" and span.end > span.start for span in spans)
    assert len({(span.server, span.version) for span in spans}) == len(spans)


def test_only_a_share_of_the_intervals_runs_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each parameter server three are bound, of whom one is half, rounded down."""
    lacking: dict[tuple[int, int], list[int]] = {}
    pull = ParameterClient.pull

    async def pulls(client: ParameterClient, interval: int, epoch: int) -> Pulled:
        pulled = await pull(client, interval, epoch)
        if pulled.version < epoch:
            lacking.setdefault((interval % 2, epoch), []).append(interval)
        return pulled

    monkeypatch.setattr(ParameterClient, "pull", pulls)
    most = []
    for share in (0, 0.5, 1):
        lacking.clear()
        trained("gcn", mode="async", freshness=0, ahead_share=share, stability_gate=False)
        most.append(max(map(len, lacking.values()), default=0))
    assert most == [0, 1, 3]


def test_a_step_that_waits_for_some_gradients_comes_sooner() -> None:
    """And is another step."""
    seconds, losses = [], []
    for share in (1.0, 0.8):
        one, _ = trained(
            "gcn", 12, mode="async", intervals=4, freshness=0, ahead_share=0, gradient_share=share, stability_gate=False
        )
        seconds.append(sum(record.seconds for record in one))
        losses.append(one[-1].loss)
    assert seconds[1] < 0.95 * seconds[0]
    assert losses[1] != losses[0]
    assert abs(losses[1] / losses[0] - 1) < 0.2
