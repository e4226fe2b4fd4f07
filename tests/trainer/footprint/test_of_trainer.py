"""What does not fit is not begun, on data that are there already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import dorylax
from dorylax.config import RunConfig
from dorylax.errors import RunError
from dorylax.graph.data_shape import DataShape
from dorylax.memory.phases import held, phases
from dorylax.trainer import Trainer
from dorylax.trainer import from_config as from_config_module
from dorylax.trainer.footprint import of_trainer
from dorylax.trainer.vertex_order import is_ordered


def _config(**overrides: object) -> RunConfig:
    return RunConfig.resolve(
        {"data.size": "tiny", "train.epochs": 1}, {k.replace("__", "."): v for k, v in overrides.items()}
    )


def test_the_trainer_refuses_and_can_be_told_not_to(memory_of) -> None:
    data = dorylax.load("communities", size="tiny")
    memory_of(0.01)
    with pytest.raises(RunError, match=r"the run does not fit: needs .* this machine has 10 MiB"):
        Trainer.from_config(_config(), data).fit()
    result = Trainer.from_config(_config(single__memory="ignore"), data).fit()
    assert len(result.history) == 1


def test_what_the_check_compiles_is_what_training_runs(memory_of) -> None:
    """Otherwise a check near the limit would double the time to compile."""
    config = _config(data__size="small", model__hidden_features=23, single__order="community")
    data = from_config_module.prepare_data(config.data)
    trainer = Trainer.from_config(config, data)
    memory_of(0.01)
    with pytest.raises(RunError):
        trainer.fit()
    memory_of(64)
    functions = trainer._functions
    gradient = trainer._machine.choose_gradient()[0]
    compiled = functions.evaluation(gradient.forward), functions.step(gradient)
    assert [len(function._executables) for function in compiled] == [1, 1]
    trainer.fit()
    assert [len(function._executables) for function in compiled] == [1, 1]


def test_seeds_share_the_reordered_data_and_do_not_count_it_twice(memory_of, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dorylax.load("communities", num_vertices=2_000, num_edges=10_000, num_features=64)
    config = _config(single__order="community", data__row_normalise=False)
    asked = []

    def resident() -> int:
        return 2**29 + held(DataShape.of(data), ordered=is_ordered(data))

    def ask(*arguments: Any, **options: Any) -> Any:
        asked.append((arguments[1], options["orders"]))
        return phases(*arguments, **options)

    memory_of(1)
    for module in (of_trainer,):
        monkeypatch.setattr(module, "resident_bytes", resident)
    monkeypatch.setattr(of_trainer, "phases", ask)
    monkeypatch.setattr(of_trainer, "_CLEARLY", 0.0)
    monkeypatch.setattr(of_trainer, "compiled_on_shapes", lambda *_, **__: (None, 0, 0.0))
    for _ in range(2):
        Trainer.from_config(config, data).fit()
    assert asked == [((2**29, 0), True), ((2**29, 0), False)]


def test_results_count_unless_they_reuse_an_arguments_buffer() -> None:
    analysis = SimpleNamespace(temp_size_in_bytes=7, output_size_in_bytes=1000, alias_size_in_bytes=400)
    assert of_trainer._assigned(SimpleNamespace(memory_analysis=lambda: analysis)) == (7, 600)
