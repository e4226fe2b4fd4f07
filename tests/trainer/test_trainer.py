from __future__ import annotations

import dataclasses
import json
import signal
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dorylax.errors import InputError, RunWarning
from dorylax.graph.data_shape import _digest
from dorylax.graph.graph import Graph
from dorylax.program.model.flax_nnx import NnxStructure
from dorylax.store import checkpoint, metrics
from dorylax.store.digest import digest_of
from dorylax.store.folder_lock import LOCK
from dorylax.store.run_directory import RunDirectory, RunDirectoryError
from dorylax.trainer import TrainingError
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.one_machine import SingleRunner


def interrupt(number):
    return lambda record: signal.raise_signal(number) if record.epoch == 11 else None


# What a run gives


def test_learns_and_reports(trainer, watcher):
    seen = watcher()
    result = trainer(epochs=40, observers=[seen]).fit()
    assert seen.calls == [("started", 40, 0), *range(40), ("finished", "epochs")]
    assert [record.epoch for record in result.history] == list(range(40))
    assert result.history[0].loss == pytest.approx(np.log(3), abs=0.5)
    assert result.final_loss == result.history[-1].loss < 0.5
    assert result.test_accuracy >= 0.8
    assert result.stopped == "epochs"
    assert result.metric == "accuracy"
    assert result.timings.train >= sum(record.seconds for record in result.history)
    assert result.timings.wall >= result.timings.train


def test_model_holds_the_best_parameters(trainer, data, net, same):
    model = net(rngs=nnx.Rngs(0))
    runner = trainer(model=model)
    result = runner.fit()
    assert same(nnx.to_pure_dict(nnx.state(model, nnx.Param)), jax.tree.map(jnp.asarray, result.params))
    model.eval()
    logits = np.asarray(model(data.graph, jnp.asarray(data.features)))
    np.testing.assert_allclose(runner.predict(), logits, atol=1e-5)
    right = runner.predict().argmax(1) == data.labels
    assert result.test_accuracy == pytest.approx(right[data.test_mask].mean())
    assert result.val_accuracy == max(record.val_accuracy for record in result.history)


def test_fit_again_starts_again(trainer, same):
    runner = trainer()
    assert same(runner.fit().last_params, runner.fit().last_params)


def test_the_users_arrays_are_not_donated(trainer, net):
    model = net(rngs=nnx.Rngs(0))
    kernel = model.convs[0].kernel[...]
    trainer(model=model).fit()
    assert not kernel.is_deleted()


def test_predict_last_differs_from_best(trainer):
    runner = trainer(optimizer=optax.adam(0.3))
    result = runner.fit()
    assert result.best_epoch != result.history[-1].epoch
    assert not np.array_equal(runner.predict(), runner.predict("last"))


def test_predict_needs_training(trainer):
    with pytest.raises(TrainingError, match="call fit"):
        trainer().predict()


def test_multilabel(trainer, multilabel_data):
    result = trainer(data=multilabel_data, epochs=40).fit()
    assert result.metric == "micro_f1"
    assert result.test_accuracy > 0.7


def test_empty_masks_have_no_metric(trainer, data):
    empty = np.zeros_like(data.val_mask)
    result = trainer(data=dataclasses.replace(data, val_mask=empty, test_mask=empty)).fit()
    assert result.best_epoch == 19
    assert result.val_accuracy is None
    assert result.test_accuracy is None
    assert result.history[-1].train_accuracy is not None


def test_eval_every(trainer):
    result = trainer(epochs=8, eval_every=3).fit()
    assert [record.epoch for record in result.history if record.evaluated] == [2, 5, 7]


# Randomness and compilation


def test_seed_alone_changes_dropout(trainer, net, same):
    runs = [trainer(model=net(rngs=nnx.Rngs(0)), seed=seed).fit() for seed in (0, 0, 1)]
    assert same(runs[0].last_params, runs[1].last_params)
    assert not same(runs[0].last_params, runs[2].last_params)


def test_every_epoch_draws_anew(trainer):
    losses = [record.loss for record in trainer(optimizer=optax.sgd(0.0)).fit().history]
    assert len(set(losses)) == len(losses)


