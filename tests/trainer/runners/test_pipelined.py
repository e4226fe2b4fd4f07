"""The trainer with a pipeline: barriers, checkpoints, the switch to synchronous epochs, bills, and files."""

from __future__ import annotations

import json
import signal
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from support.pipelines import one_compilation

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.run import InlineRun
from dorylax.program.jaxpr.errors import SplitError
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError
from dorylax.store import metrics
from dorylax.store.checkpoint import Checkpoints
from dorylax.store.run_directory import RunDirectory, RunDirectoryError
from dorylax.trainer import TrainingError

VIRTUAL = {"servers": 2, "intervals": 2, "clock": "virtual", "edge_chunk": 64}
PIPE = PipelineConfig(**VIRTUAL)
ASYNC = PipelineConfig(**VIRTUAL, mode="async", staleness=2, stability_gate=False)
compilation = one_compilation(24, 64)


@pytest.fixture
def called(monkeypatch):
    """How often runs were asked to synchronise, and to close."""
    counts = Counter()

    def counted(name):
        inner = getattr(InlineRun, name)
        monkeypatch.setattr(InlineRun, name, lambda run: counts.update([name]) or inner(run))

    counted("synchronise")
    counted("close")
    return counts


def interrupt(epoch):
    return lambda record: signal.raise_signal(signal.SIGTERM) if record.epoch == epoch else None


def traced(folder):
    """The epochs of the tasks in a trace; -1 is of what is computed once, and of steps of the optimizer."""
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return sorted({event["args"]["epoch"] for event in events if event["ph"] == "X"} - {-1})


def test_what_virtual_servers_cost_is_known_after_each_epoch(trainer, tmp_path):
    result = trainer(pipeline=PIPE, epochs=3, run_directory=tmp_path).fit()
    seconds = np.cumsum([record.seconds for record in result.history])
    bill = RunDirectory.open(tmp_path).summary["pipeline"]["bill"]
    assert bill["seconds"] == pytest.approx(seconds[-1])
    hourly = 3600 * bill["dollars"] / bill["seconds"]
    assert [record.dollars for record in result.history] == pytest.approx(hourly * seconds / 3600)
    assert (bill["cluster"], bill["prices_as_of"]) == ("default", "2026-07")
    assert bill["value"] == pytest.approx(1 / (bill["seconds"] * bill["dollars"]))


def test_barriers_stand_where_checkpoints_are_due_and_at_the_end(trainer, tmp_path):
    trainer(pipeline=ASYNC, epochs=7, checkpoint_every=3, run_directory=tmp_path).fit()
    assert Checkpoints(tmp_path / "checkpoints").epochs() == [6, 7]


@pytest.mark.parametrize("config", [PIPE, ASYNC], ids=["pipe", "async"])
def test_a_stopped_run_ends_where_all_intervals_stand_and_goes_on(trainer, tmp_path, watcher, same, *, config):
    options = {"pipeline": config, "epochs": 12, "run_directory": tmp_path, "resume": True}
    stopped = trainer(observers=[watcher(interrupt(4))], **options).fit()
    assert stopped.stopped == "signal"
    end = len(stopped.history)  # of epochs 0 … 4, and of those that intervals had begun
    assert 5 <= end <= 6 + (config.staleness or -1)
    assert len(metrics.read(tmp_path / "metrics.jsonl")) == end
    assert traced(tmp_path) == list(range(end))
    resumed = trainer(**options).fit()
    assert resumed.first_epoch == end
    assert traced(tmp_path) == list(range(12))
    if config.synchronous:
        straight = trainer(pipeline=config, epochs=12).fit()
        assert same(resumed.last_params, straight.last_params)
        assert [one.loss for one in resumed.history] == [one.loss for one in straight.history]


@pytest.mark.parametrize("damage", ["removed", "flipped"])
def test_a_summary_that_was_not_written_or_is_damaged_is_written_from_the_checkpoint(trainer, tmp_path, *, damage):
    options = {"pipeline": PIPE, "epochs": 3, "run_directory": tmp_path, "resume": True}
    trainer(**options).fit()
    run = RunDirectory.open(tmp_path)
    before = run.summary
    assert before["pipeline"]["bill"]["dollars"] > 0
    if damage == "removed":
        run.summary_path.unlink()
    else:
        run.summary_path.write_text(run.summary_path.read_text().replace('"mode": "pipe"', '"mode": "pipf"'))
    trainer(**options).fit()
    assert run.summary | {"timings": None} == before | {"timings": None}


def test_a_signal_that_the_last_epoch_overtakes_is_passed_on(trainer, tmp_path, watcher):
    caught = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    try:
        seen = watcher(interrupt(5))
        result = trainer(pipeline=ASYNC, epochs=6, run_directory=tmp_path, observers=[seen]).fit()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (result.stopped, len(result.history), caught) == ("epochs", 6, [signal.SIGTERM])


