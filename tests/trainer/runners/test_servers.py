"""What the servers of a real pipeline leave in servers.jsonl, and what a trace changes: nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.pipelines import make_model, messy_data, one_compilation, optimizer, piped_trainer

from dorylax.pipeline.config import PipelineConfig
from dorylax.runs.result import EpochRecord, TrainResult
from dorylax.serverless.config import TensorConfig
from dorylax.store.run_directory import RunDirectory
from dorylax.store.servers import GraphServerMetrics, ParameterServerMetrics, read
from dorylax.trainer import Trainer

DATA = messy_data(40, 160)
STRAGGLING = TensorConfig(slots=2, hedge_quantile=0.5, placement="functions")
compilation = one_compilation(40, 40)


class Killed:
    """Ends a run without a checkpoint when it has finished so many epochs."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def started(self, total_epochs: int, first_epoch: int) -> None: ...

    def epoch(self, record: EpochRecord) -> None:
        if record.epoch + 1 == self._epochs:
            raise InterruptedError

    def finished(self, result: TrainResult) -> None: ...


def fit(folder: Path, epochs: int, observers: tuple[Any, ...] = (), **options: Any) -> TrainResult:
    given: dict[str, Any] = {"servers": 2, "intervals": 3, "clock": "virtual", "edge_chunk": 40, "tensor": STRAGGLING}
    config = PipelineConfig(**given | options)
    return piped_trainer(DATA, folder, epochs, config, checkpoint_every=3, observers=observers).fit()


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "pipe", "parameter_servers": 2},
        {"mode": "async", "staleness": 2, "stability_gate": False},
        {"mode": "async", "staleness": 1, "update": "per_interval", "sync_every": 2, "parameter_servers": 2},
    ],
    ids=["pipe", "async", "per_interval"],
)
def test_in_virtual_time_a_run_that_was_killed_or_stopped_leaves_what_an_undisturbed_one_does(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    fit(tmp_path / "whole", 9, **options)
    for epochs in (3, 6, 9):
        fit(tmp_path / "stopped", epochs, **options)
    with pytest.raises(InterruptedError):
        fit(tmp_path / "killed", 9, (Killed(5),), **options)
    assert read(tmp_path / "killed" / "servers.jsonl")[-1].epoch == 3  # the observer came first
    fit(tmp_path / "killed", 9, **options)
    whole, stopped, killed = (
        (tmp_path / name / "servers.jsonl").read_bytes() for name in ("whole", "stopped", "killed")
    )
    assert stopped == whole
    assert killed == whole


def test_its_numbers_are_those_of_the_run(tmp_path: Path) -> None:
    """Sums over servers and epochs are the counters, but for what is computed once; without a trace, too."""
    options = {"mode": "async", "staleness": 1, "parameter_servers": 2, "trace": "off"}
    result = fit(tmp_path, 6, **options)
    lines = read(tmp_path / "servers.jsonl")
    graph = [line for line in lines if isinstance(line, GraphServerMetrics)]
    parameters = [line for line in lines if isinstance(line, ParameterServerMetrics)]
    assert [(line.epoch, line.server) for line in graph] == [(epoch, server) for epoch in range(6) for server in (0, 1)]
    assert len(parameters) == 12
    assert result.pipeline is not None
    counters, lags = result.pipeline["counters"], dict[str, int]()
    for line in graph:
        for lag, rows in line.rows_by_lag.items():
            lags[lag] = lags.get(lag, 0) + rows
    assert lags == result.pipeline["rows_by_lag"]
    assert sum(line.tensor_tasks for line in graph) == counters["tensor_tasks"]
    assert 0 < sum(line.graph_tasks for line in graph) <= counters["graph_tasks"]
    assert 0 < sum(line.message_bytes for line in graph) <= counters["message_bytes"]
    calls = [outcome for line in graph for outcome, count in line.calls.items() for _ in range(count)]
    assert calls.count("answered") == counters["tensor_tasks"]
    assert calls.count("late") == counters["late"] > 0
    assert sum(line.pulls for line in parameters) == sum(6 for _ in range(6))
    assert sum(line.pulls_held for line in parameters) == counters["pulls_held"] > 0
    assert [sum(line.updates for line in parameters if line.server == server) for server in (0, 1)] == [6, 6]
    for line in graph:
        assert line.graph_queue_mean <= line.graph_queue_max
        assert 1 <= line.tensor_calls_mean <= line.tensor_calls_max <= 3
        assert line.graph_seconds > 0
        assert line.tensor_seconds > 0
        assert line.weights_seconds > 0
        assert line.calls["answered"] == line.tensor_tasks
    assert sum(line.rows_seconds for line in graph) > 0
    assert sum(line.gate_seconds for line in graph) > 0
    for one in parameters:
        assert one.stashes_max in (1, 2, 3)
        assert one.busy_seconds > 0
        assert one.bytes_received > 0
        assert one.bytes_sent > 0


def test_where_no_pipeline_trains_there_is_no_such_file(tmp_path: Path) -> None:
    Trainer(make_model("gcn", DATA), DATA, optimizer=optimizer(), epochs=2, run_directory=tmp_path).fit()
    assert not (tmp_path / "servers.jsonl").exists()


def test_what_is_traced_changes_nothing_of_what_is_trained(tmp_path: Path) -> None:
    for kind in ("sample", "off"):
        fit(tmp_path / kind, 2, mode="async", trace=kind)
    one, other = (RunDirectory.open(tmp_path / kind) for kind in ("sample", "off"))
    assert one.metrics_path.read_bytes() == other.metrics_path.read_bytes()
    assert (one.summary or {})["pipeline"] == (other.summary or {})["pipeline"]
    assert not other.trace_path.exists()
