"""`dorylax train`, end to end on the tiny built-in graph."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shlex
import shutil
import signal
import statistics
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from dorylax.cli import seeds
from dorylax.config import RunConfig
from dorylax.errors import RunWarning
from dorylax.experiments import load as load_sweeps
from dorylax.experiments.folder import locked, read_study
from dorylax.experiments.run import main as run_sweep
from dorylax.graph.datasets import load
from dorylax.observers.progress import ProgressBar
from dorylax.store import durable
from dorylax.store.checkpoint import Checkpoints
from dorylax.store.run_directory import RunDirectory
from dorylax.trainer import EpochRecord, Trainer, TrainingError, TrainResult
from dorylax.trainer.saving.run_files import RunFiles

_FILES = {"results.json", "results.csv", "timings.csv", "sweep.json"}
TINY = ("--set", "data.size=tiny", "--epochs", "2")


def test_json_is_one_object_with_the_promised_fields(dorylax, tmp_path: Path) -> None:
    code, out, _ = dorylax("train", *TINY, "--seeds", "2", "--json", "--out", str(tmp_path / "run"))
    assert code == 0
    content = json.loads(out)
    accuracy = content["test_accuracy"]
    assert len(accuracy["per_seed"]) == 2
    assert accuracy["mean"] == pytest.approx(statistics.fmean(accuracy["per_seed"]))
    assert accuracy["std"] == pytest.approx(statistics.stdev(accuracy["per_seed"]))
    assert all(math.isfinite(loss) for loss in content["final_loss"])
    assert content["seconds_per_epoch"] > 0
    assert content["seeds"] == [0, 1]
    assert content["config"]["train"]["epochs"] == 2
    assert content["config"]["model"]["hidden_features"] == 16
    assert RunConfig.resolve(content["config"]).to_dict() == content["config"]
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == content


def test_it_is_what_python_gives(dorylax) -> None:
    words = ("--model", "mlp", "--set", "train.seed=3", "--set", "optimizer.learning_rate=1e-2", "--no-save", "--json")
    content = json.loads(dorylax("train", *TINY, *words).out)
    config = RunConfig.resolve(content["config"])
    assert (config.train.seed, config.optimizer.learning_rate) == (3, 0.01)
    result = Trainer.from_config(config).fit()
    assert content["test_accuracy"] == {"mean": result.test_accuracy, "std": None, "per_seed": [result.test_accuracy]}
    assert content["final_loss"] == [result.final_loss]


def test_seeds_are_a_sweep_of_one_setting(dorylax, tmp_path: Path) -> None:
    """Its folder is one of a sweep: of the seeds from `train.seed` on, with tables, and read by report and frame."""
    folder = tmp_path / "run"
    words = ("--model", "mlp", "--seeds", "2", "--set", "train.seed=3", "--json")
    content = json.loads(dorylax("train", *TINY, *words, "--out", str(folder)).out)
    assert content["seeds"] == [3, 4]
    study = read_study(folder)
    assert [(one.run.label, one.status) for one in study.outcomes] == [("mlp, seed 3", "done"), ("mlp, seed 4", "done")]
    frame = load_sweeps(folder, level="runs").sort_values("train.seed")
    assert list(frame["test_accuracy"]) == content["test_accuracy"]["per_seed"]
    assert list(frame["sweep"]) == ["communities-mlp"] * 2
    assert dorylax("report", str(folder)).code == 0
    assert "| mlp | 2 |" in (folder / "report.md").read_text()
    (tmp_path / "again.yaml").write_text(study.sweep.text)
    assert run_sweep(["--sweep", str(tmp_path / "again.yaml"), "--out", str(tmp_path / "again"), "--no-report"]) == 0
    assert (tmp_path / "again" / "results.csv").read_bytes() == (folder / "results.csv").read_bytes()


def test_another_process_in_the_same_folder_is_refused(dorylax, trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    with locked(folder):
        code, _, err = dorylax("train", *TINY, "--seeds", "3", "--resume", "--out", str(folder))
    assert (code, err.count("\n")) == (2, 1)
    assert f"{folder} is in use by this process, since " in err
    assert not (folder / "seed-2").exists()


def test_a_folder_is_locked_from_the_first_run_on(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def epoch(self: ProgressBar, record: EpochRecord) -> None:
        if not found:
            found.append(dorylax("train", *TINY, "--resume", "--out", str(tmp_path / "new")))

    monkeypatch.setattr(ProgressBar, "epoch", epoch)
    assert dorylax("train", *TINY, "--out", str(tmp_path / "new")).code == 0
    assert found[0].code == 2
    assert f"{tmp_path / 'new'} is in use by this process, since " in found[0].err


def test_a_run_that_is_stopped_leaves_its_result_on_the_terminal(
    dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []

    def epoch(self: ProgressBar, record: EpochRecord) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ProgressBar, "epoch", epoch)
    monkeypatch.setattr(ProgressBar, "leave", lambda self, summary: left.append(summary))
    assert dorylax("train", *TINY, "--out", str(tmp_path / "run")).code == 143
    assert [(summary["stopped"], summary["epochs"]) for summary in left] == [("signal", 1)]


def test_more_epochs_for_seeds_that_are_done(dorylax, trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    words = (*TINY[:2], "--epochs", "3", "--seeds", "2", "--json")
    content = json.loads(dorylax("train", *words, "--resume", "--out", str(folder)).out)
    assert content["epochs"] == [3, 3]
    assert content["final_loss"] == json.loads(dorylax("train", *words, "--no-save").out)["final_loss"]


def test_table_for_people(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = dorylax("train", *TINY, "--seeds", "2")
    assert (code, err) == (0, "")
    assert "mean ± std" in out
    run = Path(out.splitlines()[-1].removeprefix("run directory: "))
    assert run.parent == Path("runs")
    assert run.name.endswith("-communities-gcn")
    assert {path.name for path in run.iterdir()} == {"seed-0", "seed-1", *_FILES}
    assert RunConfig.load(run / "seed-1" / "config.yaml").train.seed == 1


def test_flags_beat_the_file_and_the_file_the_recipe(dorylax, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model.name: mlp\ndata: {size: tiny}\ntrain:\n  epochs: 7\n  eval_every: 3\n")
    out = dorylax("train", "--config", str(file), "--epochs", "2", "--no-save", "--json").out
    config = json.loads(out)["config"]
    assert config["model"]["name"] == "mlp"
    assert (config["train"]["epochs"], config["train"]["eval_every"]) == (2, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "single.scratch=a\0b"], r"single.scratch must have no control characters, got 'a\x00b'"),
        (["--data", "\x1b]0;x.npz"], r"data.name must have no control characters, got '\x1b]0;x.npz'"),
        (["--config", "/dev/zero"], "/dev/zero has more than 16,777,216 characters: give a file of settings"),
    ],
)
def test_strange_words_are_refused_in_one_line(dorylax, words: list[str], message: str) -> None:
    assert dorylax("train", *words) == (2, "", f"error: {message}\n")


def test_a_folder_whose_name_is_not_utf_8(dorylax, tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"r\xe9sultat")
    code, _, err = dorylax("train", *TINY, "--out", str(out))
    assert (code, err.count("\n")) == (2, 1)
    assert r"the path of a run directory must be UTF-8, got" in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(dorylax, trained: Path, tmp_path: Path) -> None:
    before = (trained / "results.json").read_text()
    again = dorylax("train", *TINY, "--out", str(trained))
    message = f"--out {trained} is not empty: add --resume to continue it, or choose another folder"
    assert again == (2, "", f"error: {message}\n")
    assert (trained / "results.json").read_text() == before
    (tmp_path / "letter.txt").write_text("dear")
    err = dorylax("train", *TINY, "--out", str(tmp_path)).err
    assert err == f"error: --out {tmp_path} is not empty: choose another folder\n"


def test_resume_keeps_finished_seeds_and_adds_new_ones(dorylax, trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    stamp = (folder / "seed-1" / "summary.json").stat().st_mtime_ns
    code, out, _ = dorylax("train", *TINY, "--seeds", "3", "--resume", "--json", "--out", str(folder))
    assert code == 0
    first = json.loads((trained / "results.json").read_text())
    content = json.loads(out)
    assert content["test_accuracy"]["per_seed"][:2] == first["test_accuracy"]["per_seed"]
    assert content["seeds"] == [0, 1, 2]
    assert (folder / "seed-1" / "summary.json").stat().st_mtime_ns == stamp


def test_a_file_of_the_users(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load("communities", size="tiny").save(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    words = ("--data", "mine", "--model", "mlp", "--epochs", "2")
    out = dorylax("train", *words, "--out", "run").out
    recipe, title, *_ = out.splitlines()
    assert recipe == "recipe: default (chosen on several graphs, docs/recipes.md), but train.epochs=2"
    assert title.startswith("mlp on mine")
    assert RunDirectory.open(tmp_path / "run" / "seed-0").config["train"]["recipe"] == "default"
    monkeypatch.chdir("/")
    code, out, _ = dorylax("predict", "--run", str(tmp_path / "run"))
    assert code == 0
    assert "test accuracy: " in out


def test_who_stops_while_the_loss_falls_is_told(dorylax, tmp_path: Path) -> None:
    """By the losses of all epochs, those before the run was resumed among them."""
    words = ("train", "--set", "data.size=tiny", "--seeds", "2", "--out", str(tmp_path / "run"))
    assert dorylax(*words, "--epochs", "19").err == ""  # too few to say
    err = dorylax(*words, "--epochs", "20", "--resume").err
    assert err == "warning: the loss of seeds 0, 1 was still falling fast after 20 epochs: train longer (--epochs 40)\n"
    assert dorylax(*words, "--epochs", "20", "--resume").err == ""  # nothing was trained


def test_who_has_large_features_is_told(dorylax, tmp_path: Path) -> None:
    data = load("communities", size="tiny")
    words = ("train", "--model", "mlp", "--epochs", "2", "--no-save", "--data")
    data.save(tmp_path / "usual")
    assert dorylax(*words, str(tmp_path / "usual")).err == ""
    large = data.features * np.where(np.arange(data.num_features) == 3, 100, 1)
    dataclasses.replace(data, features=large).save(tmp_path / "large")
    err = dorylax(*words, str(tmp_path / "large")).err
    assert re.match(r"warning: a column of the features has values around \d+, and the default recipe", err)
    assert dorylax(*words, str(tmp_path / "large"), "--recipe", "published").err == ""


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 143, "terminated")],
)
def test_a_signal_says_how_to_resume_and_that_works(
    dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, number: int, code: int, word: str
) -> None:
    folder = tmp_path / "run"

    def epoch(self: ProgressBar, record: EpochRecord) -> None:
        if record.epoch == 3:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "epoch", epoch)
        options = ("--set", "data.size=tiny", "--epochs", "6", "--model", "mlp", "--json")
        stopped = dorylax("train", *options, "--out", str(folder))
    assert (stopped.code, stopped.out) == (code, "")
    told = stopped.err.strip()
    assert told.startswith(f"{word}; continue with: dorylax train --model mlp ")
    resumed = dorylax(*shlex.split(told.partition("continue with: dorylax ")[2]))
    assert resumed.code == 0
    assert json.loads(resumed.out)["epochs"] == [6]
    lines = (folder / "seed-0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(6))
    straight = json.loads(dorylax("train", *options, "--no-save").out)
    assert json.loads(resumed.out)["final_loss"] == straight["final_loss"]


def test_a_seed_that_diverges_does_not_keep_the_others_from_training(dorylax, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = Trainer.fit

    def first_fails(self: Trainer, **options: bool) -> TrainResult:
        if self.options.seed == 0:
            raise TrainingError("the loss became NaN")
        return fit(self, **options)

    monkeypatch.setattr(Trainer, "fit", first_fails)
    code, out, err = dorylax("train", *TINY, "--seeds", "2", "--no-save", "--json")
    assert code == 1
    assert err == "error: seed 0: the loss became NaN\nerror: 1 of 2 seeds failed\n"
    content = json.loads(out)
    assert content["errors"] == ["the loss became NaN", None]
    assert content["test_accuracy"]["per_seed"][0] is None
    assert content["test_accuracy"]["mean"] == content["test_accuracy"]["per_seed"][1]


@pytest.mark.parametrize("error", [TrainingError("the loss became NaN"), None], ids=["training", "reading"])
def test_a_failure_of_the_only_seed_is_one_line(
    dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: TrainingError | None
) -> None:
    fit = Trainer.fit

    def fails(self: Trainer, **options: bool) -> TrainResult:
        if error is not None:
            raise error
        result = fit(self, **options)
        summary = tmp_path / "run" / "seed-0" / "summary.json"
        summary.unlink()
        summary.symlink_to("summary.json")  # any error of the disk
        return result

    monkeypatch.setattr(Trainer, "fit", fails)
    monkeypatch.setattr(Path, "is_file", lambda path: os.path.lexists(path) and not os.path.isdir(path))
    code, _, err = dorylax("train", *TINY, "--model", "mlp", "--out", str(tmp_path / "run"))
    assert code == 1
    assert err.startswith("error: seed 0: ")
    assert ("the loss became NaN" if error else "summary.json cannot be read") in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("lost", ["damaged", "missing", "manifest", "all"])
def test_a_finished_run_whose_newest_checkpoint_is_lost_trains_its_last_epochs_again(
    dorylax, tmp_path: Path, lost: str
) -> None:
    words = ("train", *TINY, "--model", "mlp", "--set", "train.checkpoint_every=1", "--out", str(tmp_path / "run"))
    assert dorylax(*words).code == 0
    checkpoints = tmp_path / "run" / "seed-0" / "checkpoints"
    before = Checkpoints(checkpoints).restore()
    newest = checkpoints / "epoch-00000002"
    if lost == "all":
        shutil.rmtree(checkpoints)
    else:
        path = newest / "manifest.json" if lost == "manifest" else next(newest.glob("arrays-*"))
        path.unlink() if lost != "damaged" else path.write_bytes(b"\0" + path.read_bytes()[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        assert dorylax(*words, "--resume").code == 0
    if lost == "all":  # removed by the user, to make room
        assert not checkpoints.exists()
        return
    after = Checkpoints(checkpoints).restore()
    assert before is not None
    assert after is not None
    assert after.epochs == 2
    for group, arrays in before.arrays.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(after.arrays[group][name], array, strict=True)


@pytest.mark.parametrize(
    ("memory", "said", "remedy"),
    [
        ("check", "error: the run does not fit", "make the model narrower"),
        ("ignore", "error: this does not fit in memory", "lower model.hidden_features"),
    ],
)
def test_what_does_not_fit_in_memory_is_one_line(dorylax, memory: str, said: str, remedy: str) -> None:
    wide = "model.hidden_features=100000000000"
    code, out, err = dorylax("train", *TINY, "--no-save", "--set", wide, "--set", f"single.memory={memory}")
    assert (code, out) == (1, "")
    assert err.startswith(said)
    assert remedy in err
    assert err.count("\n") == 1


def test_a_run_killed_before_it_wrote_anything_can_be_resumed(dorylax, tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / ".config.yaml.dorylax-abcd1234").write_text("sche")
    assert dorylax("train", *TINY, "--out", str(tmp_path)).err.endswith(
        "add --resume to continue it, or choose another folder\n"
    )
    code, _, err = dorylax("train", *TINY, "--resume", "--out", str(tmp_path))
    assert (code, err) == (0, "")
    assert not list((tmp_path / "seed-0").glob(".config*"))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "seed-0").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("dear")
    code, _, err = dorylax("train", *TINY, "--resume", "--out", str(tmp_path / "letters"))
    assert code == 2
    assert "holds no run to continue" in err
    assert dorylax("train", *TINY, "--resume", "--out", str(tmp_path / "none")).code == 2


def test_a_run_that_dies_before_it_goes_on_is_not_taken_for_done(
    dorylax, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    words = ("train", *TINY, "--seeds", "2", "--epochs", "3", "--resume", "--json", "--out", str(folder))

    def dies(files: RunFiles, *args: object, **options: object) -> None:
        start(files, *args, **options)
        raise KeyboardInterrupt

    start = RunFiles.start
    with monkeypatch.context() as patch:
        patch.setattr(RunFiles, "start", dies)
        assert dorylax(*words).code == 130
    code, out, _ = dorylax(*words)
    assert code == 0
    assert json.loads(out)["epochs"] == [3, 3]


def test_results_json_is_written_while_the_folder_is_locked_and_is_never_of_an_earlier_end(
    dorylax, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    words = ("train", *TINY, "--seeds", "2", "--epochs", "3", "--resume", "--out", str(folder))

    def interrupted(self: ProgressBar, record: EpochRecord) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "epoch", interrupted)
        assert dorylax(*words).code == 130
    assert not (folder / "results.json").exists()
    written = []

    def write_json(path: Path, fields: Mapping[str, object]) -> None:
        written.append((path.name, (folder / ".lock").exists()))
        durable.write_json(path, fields)

    monkeypatch.setattr(seeds, "write_json", write_json)
    assert dorylax(*words).code == 0
    assert written == [("results.json", True)]
    assert json.loads((folder / "results.json").read_text())["epochs"] == [3, 3]


def test_ctrl_c_while_data_load(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(config: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(seeds, "prepare_data", interrupted)
    words = ("train", *TINY, "--out", str(tmp_path / "run"))
    told = "interrupted before anything was trained; the same command starts again\n"
    assert dorylax(*words) == (130, "", told)
    monkeypatch.undo()
    assert dorylax(*words).code == 0