@pytest.mark.parametrize("optimize", [True, False])
def test_seeds_share_one_compilation(trainer, monkeypatch, *, optimize):
    traces = []
    original = NnxStructure.apply_train
    monkeypatch.setattr(NnxStructure, "apply_train", lambda self, *args: traces.append(1) or original(self, *args))
    optimizer = optax.adam(0.02)
    first = trainer(optimizer=optimizer, optimize=optimize, seed=0).fit()
    count = len(traces)
    second = trainer(optimizer=optimizer, optimize=optimize, seed=1).fit()
    assert count > 0
    assert len(traces) == count
    assert first.timings.compile > 0
    assert second.timings.compile == 0


# State that is neither parameter nor randomness


def test_batch_statistics_are_carried_and_saved(trainer, norm_net, data, tmp_path):
    straight = trainer(model=norm_net(rngs=nnx.Rngs(0)), epochs=4, optimize=False)
    straight.fit()
    # The running mean starts at 0 and goes half of the way to the features' mean in each epoch.
    statistics = straight._trained.state["norm"]["mean"]
    np.testing.assert_allclose(statistics, data.features.mean(0) * (1 - 0.5**4), rtol=1e-4)
    options = {"run_directory": tmp_path, "resume": True, "optimize": False}
    trainer(model=norm_net(rngs=nnx.Rngs(0)), epochs=2, **options).fit()
    resumed = trainer(model=norm_net(rngs=nnx.Rngs(0)), epochs=4, **options)
    resumed.fit()
    np.testing.assert_array_equal(resumed.predict("last"), straight.predict("last"))
    np.testing.assert_array_equal(resumed.predict(), straight.predict())


def test_optimizer_that_keeps_the_parameters(trainer):
    # Its state starts as the parameters themselves: donated, the same buffer would be given away twice.
    assert trainer(optimizer=optax.contrib.schedule_free_adamw(0.05), epochs=3).fit().final_loss > 0


def test_optimizer_that_looks_at_the_loss(trainer):
    optimizer = optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau())
    assert trainer(optimizer=optimizer, epochs=3).fit().final_loss > 0


# Stopping


def test_target_stops(trainer):
    result = trainer(epochs=200, target_accuracy=0.6).fit()
    assert result.stopped == "target"
    assert [record.val_accuracy >= 0.6 for record in result.history] == [False] * (len(result.history) - 1) + [True]


def test_patience_stops(trainer):
    result = trainer(epochs=500, patience=7).fit()
    assert result.stopped == "patience"
    assert len(result.history) == result.best_epoch + 8


@pytest.mark.parametrize(
    ("eval_every", "where"), [(1, "outputs are NaN after the update of epoch 4"), (2, "loss is nan in epoch 5")]
)
def test_divergence_is_an_error_that_keeps_what_there_was(trainer, tmp_path, eval_every, where):
    optimizer = optax.sgd(lambda count: jnp.where(count == 4, jnp.nan, 0.05))
    options = {"optimizer": optimizer, "run_directory": tmp_path, "eval_every": eval_every}
    runner = trainer(checkpoint_every=1, **options)
    with pytest.raises(TrainingError, match=where) as caught:
        runner.fit()
    assert "learning_rate" in str(caught.value)
    result = caught.value.result
    assert result.stopped == "diverged"
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.params))
    summary = RunDirectory.open(tmp_path).summary
    assert summary["stopped"] == "diverged"
    assert summary["epochs"] == len(result.history) == len(metrics.read(tmp_path / "metrics.jsonl"))
    assert not RunDirectory.open(tmp_path).complete
    again = trainer(resume=True, **options)
    np.testing.assert_array_equal(again.predict(), runner.predict())
    with pytest.raises(TrainingError, match="diverged"):
        again.fit()
    # The checkpoint of the last whole epoch is still there, under the diverged one.
    assert checkpoint.Checkpoints(tmp_path / "checkpoints").epochs()[-2] == len(result.history)


# Interruption and resumption


