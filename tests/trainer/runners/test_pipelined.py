"""The trainer with a pipeline, which is a fake here: what it is told, and what becomes of what it gives."""

from __future__ import annotations

import json
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from support import fake_pipeline

from dorylax.cost import DEFAULT_CLUSTER
from dorylax.pipeline.config import PipelineConfig
from dorylax.program.jaxpr.errors import SplitError
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError
from dorylax.store import metrics
from dorylax.store.checkpoint import Checkpoints
from dorylax.store.run_directory import RunDirectory, RunDirectoryError
from dorylax.trainer import TrainingError

ASYNC = PipelineConfig(servers=2, mode="async", staleness=2)
PIPE = PipelineConfig(servers=2)


@pytest.fixture(autouse=True)
def made(monkeypatch):
    return fake_pipeline.install(monkeypatch)


@pytest.fixture
def judge(same, timeless):
    def equal(resumed, straight):
        assert same(resumed.last_params, straight.last_params)
        assert timeless(resumed.history) == timeless(straight.history)

    return equal


def interrupt(number, epoch=4):
    return lambda record: signal.raise_signal(number) if record.epoch == epoch else None


def calls(pipeline, name):
    return [call for call in pipeline.calls if call[0] == name]


def traced(folder):
    """The epochs of the tasks in a trace, in order."""
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return [event["args"]["epoch"] for event in events if event["ph"] == "X"]


def test_history_parameters_and_seconds_are_the_pipelines(trainer, made, data, watcher):
    seen = watcher()
    result = trainer(pipeline=PIPE, epochs=6, eval_every=2, observers=[seen]).fit()
    single = trainer(epochs=6, eval_every=2, optimize=False).fit()
    assert seen.calls == [("started", 6, 0), *range(6), ("finished", "epochs")]
    losses = [[record.loss for record in run.history] for run in (result, single)]
    np.testing.assert_allclose(*losses, rtol=1e-2)
    assert [record.evaluated for record in result.history] == [False, True] * 3
    assert [record.seconds for record in result.history] == [fake_pipeline.SECONDS] * 6
    assert result.timings.train == pytest.approx(6 * fake_pipeline.SECONDS)
    assert result.timings.compile > 0
    assert result.passes == ("prune", "fuse")
    assert result.pipeline == {
        "mode": "pipe",
        "staleness": None,
        "servers": 2,
        "intervals": 8,
        "epochs_ahead": None,
        "counters": {"tasks": 6},
        "rows_by_lag": {"0": 6},
        "tensor": "inline",
        "losses": [],
        "bill": None,
    }
    assert [record.dollars for record in result.history] == [None] * 6
    assert made[0].data is data
    assert made[0].calls == [("start", 0, False), ("barrier", 6), "close"]


def test_what_virtual_servers_cost_is_known_after_each_epoch(trainer, tmp_path):
    result = trainer(pipeline=PipelineConfig(clock="virtual"), epochs=3, run_directory=tmp_path).fit()
    hourly = 2 * DEFAULT_CLUSTER.graph_server.price + DEFAULT_CLUSTER.parameter_server.price
    assert [record.dollars for record in result.history] == pytest.approx([hourly, 2 * hourly, 3 * hourly])
    bill = RunDirectory.open(tmp_path).summary["pipeline"]["bill"]
    assert (bill["cluster"], bill["prices_as_of"], bill["seconds"]) == ("default", "2026-07", 3 * 3600)
    assert bill["dollars"] == pytest.approx(3 * hourly)
    assert bill["value"] == pytest.approx(1 / (3 * 3600 * 3 * hourly))


def test_predict_is_of_the_best_epoch(trainer, data):
    runner = trainer(pipeline=ASYNC)
    result = runner.fit()
    right = runner.predict().argmax(1) == data.labels
    assert result.val_accuracy == pytest.approx(right[data.val_mask].mean())


def test_barriers_stand_where_checkpoints_are_due_and_at_the_end(trainer, made, tmp_path):
    trainer(pipeline=ASYNC, epochs=7, checkpoint_every=3, run_directory=tmp_path).fit()
    assert calls(made[0], "barrier") == [("barrier", 3), ("barrier", 6), ("barrier", 7)]
    assert Checkpoints(tmp_path / "checkpoints").epochs() == [6, 7]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("config", [PIPE, ASYNC], ids=["pipe", "async"])
