"""Reading a folder runs none of the code that it names, by whichever route, until the user says that it may."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.own_code import MARK, MARKING_CODE

from dorylax import experiments
from dorylax.cli import main
from dorylax.config import RunConfig
from dorylax.errors import InputError
from dorylax.experiments.folder import read_study
from dorylax.experiments.run import main as run_sweep
from dorylax.trainer import Trainer

_OWN = ("--set", "optimizer.name=mine.py:lion", "--set", "data.size=tiny", "--epochs", "2")
_SWEEP = """\
base: {model.name: "mine.py:Own", data.size: tiny, train.epochs: 2}
grid: {optimizer.name: [adam, "mine.py:lion"], model.hidden_features: [4, 6]}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a run of it and a sweep of it. Not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "mine.py").write_text(MARKING_CODE)
    (folder / "mine.yaml").write_text(_SWEEP)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "--model", "mine.py:Own", *_OWN, "--out", "run", "--json"]) == 0
        assert run_sweep(["--sweep", "mine.yaml", "--out", "sweep", "--no-report"]) == 0
    return folder


@pytest.fixture
def strange(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What somebody else has sent: the same at another place, where nothing of it has been executed.

    The current folder is another one, in which there is nothing.
    """
    folder = shutil.copytree(made, tmp_path / "strange", ignore=shutil.ignore_patterns(MARK))
    for path in folder.rglob("environment.json"):
        _rewrite(path, lambda text: text.replace(str(made), str(folder)))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def _rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Changes a file of a run, and takes away what says that it was changed."""
    text = change(path.read_text())
    if path.suffix == ".json":
        text = json.dumps({name: value for name, value in json.loads(text).items() if name != "digest"})
    path.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")))


def _has_run(folder: Path) -> bool:
    loaded = any(str(getattr(module, "__file__", "")).startswith(f"{folder}/") for module in list(sys.modules.values()))
    return (folder / MARK).exists() or loaded


_ROUTES: dict[str, Sequence[str]] = {
    "predict of a run": ("predict", "--run", "{run}/seed-0"),
    "predict of seeds": ("predict", "--run", "{run}"),
    "predict on other data": ("predict", "--run", "{run}", "--data", "communities"),
    "train by its file": ("train", "--config", "{run}/seed-0/config.yaml", "--no-save"),
    "resume by its file": (
        "train",
        "--config",
        "{run}/seed-0/config.yaml",
        *("--epochs", "3", "--out", "{run}", "--resume"),
    ),
    "memory": ("info", "--config", "{run}/seed-0/config.yaml"),
    "tasks": ("describe", "--config", "{run}/seed-0/config.yaml"),
    "partition": ("partition", "--config", "{run}/seed-0/config.yaml", "--servers", "2", "--widths", "4"),
}


@pytest.mark.parametrize("words", _ROUTES.values(), ids=_ROUTES)
def test_a_command_runs_what_a_run_names_only_if_told_so(dorylax, strange: Path, words: Sequence[str]) -> None:
    words = [word.format(run=strange / "run") for word in words]
    before = {path: path.read_bytes() for path in strange.rglob("*") if path.is_file()}
    code, out, err = dorylax(*words)
    assert (code, out) == (2, "")
    config, file = strange / "run" / "seed-0" / "config.yaml", strange / "mine.py"
    assert err == (
        f"error: {config} names the code 'mine.py:Own', which would run '{file}' (SHA-256 "
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}): read it first, then say that you trust it by --trust (in Python "
        "trust=True)\n"
    )
    assert not _has_run(strange)
    assert before == {path: path.read_bytes() for path in strange.rglob("*") if path.is_file()}
    assert not list(Path.cwd().iterdir())
    code, _, err = dorylax(*words, "--trust")
    assert code == 0, err
    assert _has_run(strange)


