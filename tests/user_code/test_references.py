"""Models and optimizers of the user's own, by name."""

from __future__ import annotations

import hashlib
import importlib.util
import py_compile
import re
import sys
from pathlib import Path

import pytest

from dorylax.config import ConfigError, RunConfig
from dorylax.errors import InputError
from dorylax.graph.data_shape import DataShape, abstract_data
from dorylax.trainer import Trainer
from dorylax.trainer.from_config import build_model
from dorylax.user_code.references import executed_sha256, load_reference, options_of

_FILE = """\
import jax.numpy as jnp
import optax
from flax import nnx
from dorylax import ops


class Own(nnx.Module):
    def __init__(self, in_features, out_features, *, hidden_features=24, dropout=None, rngs):
        self.hidden_features = hidden_features
        self.first = nnx.Linear(in_features, hidden_features, rngs=rngs)
        self.second = nnx.Linear(2 * hidden_features, out_features, rngs=rngs)

    def __call__(self, graph, x):
        h = nnx.relu(self.first(x))
        return self.second(jnp.concatenate([h, ops.gather(graph, h, reduce="mean")], axis=-1))


def lion(learning_rate, beta1=0.8):
    return optax.lion(learning_rate, b1=beta1)


class Named(nnx.Module):
    def __init__(self, features, hidden, classes, *, depth=1, rngs):
        self.sizes = (features, hidden, classes, depth)


class Width(nnx.Module):
    def __init__(self, in_features, features, num_classes, *, rngs):
        self.sizes = (in_features, features, num_classes)


class Loose(nnx.Module):
    def __init__(self, **options):
        self.sizes = tuple(sorted(options))


class NoArguments(nnx.Module):
    sizes = ()


def needs_more(learning_rate, spin):
    pass


def nothing(learning_rate):
    pass


number = 3
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the process is in, with the file."""
    (tmp_path / "mine.py").write_text(_FILE)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "nul.py").write_text("x = '\0'\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_executed_once_and_leaves_no_name_that_others_could_take(there: Path) -> None:
    assert load_reference("mine.py:Own") is load_reference(f"{there / 'mine.py'}:Own")
    assert "mine" not in sys.modules


def test_a_module(there: Path) -> None:
    assert load_reference("pathlib:Path") is Path


def test_options_are_what_the_configuration_knows_of_the_signature(there: Path) -> None:
    config = RunConfig.resolve({"model.name": "mine.py:Own", "optimizer.name": "mine.py:lion"})
    assert config.model.hidden_features == 24  # its own default
    assert config.model.dropout == 0.5  # None is no value of a configuration: the usual one
    assert config.model.num_layers is None
    assert config.optimizer.beta1 == 0.8
    assert config.optimizer.momentum is None
    with pytest.raises(ConfigError, match=r"model\.num_layers is not an option of model mine\.py:Own"):
        RunConfig.resolve({"model.name": "mine.py:Own", "model.num_layers": 3})


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        ("model.name", "none.py:Own", r"model\.name = 'none\.py:Own': there is no file none\.py in "),
        (
            "model.name",
            "mine.py:Owm",
            r"'mine\.py:Owm': mine\.py has no 'Owm' to call, but Own, lion, Named, Width, Loose, NoArguments, ",
        ),
        ("model.name", "nul.py:Own", "nul.py has NUL bytes and is no Python source"),
        ("model.name", "mine.py:number", "has no 'number' to call"),
        ("model.name", "no_such_module_at_all:Own", "cannot be imported: ModuleNotFoundError"),
        ("model.name", "mine.py:Named", r"= 'mine\.py:Named' needs 'hidden': set model\.options\.hidden"),
        ("model.name", "mine.py:nothing", r"needs 'learning_rate': set model\.options\.learning_rate"),
        ("optimizer.name", "mine.py:Named", "is called with learning_rate, but takes no learning_rate"),
        (
            "optimizer.name",
            "mine.py:needs_more",
            r"optimizer\.name = 'mine\.py:needs_more' needs 'spin', which no config",
        ),
    ],
)
def test_mistakes(there: Path, key: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig.resolve({key: name})


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("Named", {"hidden": 8}, (48, 8, 4, 1)),
        ("Named", {"hidden": [8, 4], "depth": 3}, (48, [8, 4], 4, 3)),
        ("Named", {"hidden": 8, "features": 5, "classes": 6}, (5, 8, 6, 1)),  # given ones win
        ("Width", {"features": 7}, (48, 7, 4)),  # the likelier name is the input's
        ("Loose", {"any": "thing", "dropout": 0.1}, ("any", "dropout", "in_features", "out_features", "rngs")),
        ("NoArguments", {}, ()),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_class_gets_its_own_arguments(
    there: Path, name: str, options: dict[str, object], sizes: tuple[object, ...], nested: bool
) -> None:
    dotted = {f"model.options.{key}": value for key, value in options.items()}
    given = {"model": {"name": f"mine.py:{name}", "options": options}} if nested else dotted
    config = RunConfig.resolve({"model.name": f"mine.py:{name}"}, given)
    assert {key: value for key, value in config.dotted().items() if ".options." in key} == dotted
    again = RunConfig.from_yaml(config.to_yaml(), trust=True)
    assert (again.key(), again.model) == (config.key(), config.model)
    data = abstract_data(DataShape(100, 300, 48, 4))
    assert build_model(config, data).sizes == sizes
    wider = config.model_copy(update={"model": config.model.model_copy(update={"options.hidden": 9})})
    assert wider.model.own == {**options, "hidden": 9}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model.options.out_feature": 3}, "out_feature is not an argument of mine.py:Own: did you mean out_features"),
        ({"model.options.dropout": 0.1}, "model.options.dropout is a key of its own: give model.dropout"),
        ({"model.options.depth": None}, "must be a finite number, text, true or false, or a list of these, got null"),
        (
            {"model.options.depth": {"a": 1}},
            "must be a finite number, text, true or false, or a list of these, got {'a': 1}",
        ),
        ({"model.options.depth": [float("inf")]}, "must be a finite number, text, true or false, or a list of these"),
        ({"model.options": 3}, "model.options is a section and must hold keys such as model.options.depth, got 3"),
        ({"model.options.3d": 3}, "unknown key 'model.options.3d'"),
        ({"model.options.hidden": 3, "model": {"options": {"hidden": 4}}}, "model.options.hidden is given twice"),
        ({"model.name": "gcn", "model.options.hidden": 3}, "model.options.hidden is not an option of model gcn"),
    ],
)
def test_arguments_that_cannot_be(there: Path, given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        RunConfig.resolve({"model.name": "mine.py:Own"} | given)


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("1 / 0\n", ZeroDivisionError, r"in broken\.py:1 \(<module>\): 1 / 0"),
        ("import math\nx = maths.pi\n", NameError, r"in broken\.py:2 \(<module>\): x = maths\.pi"),
        ("import no_such_module_at_all\n", ModuleNotFoundError, r"in broken\.py:1 \(<module>\): import no_such"),
        ("def f(:\n    pass\n", SyntaxError, r"in broken\.py:1: def f\(:"),
    ],
)
def test_what_a_file_raises_stays_what_it_is_and_has_its_line(there: Path, text: str, kind: type, line: str) -> None:
    (there / "broken.py").write_text(text)
    with pytest.raises(kind) as caught:
        RunConfig.resolve({"model.name": "broken.py:Own"})
    assert len(caught.value.__notes__) == 1
    assert re.match(line, caught.value.__notes__[0])