def test_stopped_and_resumed_is_bit_identical(trainer, made, tmp_path, watcher, judge, *, number, config):
    options = {"pipeline": config, "epochs": 12, "run_directory": tmp_path, "resume": True}
    if number == signal.SIGTERM:
        stopped = trainer(observers=[watcher(interrupt(number))], **options).fit()
        assert stopped.stopped == "signal"
    else:
        with pytest.raises(KeyboardInterrupt):
            trainer(observers=[watcher(interrupt(number))], **options).fit()
    end = 5 + (config.staleness or 0)  # epochs 0 … 4, and those that intervals had begun
    assert calls(made[0], "drain") == [("drain", 5)]
    assert len(metrics.read(tmp_path / "metrics.jsonl")) == end
    assert traced(tmp_path) == list(range(end))
    resumed = trainer(**options).fit()
    assert traced(tmp_path) == list(range(12))
    assert made[1].calls[0] == ("start", end, True)
    straight = trainer(pipeline=config, epochs=12).fit()
    judge(resumed, straight)


@pytest.mark.parametrize("damage", ["removed", "flipped"])
def test_a_summary_that_was_not_written_or_is_damaged_is_written_from_the_checkpoint(trainer, tmp_path, *, damage):
    options = {"pipeline": PipelineConfig(clock="virtual"), "epochs": 3, "run_directory": tmp_path, "resume": True}
    trainer(**options).fit()
    run = RunDirectory.open(tmp_path)
    before = run.summary
    assert before["pipeline"]["mode"] == "pipe"
    assert before["pipeline"]["bill"]["dollars"] > 0
    if damage == "removed":
        run.summary_path.unlink()
    else:
        run.summary_path.write_text(run.summary_path.read_text().replace('"mode": "pipe"', '"mode": "pipf"'))
    trainer(**options).fit()
    after = run.summary
    assert after | {"timings": None} == before | {"timings": None}


def test_a_signal_that_the_last_epoch_overtakes_is_passed_on(trainer, tmp_path, watcher):
    caught = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    try:
        seen = watcher(interrupt(signal.SIGTERM))
        result = trainer(pipeline=ASYNC, epochs=6, run_directory=tmp_path, observers=[seen]).fit()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (result.stopped, len(result.history), caught) == ("epochs", 6, [signal.SIGTERM])


def test_a_stop_at_the_target_saves_parameters_alone(trainer, made, tmp_path):
    options = {"pipeline": ASYNC, "run_directory": tmp_path, "resume": True}
    stopped = trainer(target_accuracy=0.4, **options).fit()
    assert stopped.stopped == "target"
    epochs = len(stopped.history)
    saved = Checkpoints(tmp_path / "checkpoints").restore()
    assert "pipeline" not in saved.arrays
    assert "pipeline" not in saved.record
    assert trainer(target_accuracy=None, **options).fit().stopped == "epochs"
    assert made[1].calls[0] == ("start", epochs, False)


def test_the_switch_is_made_once_and_again_after_resuming(trainer, made, tmp_path):
    config = PipelineConfig(mode="async", staleness=1, switch_margin=0.55)
    options = {"pipeline": config, "target_accuracy": 1.0, "run_directory": tmp_path, "resume": True, "eval_every": 3}
    result = trainer(epochs=8, **options).fit()
    crossing = next(record.epoch for record in result.history if record.evaluated and record.val_accuracy >= 0.45)
    assert crossing < 6
    assert calls(made[0], "synchronise") == [("synchronise", crossing + 1)]
    trainer(epochs=9, **options).fit()  # goes on from an epoch that is not evaluated any more
    assert calls(made[1], "synchronise") == [("synchronise", 8)]


def test_divergence_keeps_what_there_was(trainer, made, tmp_path):
    optimizer = optax.sgd(lambda count: jnp.where(count == 3, jnp.nan, 0.05))
    with pytest.raises(TrainingError, match="outputs are NaN after the update of epoch 3") as caught:
        trainer(pipeline=ASYNC, optimizer=optimizer, run_directory=tmp_path).fit()
    assert len(caught.value.result.history) == 3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(caught.value.result.params))
    assert RunDirectory.open(tmp_path).summary["stopped"] == "diverged"
    assert made[0].calls[-1] == "close"