def test_python_runs_what_a_run_names_only_if_told_so(strange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = strange / "run" / "seed-0" / "config.yaml"
    with pytest.raises(InputError, match=r"/mine\.py' \(SHA-256 "):
        RunConfig.load(file)
    with pytest.raises(InputError, match="and there is no file"):  # a text alone does not say where its files were
        RunConfig.from_yaml(file.read_text())
    with monkeypatch.context() as there:
        there.chdir(strange)
        with pytest.raises(InputError, match=r"the configuration names the code 'mine\.py:Own'"):
            RunConfig.from_yaml(file.read_text())
    assert not _has_run(strange)
    config = RunConfig.load(file, trust=True)
    trainer = Trainer.from_config(config, run_directory=file.parent, resume=True)
    assert trainer.predict().shape == (1000, 4)
    assert _has_run(strange)


def test_a_run_is_known_without_its_schema(dorylax, strange: Path) -> None:
    file = strange / "run" / "seed-0" / "config.yaml"
    _rewrite(file, lambda text: text.replace("schema: 1\n", ""))
    assert dorylax("train", "--config", str(file), "--no-save").code == 2
    copy = strange / "copy.yaml"
    copy.write_text(f"schema: 1\n{file.read_text()}")
    code, _, err = dorylax("info", "--config", str(copy))
    assert code == 2
    assert "copy.yaml names the code 'mine.py:Own'" in err
    assert not _has_run(strange)


def test_what_the_user_types_is_the_users(dorylax, strange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(strange)
    words = [*_OWN[:-1], "3"]
    code, _, err = dorylax("train", "--model", "mine.py:Own", *words, "--out", "run", "--resume")
    assert (code, err) == (0, "")
    (strange / "typed.yaml").write_text("model.name: mine.py:Own\n")
    assert dorylax("train", "--config", "typed.yaml", *words, "--no-save").code == 0
    # Of a run's file only what is not replaced is the folder's.
    file = strange / "run" / "seed-0" / "config.yaml"
    typed = ("--model", "gcn", "--set", "optimizer.name=adam")
    file.write_text("schema: 1\nmodel.name: none.py:Own\noptimizer.name: none.py:lion\ndata.size: tiny\n")
    assert dorylax("info", "--config", str(file), *typed).code == 0
    assert "'none.py:lion', and there is no file" in dorylax("info", "--config", str(file), *typed[:2]).err


def test_the_option_is_part_of_how_to_resume(dorylax, strange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> tuple[list[object], str]:
        return [], "interrupted"

    monkeypatch.setattr("dorylax.cli.seeds.train_seeds", interrupted)
    words = ("--config", str(strange / "run" / "seed-0" / "config.yaml"), "--trust", "--out", str(strange / "run"))
    code, _, err = dorylax("train", *words, "--resume")
    assert code == 130
    assert "--trust --out" in err


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_file_that_has_changed_since_is_named(dorylax, strange: Path) -> None:
    file = strange / "mine.py"
    then = hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_text(MARKING_CODE + "# changed\n")
    now = hashlib.sha256(file.read_bytes()).hexdigest()
    run = strange / "run" / "seed-0"
    warning = f"warning: {file} is not what {run} was trained with: its SHA-256 was '{then}' and is '{now}'\n"
    assert dorylax("predict", "--run", str(run), "--trust").err == warning
    words = ("train", "--config", str(run / "config.yaml"), "--epochs", "3", "--out", str(strange / "run"), "--resume")
    assert dorylax(*words, "--trust").err == warning
    noted = json.loads((run / "environment.json").read_text())["user_code"]
    assert noted == {"mine.py": {"file": str(file), "sha256": now}}
    assert dorylax("predict", "--run", str(run), "--trust").err == ""


@pytest.mark.parametrize("name", ["run", "sweep"])
def test_reports_and_frames_import_nothing(dorylax, strange: Path, name: str) -> None:
    """From any folder, and when the file is gone: all is in the folder."""
    (strange / "mine.py").unlink()
    folder = strange / name
    code, out, err = dorylax("report", str(folder))
    assert (code, out, err) == (0, f"report: {folder / 'report.html'}\n", "")
    runs = 1 if name == "run" else 4
    assert f"{runs} of {runs} runs done" in (folder / "report.md").read_text()
    frame = experiments.load(folder, level="runs")
    assert list(frame["model.name"]) == ["mine.py:Own"] * runs
    assert set(frame["status"]) == {"done"}
    assert len(experiments.load(folder)) == 2 * runs
    assert not _has_run(strange)


def test_what_a_report_has_read_does_not_run_either(strange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(strange)
    config = read_study(strange / "run").sweep.runs[0].config
    with pytest.raises(InputError, match=r"sweep\.json names the code 'mine\.py:Own'"):
        Trainer.from_config(config)
    assert not _has_run(strange)


def test_a_sweep_that_does_not_say_what_its_model_takes(dorylax, strange: Path) -> None:
    path = strange / "sweep" / "sweep.json"
    content = json.loads(path.read_text())
    assert content["own_options"] == {"mine.py:Own": {"hidden_features": 8}, "mine.py:lion": {"beta1": 0.8}}
    del content["own_options"]
    _rewrite(path, lambda _: json.dumps(content))
    code, _, err = dorylax("report", str(strange / "sweep"))
    assert (code, err.count("\n")) == (2, 1)
    assert "sweep.json does not say which options it has, since an earlier version wrote it: give the command" in err
    for wrong in ([], {"mine.py:Own": 3}):
        _rewrite(path, lambda _, wrong=wrong: json.dumps({**content, "own_options": wrong}))
        assert "is damaged" in dorylax("report", str(strange / "sweep")).err
    assert not _has_run(strange)