def test_an_optimizer_must_be_one(there: Path) -> None:
    config = RunConfig.resolve({"model.name": "mine.py:Own", "optimizer.name": "mine.py:nothing", "data.size": "tiny"})
    with pytest.raises(InputError, match=r"'mine\.py:nothing' must return an optax transformation, got NoneType"):
        Trainer.from_config(config)


def test_without_names_for_its_options_it_gets_none(there: Path) -> None:
    (there / "loose.py").write_text("def make(**options): return options\n")
    assert options_of("loose.py:make", ("rngs",), ("dropout",)) == {}
    with pytest.raises(InputError, match="there is no file"):
        options_of("lost.py:make", (), ())


def test_it_trains_and_goes_on(there: Path) -> None:
    given = {
        "model.name": "mine.py:Own",
        "model.hidden_features": 8,
        "optimizer.name": "mine.py:lion",
        "optimizer.learning_rate": 0.003,
        "optimizer.weight_decay": 0.001,
        "data.size": "tiny",
        "train.epochs": 2,
    }
    first = Trainer.from_config(RunConfig.resolve(given), run_directory=there / "run")
    assert first.model.hidden_features == 8
    first.fit()
    saved = RunConfig.load(there / "run" / "config.yaml", trust=True)
    again = Trainer.from_config(saved, run_directory=there / "run", resume=True)
    assert len(again.fit().history) == 2


def test_bytecode_beside_a_file_is_not_executed(there: Path) -> None:
    """It can be of anything: Python takes it without a look at the file where its header says so."""
    (there / "evil.py").write_text("def make(): return 'evil'\n")
    (there / "good.py").write_text("def make(): return 'good'\n")
    cached = importlib.util.cache_from_source(str(there / "good.py"))
    py_compile.compile(
        str(there / "evil.py"), cfile=cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    assert load_reference("good.py:make")() == "good"


def test_what_is_executed_is_hashed(there: Path) -> None:
    assert executed_sha256("mine.py") is None
    load_reference("mine.py:Own")
    sha256 = hashlib.sha256(_FILE.encode()).hexdigest()
    (there / "mine.py").write_text("1 / 0\n")
    load_reference("mine.py:Own")  # executed once
    assert executed_sha256("mine.py") == executed_sha256(str(there / "mine.py")) == sha256
    assert executed_sha256("none.py") is executed_sha256("pathlib") is None


def test_a_file_that_the_users_own_does_not_find_is_not_taken_for_it(there: Path) -> None:
    (there / "reads.py").write_text("open('weights.txt')\n")
    with pytest.raises(FileNotFoundError, match=r"weights\.txt"):
        load_reference("reads.py:make")
