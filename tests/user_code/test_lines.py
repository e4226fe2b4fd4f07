"""Whose code it is, and the user's line in exceptions that leave the trainer."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dorylax
from dorylax.config import ConfigError
from dorylax.graph.dataset import Dataset
from dorylax.pipeline.config import PipelineConfig
from dorylax.trainer import Trainer
from dorylax.user_code.lines import UserLine, in_one_sentence, is_users, user_line, user_line_noted

_ROOT = Path(dorylax.__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("file", "users"),
    [
        (__file__, True),
        ("/home/me/mine.py", True),
        (f"{_ROOT}/examples/mine.py", True),
        (f"{sysconfig.get_path('purelib')}/somebodys_models/net.py", True),
        (f"{sysconfig.get_path('purelib')}/flax/nnx/module.py", False),
        (f"{sysconfig.get_path('purelib')}/opt_einsum/contract.py", False),
        (f"{sysconfig.get_path('stdlib')}/functools.py", False),
        (f"{_ROOT}/dorylax/ops/gather.py", False),
        (f"{_ROOT}/layers/gcn.py", False),
        (f"{_ROOT}/pipeline/prepare.py", False),
        (f"{_ROOT}/experiments/run.py", False),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_whose_code_it_is(file: str, users: bool) -> None:
    assert is_users(file) is users


def test_libraries_of_other_folders_of_packages_are_not_the_users() -> None:
    program = (
        "import sys; sys.path.append('/base/dist-packages'); from dorylax.user_code.lines import is_users; "
        "print([is_users(f'/base/dist-packages/{name}/file.py') for name in ('jax', 'mine')])"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout == "[False, True]\n"


def test_a_line_is_told_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(UserLine(f"{tmp_path}/mine.py", 3, "Net.__call__", "return x")) == "mine.py:3 (Net.__call__): return x"
    assert str(UserLine("/elsewhere/mine.py", 3, "", "")) == "/elsewhere/mine.py:3"


def test_the_innermost_line_of_the_users_own() -> None:
    def inner() -> Any:
        return jnp.zeros((2, 3)) @ jnp.zeros((2, 3))

    with pytest.raises(TypeError) as caught:
        nnx.relu(inner())
    found = user_line(caught.value)
    assert found is not None
    assert found.function.endswith("inner")
    assert found.text == "return jnp.zeros((2, 3)) @ jnp.zeros((2, 3))"
    assert user_line(ValueError("never raised")) is None


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("one\n\ntwo"), "ValueError: one"),
        (AssertionError(), "AssertionError"),
        (KeyError("a"), "KeyError: 'a'"),
    ],
)
def test_one_sentence(error: Exception, sentence: str) -> None:
    assert in_one_sentence(error) == sentence


def test_a_note_is_written_once_and_not_for_our_own_errors() -> None:
    with pytest.raises(KeyError) as caught, user_line_noted(), user_line_noted():
        raise KeyError("a")
    assert len(caught.value.__notes__) == 1
    with pytest.raises(ConfigError) as ours, user_line_noted():
        raise ConfigError("wrong")
    assert not hasattr(ours.value, "__notes__")


# The trainer.


class Net(nnx.Module):
    """A model that fails where it is told to."""

    def __init__(self, data: Dataset, wrong: str) -> None:
        self.last = nnx.Linear(data.num_features, data.num_classes, rngs=nnx.Rngs(0))
        self.wrong = wrong
        self.calls = 0

    def __call__(self, graph: Any, x: Any) -> Any:
        if self.wrong == "attribute":
            return self.lats(x)
        if self.wrong == "shape":
            return self.last(x.T)
        if self.wrong == "value":
            raise ValueError("of my own")
        return self.last(x)


_KINDS = {"attribute": AttributeError, "shape": TypeError, "value": ValueError}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dorylax.load("communities", size="tiny")


def _notes(error: BaseException) -> list[str]:
    return [note for note in getattr(error, "__notes__", ()) if note.startswith("in ")]


@pytest.mark.parametrize("wrong", list(_KINDS))
@pytest.mark.parametrize("pipeline", [None, PipelineConfig(clock="virtual")], ids=["one machine", "pipeline"])
def test_what_a_model_raises_stays_what_it_is_with_its_line(
    data: Dataset, wrong: str, pipeline: PipelineConfig | None
) -> None:
    with pytest.raises(_KINDS[wrong]) as caught:
        Trainer(Net(data, wrong), data, optimizer=optax.sgd(0.1), epochs=1, pipeline=pipeline).fit()
    assert type(caught.value) is _KINDS[wrong]
    (note,) = _notes(caught.value)
    assert "test_lines.py:" in note
    assert "(Net.__call__): " in note


def test_what_an_optimizer_raises_while_it_trains(data: Dataset) -> None:
    def update(updates: Any, state: Any, params: Any = None) -> Any:
        return updates["nothing of this name"], state

    optimizer = optax.GradientTransformation(lambda params: (), update)
    with pytest.raises(KeyError) as caught:
        Trainer(Net(data, "nothing"), data, optimizer=optimizer, epochs=1).fit()
    (note,) = _notes(caught.value)
    assert note.endswith('return updates["nothing of this name"], state')


def test_an_observer_that_fails(data: Dataset) -> None:
    class Observer:
        def started(self, total_epochs: int, first_epoch: int) -> None:
            pass

        def epoch(self, record: Any) -> None:
            np.zeros(3)[7]

        def finished(self, result: Any) -> None:
            pass

    with pytest.raises(IndexError) as caught:
        Trainer(Net(data, ""), data, optimizer=optax.sgd(0.1), epochs=1, observers=[Observer()]).fit()
    assert _notes(caught.value)[0].endswith("np.zeros(3)[7]")


def test_mistakes_in_arguments_have_no_line_of_a_model(data: Dataset) -> None:
    with pytest.raises(ValueError, match="epochs") as caught:
        Trainer(Net(data, ""), data, optimizer=optax.sgd(0.1), epochs=0)
    assert not _notes(caught.value)