def test_resumed_is_bit_identical(trainer, tmp_path, same, timeless, watcher):
    straight = trainer().fit()
    options = {"run_directory": tmp_path / "run", "resume": True}
    seen = watcher(interrupt(signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    stopped = trainer(observers=[seen], **options).fit()
    assert signal.getsignal(signal.SIGTERM) is before
    assert stopped.stopped == "signal"
    assert len(stopped.history) == 12
    assert RunDirectory.open(tmp_path / "run").summary["stopped"] == "signal"
    seen = watcher()
    resumed = trainer(observers=[seen], **options).fit()
    assert seen.calls[0] == ("started", 20, 12)
    assert seen.calls[1:-1] == list(range(12, 20))
    assert resumed.first_epoch == 12
    assert same(resumed.last_params, straight.last_params)
    assert same(resumed.params, straight.params)
    assert timeless(resumed.history) == timeless(straight.history)
    assert resumed.best_epoch == straight.best_epoch
    assert metrics.read(tmp_path / "run" / "metrics.jsonl") == resumed.history
    assert RunDirectory.open(tmp_path / "run").complete


def test_what_a_disk_has_left_half_written_goes_where_nothing_is_left_to_train(trainer, tmp_path):
    options = {"run_directory": tmp_path, "resume": True, "epochs": 3}
    trainer(**options).fit()
    (tmp_path / "checkpoints" / ".epoch-00000003.dorylax-0123abcd" / "new").mkdir(parents=True)
    trainer(**options).fit()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["epoch-00000003"]


@pytest.mark.parametrize("short", [3, 5, 7])
@pytest.mark.parametrize("empty", [False, True])
def test_more_epochs_evaluate_as_a_straight_run(trainer, data, tmp_path, same, timeless, *, short, empty):
    chosen = dataclasses.replace(data, val_mask=np.zeros_like(data.val_mask)) if empty else data
    options = {"data": chosen, "eval_every": 2}
    first = trainer(epochs=short, run_directory=tmp_path, **options).fit()
    assert first.history[-1].evaluated
    np.testing.assert_array_equal(  # the best of a finished run comes back, whichever it was
        trainer(epochs=short, run_directory=tmp_path, **options).predict(), _predicted(trainer, short, options)
    )
    resumed = trainer(epochs=9, run_directory=tmp_path, resume=True, **options).fit()
    straight = trainer(epochs=9, **options).fit()
    assert [record.epoch for record in straight.history if record.evaluated] == [1, 3, 5, 7, 8]
    assert timeless(resumed.history) == timeless(straight.history)
    assert resumed.best_epoch == straight.best_epoch
    assert same(resumed.params, straight.params)
    assert timeless(metrics.read(tmp_path / "metrics.jsonl")) == timeless(straight.history)


def _predicted(trainer, epochs, options):
    runner = trainer(epochs=epochs, **options)
    runner.fit()
    return runner.predict()


def test_best_before_the_extension_is_not_lost(trainer, tmp_path, same, monkeypatch):
    """The extra evaluation is the best by far; the run that goes on still has the best of before."""
    add = LoopState.add

    def told(self, record, **options):
        value = {1: 0.9, 4: 0.95, 8: 0.1}.get(record.epoch, 0.2)
        add(self, dataclasses.replace(record, val_accuracy=value) if record.evaluated else record, **options)

    monkeypatch.setattr(LoopState, "add", told)
    short = trainer(epochs=5, eval_every=2, run_directory=tmp_path).fit()
    assert short.best_epoch == 4
    assert same(short.params, short.last_params)
    resumed = trainer(epochs=9, eval_every=2, run_directory=tmp_path, resume=True).fit()
    straight = trainer(epochs=9, eval_every=2).fit()
    assert resumed.best_epoch == straight.best_epoch == 1
    assert same(resumed.params, straight.params)


def test_fewer_epochs_than_trained_are_refused(trainer, watcher, tmp_path):
    options = {"run_directory": tmp_path, "resume": True, "eval_every": 5}
    trainer(observers=[watcher(interrupt(signal.SIGTERM))], **options).fit()  # 12 epochs
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(RunDirectoryError, match=r"train\.epochs is 11, but 12 epochs of this run are trained already"):
        trainer(epochs=11, **options).fit()
    with pytest.raises(RunDirectoryError, match=r"without the evaluation that ends a run: give 13 or more"):
        trainer(epochs=12, **options).fit()
    assert (tmp_path / "config.yaml").read_bytes() == before
    assert trainer(epochs=13, **options).fit().first_epoch == 12


def test_a_second_sigterm_ends_it_in_the_middle(trainer, watcher, tmp_path):
    """As a default action would, but the directory is given back, and the newest checkpoint stays."""
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def twice(record):
        if record.epoch == 11:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as caught:
        trainer(observers=[watcher(twice)], run_directory=tmp_path, checkpoint_every=5).fit()
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not (tmp_path / LOCK).exists()
    assert trainer(run_directory=tmp_path, resume=True).fit().first_epoch == 10


@pytest.mark.parametrize(
    ("epochs", "in_a_directory"), [(20, False), (12, True)], ids=["no run directory", "last epoch"]
)
def test_a_sigterm_that_cannot_stop_the_run_is_passed_on(trainer, watcher, tmp_path, *, epochs, in_a_directory):
    caught = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    options = {"run_directory": tmp_path} if in_a_directory else {}
    try:
        result = trainer(epochs=epochs, observers=[watcher(interrupt(signal.SIGTERM))], **options).fit()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught == [signal.SIGTERM]
    assert result.stopped == "epochs"


def test_ctrl_c_finishes_the_epoch_first(trainer, watcher, tmp_path, same):
    options = {"run_directory": tmp_path, "resume": True}
    with pytest.raises(KeyboardInterrupt):
        trainer(observers=[watcher(interrupt(signal.SIGINT))], **options).fit()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert len(metrics.read(tmp_path / "metrics.jsonl")) == 12
    assert same(trainer(**options).fit().last_params, trainer().fit().last_params)


def test_second_ctrl_c_acts_at_once(trainer, watcher, tmp_path, same):
    def twice(record):
        interrupt(signal.SIGINT)(record)
        interrupt(signal.SIGINT)(record)

    options = {"run_directory": tmp_path, "resume": True, "checkpoint_every": 5}
    with pytest.raises(KeyboardInterrupt):
        trainer(observers=[watcher(twice)], **options).fit()
    assert checkpoint.Checkpoints(tmp_path / "checkpoints").epochs() == [5, 10]
    resumed = trainer(**options).fit()
    assert resumed.first_epoch == 10
    assert same(resumed.last_params, trainer().fit().last_params)


def test_other_threads_train_without_handlers(trainer, tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(trainer(epochs=2, run_directory=tmp_path).fit()))
    thread.start()
    thread.join()
    assert results[0].stopped == "epochs"


# Checkpoints in a run


def damage(path: Path) -> None:
    largest = max(path.glob("*.bin"), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)


def test_damaged_checkpoint_is_passed_over(trainer, tmp_path, same):
    options = {"run_directory": tmp_path, "resume": True, "checkpoint_every": 5}
    trainer(epochs=12, **options).fit()
    damage(tmp_path / "checkpoints" / "epoch-00000012")
    with pytest.warns(RunWarning, match="epoch-00000012 is damaged"):
        resumed = trainer(epochs=20, **options).fit()
    assert resumed.first_epoch == 10
    assert same(resumed.last_params, trainer(epochs=20).fit().last_params)
    assert metrics.read(tmp_path / "metrics.jsonl") == resumed.history
    assert checkpoint.Checkpoints(tmp_path / "checkpoints").epochs() == [15, 20]


def test_an_edited_configuration_is_written_anew_by_the_run_that_the_checkpoint_knows(trainer, tmp_path, same):
    options = {"run_directory": tmp_path, "resume": True}
    trainer(epochs=3, **options).fit()
    path = tmp_path / "config.yaml"
    whole = path.read_text()
    for edited in (whole.replace("seed: 0", "seed: 1"), whole.replace(":", ": :"), whole.replace("\nschema", "schema")):
        path.write_text(edited)
        with pytest.raises(RunDirectoryError, match="undo the edit") as caught:
            trainer(epochs=5, run_directory=tmp_path).fit()
        assert caught.value.damaged
        with pytest.warns(RunWarning), pytest.raises(InputError, match="seed: 0 there, 1 here"):
            trainer(seed=1, **options).fit()
        assert path.read_text() == edited
        with pytest.warns(RunWarning, match="is written anew"):
            resumed = trainer(epochs=5, **options).fit()
        assert path.read_text() == whole
    assert same(resumed.last_params, trainer(epochs=5).fit().last_params)


def test_checkpoint_of_another_run_is_refused(trainer, net, tmp_path):
    options = {"run_directory": tmp_path, "resume": True, "epochs": 2}
    trainer(**options).fit()

    class Other(net):
        pass

    with pytest.raises(RunDirectoryError, match=r'model\.class: "Net" there, "Other" here'):
        trainer(model=Other(rngs=nnx.Rngs(0)), **options).fit()
    with pytest.raises(InputError, match=r"another run \(optimizer_state\.0\.count"):
        trainer(optimizer=optax.sgd(0.1, momentum=0.9), **options).fit()
    with pytest.raises(RunDirectoryError, match=r"train\.seed: 0 there, 1 here"):
        trainer(seed=1, **options).fit()
    with pytest.raises(RunDirectoryError, match=r"single\.optimize: true there, false here"):
        trainer(optimize=False, **options).fit()


def test_other_edges_features_or_labels_are_another_run(trainer, data, tmp_path):
    options = {"run_directory": tmp_path, "resume": True, "epochs": 2}
    trainer(**options).fit()
    sources = data.graph.incoming.neighbours.copy()
    sources[0] = (sources[0] + 1) % data.graph.num_vertices
    features = data.features.copy()
    features[-1, -1] += 1
    for change, name in (
        ({"graph": Graph(data.graph.incoming.offsets, sources)}, r"data\.graph"),
        ({"features": features}, r"data\.feature_values"),
        ({"labels": data.labels[::-1].copy()}, "labels_and_masks"),
    ):
        with pytest.raises(InputError, match=name):
            trainer(data=dataclasses.replace(data, **change), **options).fit()
        assert trainer(data=dataclasses.replace(data, **change), run_directory=tmp_path).predict().shape == (48, 3)


def test_the_sample_of_a_large_array_sees_every_column():
    features = np.zeros((2**13, 128), np.float32)  # four times the sample
    digests = {_digest(features)}
    for column in range(128):
        changed = features.copy()
        changed[:, column] = 1
        digests.add(_digest(changed))
    assert len(digests) == 129


@pytest.mark.parametrize("resume", [False, True])
def test_one_run_at_a_time_trains_in_a_directory(trainer, tmp_path, watcher, resume):
    """The second, begun while the first is at its second epoch, is refused; the first neither notices nor loses anything."""
    trainer(epochs=1, checkpoint_every=1, run_directory=tmp_path).fit()
    refused = []

    def written():  # not when they were read, which listing a directory changes
        states = ((path, path.stat()) for path in tmp_path.rglob("*"))
        return {path: (state.st_ino, state.st_size, state.st_mtime_ns) for path, state in states}

    def second(record):
        if record.epoch == 2:
            files = written()
            with pytest.raises(
                RunDirectoryError, match=f"{tmp_path} is in use by this process, since .*: wait for it, or"
            ):
                trainer(epochs=3, run_directory=tmp_path, resume=resume).fit()
            refused.append(written() == files)

    result = trainer(epochs=4, run_directory=tmp_path, resume=True, observers=[watcher(second)]).fit()
    assert refused == [True]
    assert result.stopped == "epochs"
    assert not (tmp_path / LOCK).exists()
    assert trainer(epochs=5, run_directory=tmp_path, resume=True).fit().first_epoch == 4


def test_nothing_is_left_in_a_directory_of_others(trainer, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunDirectoryError, match="is not empty and not a run directory"):
        trainer(run_directory=tmp_path).fit()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_summary_is_written_last(trainer, watcher, tmp_path, monkeypatch):
    """Whoever sees it finds everything else there, what observers write included."""
    at_end = []
    seen = watcher()
    seen.finished = lambda result: at_end.append((result.stopped, (tmp_path / "summary.json").exists()))
    monkeypatch.setattr(SingleRunner, "finish", lambda _: at_end.append((tmp_path / "summary.json").exists()))
    trainer(run_directory=tmp_path, epochs=2, observers=[seen]).fit()
    assert at_end == [False, ("epochs", False)]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file() and path.name != LOCK}
    assert max(written, key=written.get).name == "summary.json"


def test_summary(trainer, tmp_path):
    result = trainer(run_directory=tmp_path, epochs=3).fit()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary.pop("digest") == digest_of(summary)
    assert summary.pop("files").keys() == {"metrics.jsonl"}
    assert summary == {
        "schema": 1,
        "stopped": "epochs",
        "seed": 0,
        "epochs": 3,
        "metric": "accuracy",
        "best_epoch": result.best_epoch,
        "val_accuracy": result.val_accuracy,
        "test_accuracy": result.test_accuracy,
        "test_examples": 16,
        "final_loss": result.final_loss,
        "still_falling": False,
        "seconds_per_epoch": result.seconds_per_epoch,
        "timings": dataclasses.asdict(result.timings),
        "passes": list(result.passes),
        "pipeline": None,
    }
    assert not (tmp_path / "trace.json").exists()


# Arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eval_every": 0}, r"train\.eval_every must be ≥ 1, got 0"),
        ({"seed": 2**31}, r"train\.seed must be ≥ 0 and < 2147483648, got 2147483648"),
        ({"seed": -1}, r"train\.seed must be ≥ 0 and < 2147483648, got -1"),
        ({"checkpoint_every": -1}, r"train\.checkpoint_every must be ≥ 0, got -1"),
        ({"keep_checkpoints": 0}, r"keep_checkpoints must be ≥ 1, got 0"),
        ({"keep_checkpoints": True}, r"keep_checkpoints must be a whole number ≥ 1, got true"),
        (
            {"order": "community", "optimize": False},
            r"single\.order=community and single\.optimize=false exclude each other",
        ),
        ({"resume": True}, "resume=True needs run_directory"),
        ({"checkpoint_every": 5}, "needs a run directory"),
    ],
)
def test_numbers_are_checked_first(trainer, options, message):
    with pytest.raises(ValueError, match=message):
        trainer(**options)


