"""Errors in the user's own model and optimizer: their line, one sentence, exit code 1; frames only where asked for."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dorylax.experiments.run import main as run_sweep
from dorylax.experiments.runner import inspect
from dorylax.experiments.sweep_file import load

_FILE = """\
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Float32, jaxtyped
from beartype import beartype
from dorylax import ops


@jaxtyped(typechecker=beartype)
def narrow(h: Float32[jax.Array, "V 3"]) -> Float32[jax.Array, "V 3"]:
    return h


class Net(nnx.Module):
    def __init__(self, in_features, out_features, *, hidden_features=8, rngs):
        self.first = nnx.Linear(in_features, hidden_features, rngs=rngs)
        self.second = nnx.Linear(hidden_features, out_features, rngs=rngs)  # construct

    def __call__(self, graph, x):
        h = nnx.relu(self.first(ops.gather(graph, x)))
        return self.second(h)  # call


def optimizer(learning_rate):
    return optax.adam(learning_rate)  # optimizer
"""
_TINY = ("--set", "data.size=tiny", "--epochs", "1", "--no-save")

# What stands in the place of the marked line, and the sentence.
_WRONG = {
    "shape": ("return self.second(x)  # call", r"TypeError: dot_general requires contracting dimensions .*"),
    "attribute": ("return self.secnd(h)  # call", r"AttributeError: 'Net' object has no attribute 'secnd'.*"),
    "axis": ("return self.second(h).sum(axis=5)  # call", r"ValueError: axis 5 is out of bounds .*"),
    "assertion": ("assert h.shape[1] == 3, 'odd width'  # call", r"AssertionError: odd width"),
    "division": ("return self.second(h) / (1 // 0)  # call", r"ZeroDivisionError: integer division or modulo by zero"),
    "value of a tracer": ("return self.second(h) if h.sum() > 0 else h  # call", r"TracerBoolConversionError: .*"),
    "operator": (
        "return self.second(ops.gather(graph, h[:3]))  # call",
        r"ValueError: x must have one row for each .*",
    ),
    "flax": ("return self.second(h, 3, 4)  # call", r"TypeError: .*takes .* positional arguments.*"),
    "shape check": ("return self.second(narrow(h))  # call", r"TypeCheckError: .*narrow\. .*parameter 'h'.*V 3.*"),
    "name in __init__": ("self.second = nnx.Linera(3, 4)  # construct", r"AttributeError: [Mm]odule .* 'Linera'.*"),
    "missing argument": (
        "self.second = nnx.Linear(hidden_features, rngs=rngs)  # construct",
        r"TypeError: .*missing 1 required positional argument: 'out_features'",
    ),
    "optimizer": ("return optax.adamm(learning_rate)  # optimizer", r"AttributeError: module 'optax' .*'adamm'.*"),
    "import": ("import no_such_module_at_all  # import", r"ModuleNotFoundError: No module named .*"),
    "syntax": ("def f(:  # import", r"SyntaxError: .*"),
}


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[int, str, str]:
    """Writes mine.py with one of the mistakes: its line's number, its text, and what the sentence is."""
    line, sentence = _WRONG[request.param]
    marker = line[line.index("  # ") :]
    text = _FILE.replace("import jax\n", f"{line}\nimport jax\n", 1) if marker == "  # import" else _FILE
    text = re.sub(rf"^( *).*{marker}$", lambda found: found[1] + line, text, flags=re.MULTILINE)
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    number = next(k for k, one in enumerate(text.splitlines(), start=1) if one.endswith(marker))
    return number, line, sentence


@pytest.mark.parametrize("wrong", list(_WRONG), indirect=True)
@pytest.mark.parametrize("command", ["train", "describe"])
def test_the_users_line_then_one_sentence(dorylax, wrong: tuple[int, str, str], command: str) -> None:
    number, line, sentence = wrong
    words = _TINY if command == "train" else _TINY[:2]
    if "# optimizer" in line:
        if command == "describe":
            return  # describes no optimizer
        words = (*words, "--set", "optimizer.name=mine.py:optimizer")
    code, out, err = dorylax(command, "--set", "model.name=mine.py:Net", *words)
    assert (code, out) == (1, "")
    place, said = err.splitlines()
    assert re.fullmatch(rf"error: mine\.py:{number}( \(\S+\))?: {re.escape(line)}", place), err
    assert re.fullmatch(sentence, said), err
    assert "JAX" not in said


@pytest.mark.parametrize("wrong", ["shape"], indirect=True)
def test_frames_where_they_are_asked_for(dorylax, wrong: tuple[int, str, str]) -> None:
    words = ("train", "--set", "model.name=mine.py:Net", *_TINY)
    code, out, err = dorylax(*words, "--traceback")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback (most recent call last):\n")
    assert "validate.py" in err
    assert err.endswith(dorylax("--traceback", *words).err.split("\n\n")[-1])


@pytest.mark.parametrize("wrong", ["shape"], indirect=True)
def test_in_a_pipeline(dorylax, wrong: tuple[int, str, str]) -> None:
    words = ("--set", "pipeline.servers=2", "--set", "pipeline.clock=virtual")
    code, _, err = dorylax("train", "--set", "model.name=mine.py:Net", *_TINY, *words)
    assert code == 1
    assert err.startswith(f"error: mine.py:{wrong[0]} (Net.__call__): {wrong[1]}\nTypeError: ")


def test_an_output_of_the_wrong_shape_is_one_line(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(_FILE.replace("return self.second(h)", "return h"))
    monkeypatch.chdir(tmp_path)
    code, _, err = dorylax("train", "--set", "model.name=mine.py:Net", *_TINY)
    assert code != 0
    assert err == (
        "error: Net(graph, x) must return [V, num_classes] = [1000, 4], got [1000, 8]: give it out_features=4\n"
    )


@pytest.mark.parametrize("wrong", ["shape"], indirect=True)
def test_a_sweep_keeps_the_line_in_its_table_and_the_frames_in_a_file(
    wrong: tuple[int, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(
        "base: {data.size: tiny, train.epochs: 1, model.name: 'mine.py:Net'}\ngrid: {optimizer.learning_rate: [0.1]}\n"
    )
    out = tmp_path / "out"
    words = ["--sweep", "s.yaml", "--out", str(out), "--no-report"]
    assert run_sweep([*words, "--jobs", "1"]) == 1
    told = f"mine.py:{wrong[0]} (Net.__call__): {wrong[1]}: TypeError: dot_general requires"
    assert f"failed: {told}" in capsys.readouterr().err
    (run,) = load(tmp_path / "s.yaml").runs
    again = inspect(out, run)
    assert (again.status, (again.error or "")[: len(told)]) == ("failed", told)
    (file,) = (out / "errors").iterdir()
    assert file.read_text().startswith("Traceback (most recent call last):\n")
    shutil.rmtree(out)
    (tmp_path / "mine.py").write_text("def f(:\n")
    # In a process that has not executed the file yet; here it was, when it was still right.
    (tmp_path / "other.py").write_text("x = y\n")
    (tmp_path / "s.yaml").write_text("grid: {model.name: ['other.py:Net']}\n")
    assert run_sweep(words) == 1
    assert capsys.readouterr().err == "error: other.py:1 (<module>): x = y\nNameError: name 'y' is not defined\n"