def test_a_stop_at_the_target_saves_parameters_alone(trainer, tmp_path):
    options = {"pipeline": ASYNC, "run_directory": tmp_path, "resume": True}
    stopped = trainer(target_accuracy=0.4, **options).fit()
    assert stopped.stopped == "target"
    saved = Checkpoints(tmp_path / "checkpoints").restore()
    assert "pipeline" not in saved.arrays
    assert "pipeline" not in saved.record
    going_on = trainer(target_accuracy=None, **options).fit()
    assert (going_on.stopped, going_on.first_epoch) == ("epochs", len(stopped.history))


def test_the_switch_is_made_once_and_again_after_resuming(trainer, called, tmp_path):
    config = ASYNC.model_copy(update={"switch_margin": 0.55})
    options = {"pipeline": config, "target_accuracy": 1.0, "run_directory": tmp_path, "resume": True, "eval_every": 3}
    result = trainer(epochs=8, **options).fit()
    assert any(record.evaluated and record.val_accuracy >= 0.45 for record in result.history[:6])
    assert called["synchronise"] == 1
    trainer(epochs=9, **options).fit()  # goes on from an epoch that is not evaluated any more
    assert called["synchronise"] == 2


def test_divergence_keeps_what_there_was(trainer, called, tmp_path):
    optimizer = optax.sgd(lambda count: jnp.where(count == 3, jnp.nan, 0.05))
    with pytest.raises(TrainingError, match="outputs are NaN after the update of epoch 3") as caught:
        trainer(pipeline=PIPE, optimizer=optimizer, run_directory=tmp_path).fit()
    assert len(caught.value.result.history) == 3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(caught.value.result.params))
    assert RunDirectory.open(tmp_path).summary["stopped"] == "diverged"
    assert called["close"]


def test_it_is_closed_whatever_happens(trainer, called, watcher):
    def fail(record):
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        trainer(pipeline=PIPE, observers=[watcher(fail)]).fit()
    assert called["close"]


def test_a_model_that_cannot_be_split_is_refused_before_anything_is_written(trainer, norm_net, tmp_path):
    with pytest.raises(SplitError):
        trainer(model=norm_net(rngs=nnx.Rngs(0)), pipeline=PIPE, run_directory=tmp_path / "run").fit()
    assert not (tmp_path / "run").exists()


def test_files(trainer, tmp_path, monkeypatch):
    """The trace is whole before the summary says that the run is."""
    seen = []
    write = RunDirectory.write_summary
    monkeypatch.setattr(
        RunDirectory, "write_summary", lambda run, fields: seen.append(traced(run.path)) or write(run, fields)
    )
    options = {"pipeline": PIPE, "epochs": 3, "run_directory": tmp_path, "resume": True}
    result = trainer(**options).fit()
    assert seen == [[0, 1, 2]]
    run = RunDirectory.open(tmp_path)
    assert run.config["pipeline"] == PIPE.to_dict()
    assert run.config["tensor"] == PIPE.tensor.to_dict()
    assert run.summary["pipeline"] == result.pipeline
    before = run.trace_path.read_bytes()
    trainer(**options).fit()  # nothing left to train
    assert run.summary["pipeline"] == result.pipeline
    assert run.trace_path.read_bytes() == before


def test_what_may_change_when_a_run_goes_on(trainer, tmp_path):
    def go_on(folder, epochs, **options):
        config = PipelineConfig(edge_chunk=64, **options)
        return trainer(pipeline=config, epochs=epochs, run_directory=tmp_path / folder, resume=True).fit()

    go_on("real", 2)
    assert go_on("real", 3, graph_threads=2, trace="off", tensor=TensorConfig(slots=3)).first_epoch == 2
    with pytest.raises(RunDirectoryError, match=r"pipeline\.servers: 1 there, 2 here"):
        go_on("real", 4, servers=2)
    with pytest.raises(RunDirectoryError, match=r'pipeline\.clock: "real" there, null here'):
        trainer(run_directory=tmp_path / "real", resume=True).fit()
    go_on("virtual", 2, clock="virtual")
    with pytest.raises(RunDirectoryError, match=r"pipeline\.graph_threads: null there, 2 here"):
        go_on("virtual", 3, clock="virtual", graph_threads=2)


def test_arguments_that_exclude_each_other(trainer):
    with pytest.raises(ValueError, match=r"single\.optimize=false and pipeline\.servers exclude each other"):
        trainer(pipeline=PIPE, optimize=False)
    with pytest.raises(ConfigError, match=r"pipeline\.switch_margin = 0\.1 needs train\.target_accuracy"):
        trainer(pipeline=ASYNC.model_copy(update={"switch_margin": 0.1}))