def test_wrong_kinds(trainer, net, data):
    with pytest.raises(TypeError, match=r"Flax NNX or Linen module .* got int"):
        trainer(model=3)
    with pytest.raises(TypeError, match="got the class Net"):
        trainer(model=net)
    with pytest.raises(TypeError, match="optax"):
        trainer(optimizer=0.01)
    with pytest.raises(TypeError, match="observer"):
        trainer(observers=[print])


def test_output_shape_is_checked(trainer, net):
    with pytest.raises(ValueError, match=r"\[V, num_classes\] = \[48, 3\], got \[48, 16\]: give it out_features=3"):
        trainer(model=net(16, rngs=nnx.Rngs(0)))


def test_validation_vertices_are_needed(trainer, data):
    without = dataclasses.replace(data, val_mask=np.zeros_like(data.val_mask))
    with pytest.raises(ValueError, match=r"train\.patience needs validation vertices"):
        trainer(data=without, patience=3)


def test_model_that_grows_is_refused(trainer, net):
    class Growing(net):
        def __call__(self, graph, x):
            self.seen = nnx.BatchStat(x.sum())
            return super().__call__(graph, x)

    with pytest.raises(TypeError, match="adds or removes variables"):
        trainer(model=Growing(rngs=nnx.Rngs(0)))


@pytest.mark.filterwarnings("ignore:Using .Module.sow:DeprecationWarning")
def test_sown_values_are_dropped(trainer, net):
    class Sowing(net):
        def __call__(self, graph, x):
            self.sow(nnx.Intermediate, "seen", x.sum())
            return super().__call__(graph, x)

    assert trainer(model=Sowing(rngs=nnx.Rngs(0)), epochs=2).fit().final_loss > 0