def test_it_is_closed_whatever_happens(trainer, made, watcher):
    def fail(record):
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        trainer(pipeline=PIPE, observers=[watcher(fail)]).fit()
    assert made[0].calls[-1] == "close"


def test_a_model_that_cannot_be_split_is_refused_before_anything_is_written(trainer, norm_net, tmp_path):
    with pytest.raises(SplitError):
        trainer(model=norm_net(rngs=nnx.Rngs(0)), pipeline=PIPE, run_directory=tmp_path / "run").fit()
    assert not (tmp_path / "run").exists()


def test_files(trainer, tmp_path):
    options = {"pipeline": PIPE, "epochs": 3, "run_directory": tmp_path, "resume": True}
    result = trainer(**options).fit()
    run = RunDirectory.open(tmp_path)
    assert run.config["pipeline"] == PIPE.to_dict()
    assert run.config["tensor"] == PIPE.tensor.to_dict()
    assert run.summary["pipeline"] == result.pipeline
    trace = json.loads(run.trace_path.read_text())
    assert (trace["schema"], traced(tmp_path)) == (1, [0, 1, 2])
    before = run.trace_path.read_bytes()
    trainer(**options).fit()  # nothing left to train
    assert run.summary["pipeline"] == result.pipeline
    assert run.trace_path.read_bytes() == before


@pytest.mark.parametrize("options", [{"run_directory": None}, {"pipeline": PipelineConfig(trace="off")}], ids=str)
def test_without_a_directory_or_with_off_nothing_is_traced(trainer, made, tmp_path, options):
    trainer(**{"pipeline": PIPE, "epochs": 2, "run_directory": tmp_path, **options}).fit()
    assert made[0].trace is None
    assert not (tmp_path / "trace.json").exists()


def test_the_trace_is_whole_before_the_summary_says_that_the_run_is(trainer, tmp_path, monkeypatch):
    seen = []
    write = RunDirectory.write_summary

    def check(directory, fields):
        seen.append(traced(directory.path))
        write(directory, fields)

    monkeypatch.setattr(RunDirectory, "write_summary", check)
    trainer(pipeline=PIPE, epochs=3, run_directory=tmp_path).fit()
    assert seen == [[0, 1, 2]]


def test_what_may_change_when_a_run_goes_on(trainer, tmp_path):
    def go_on(folder, epochs, **options):
        config = PipelineConfig(**options)
        return trainer(pipeline=config, epochs=epochs, run_directory=tmp_path / folder, resume=True).fit()

    go_on("real", 2)
    assert go_on("real", 3, graph_threads=2, trace="off", tensor=TensorConfig(slots=3)).first_epoch == 2
    with pytest.raises(RunDirectoryError, match=r"pipeline\.servers: 1 there, 2 here"):
        go_on("real", 4, servers=2)
    with pytest.raises(RunDirectoryError, match=r'pipeline\.clock: "real" there, null here'):
        trainer(run_directory=tmp_path / "real", resume=True).fit()


def test_a_virtual_cluster_is_no_free_setting(trainer, tmp_path):
    options = {"run_directory": tmp_path, "resume": True}
    trainer(pipeline=PipelineConfig(clock="virtual"), epochs=2, **options).fit()
    with pytest.raises(RunDirectoryError, match=r"pipeline\.graph_threads: null there, 2 here"):
        trainer(pipeline=PipelineConfig(clock="virtual", graph_threads=2), **options).fit()


def test_arguments_that_exclude_each_other(trainer):
    with pytest.raises(ValueError, match=r"single\.optimize=false and pipeline\.servers exclude each other"):
        trainer(pipeline=PIPE, optimize=False)
    with pytest.raises(ConfigError, match=r"pipeline\.switch_margin = 0\.1 needs train\.target_accuracy"):
        trainer(pipeline=PipelineConfig(mode="async", switch_margin=0.1))


def test_what_is_not_started_cannot_run(trainer):
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        trainer(pipeline=PIPE)._runner().drain(0)
