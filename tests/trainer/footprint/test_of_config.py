"""The memory of a run against the run, and a run that does not fit is refused, where possible before its data are there."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

import dorylax
from dorylax.cli import main
from dorylax.config import RunConfig
from dorylax.errors import RunError
from dorylax.graph.data_shape import DataShape
from dorylax.machine import resident_bytes
from dorylax.memory.estimate import Estimate
from dorylax.memory.phases import held, phases
from dorylax.trainer import Trainer
from dorylax.trainer import from_config as from_config_module
from dorylax.trainer.footprint import of_config, of_trainer
from dorylax.trainer.vertex_order import is_ordered

_GIB = 2**30
_HERE = Path(__file__).parents[3]


def _config(**overrides: object) -> RunConfig:
    return RunConfig.resolve(
        {"data.size": "tiny", "train.epochs": 1}, {k.replace("__", "."): v for k, v in overrides.items()}
    )


def test_a_large_graph_is_estimated_without_it(memory_of) -> None:
    memory_of(24)
    config = _config(data__size="friendster")
    found = of_config.estimate(config)
    assert found is not None
    assert not found.fits
    assert [phase.name for phase in found.phases] == ["load", "order", "hoist", "step", "evaluation"]
    ways = {way.setting: way.peak for way in of_config.remedies(config, found)}
    assert ways["single.order=given"] < found.peak.total
    assert ways["data.size=reddit-large"] < 24 * _GIB
    assert "model.hidden_features" not in " ".join(ways), "ordering does not fit however narrow the model is"


def test_a_narrower_model_is_named_where_it_fits(memory_of) -> None:
    config = _config(data__size="medium", model__hidden_features=4096)
    memory_of(1000)
    wide = of_config.estimate(config)
    assert wide is not None
    memory_of(wide.peak.total / _GIB * 0.7)
    found = of_config.estimate(config)
    assert found is not None
    assert wide.peak.name == "step"
    hidden = [way for way in of_config.remedies(config, found) if way.setting.startswith("model.hidden_features=")]
    assert [way.setting for way in hidden] == ["model.hidden_features=2048"]


def test_a_run_that_does_not_fit_is_refused_before_its_data_are_there(
    memory_of, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("the data set was generated")

    monkeypatch.setattr("dorylax.graph.datasets.load", load)
    memory_of(16)  # less than generating takes; with more, the run might stream
    words = ["train", "--data", "communities", "--set", "data.size=friendster", "--out", str(tmp_path / "run")]
    assert main(words) == 1
    text = capsys.readouterr().err
    for part in ("does not fit", "(order)", "has 16.0 GiB", "single.order=given needs", "single.memory=ignore"):
        assert part in text
    assert not (tmp_path / "run").exists()


WIDE = {
    "one machine": {},
    "pipeline": {"pipeline__servers": 2},
    "hosts": {"pipeline__servers": 2, "pipeline__hosts": "processes"},
    "links": {"task__name": "link-prediction"},
}


@pytest.mark.parametrize("width", [30_000_000, 10**18])
@pytest.mark.parametrize("way", WIDE)
def test_a_model_that_is_too_wide_is_refused_before_it_has_weights(
    memory_of, monkeypatch: pytest.MonkeyPatch, way: str, width: int
) -> None:
    """Its weights would take 7 GiB, or more than XLA counts: neither they nor compiled functions are made."""

    def compile_(*_: object) -> None:
        raise AssertionError("compiled, with weights that do not fit")

    memory_of(2)
    monkeypatch.setattr("dorylax.trainer.step.compiled.Compiled.prepare", compile_)
    before = resident_bytes()
    config = _config(model__hidden_features=width, **WIDE[way])
    checks = [of_config.check_config, *([of_config.estimate] if way != "links" else [])]
    for check in checks:
        with pytest.raises(RunError, match=r"parameters of \w+ need .* GiB .* has 2\.0 GiB: make the model narrower"):
            check(config)
    assert resident_bytes() < before + _GIB


def test_debugging_flags_leave_the_estimate_without_compiled_functions(memory_of) -> None:
    memory_of(2)
    with jax.debug_nans(True):
        found = of_config.estimate(_config())
    assert found is not None
    assert found.compiled is None


def test_nothing_is_compiled_where_a_run_clearly_fits(memory_of, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_(*_: object, **__: object) -> None:
        raise AssertionError("compiled to know the memory of a small run")

    memory_of(64)
    for module in (of_config, of_trainer):
        monkeypatch.setattr(module, "compiled_on_shapes", compile_)
    of_config.check_config(_config())
    Trainer.from_config(_config()).fit()


def test_what_takes_long_to_compile_is_not_tried_as_a_remedy(memory_of, monkeypatch: pytest.MonkeyPatch) -> None:
    memory_of(0.1)
    config = _config(data__size="medium", single__order="community")
    found = of_config.estimate(config)
    assert found is not None
    assert found.seconds > 0
    tried = []

    def estimate(other: RunConfig, like: Estimate) -> Estimate:
        tried.append(like.compiled is None)
        return dataclasses.replace(found, phases=found.phases[:1])

    monkeypatch.setattr(of_config, "estimate", estimate)
    of_config.remedies(config, dataclasses.replace(found, seconds=0.0))
    assert True in tried
    tried.clear()
    of_config.remedies(config, dataclasses.replace(found, seconds=60.0))
    assert tried == [False], "only what needs no compiling"


_CHILD = """
import sys
from dorylax.cli import main
main(["info", "--json", *sys.argv[1:]])
code = main(["train", "--no-save", "--epochs", "1", *sys.argv[1:]])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(1024 * int(peak.split()[1]), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_estimate_is_within_15_percent_of_a_run(tmp_path: Path) -> None:
    """In one process, which compiles once; estimating leaves nothing that training would not have."""
    data = dorylax.load("communities", num_vertices=100_000, num_edges=1_000_000, num_features=300, num_classes=8)
    path = tmp_path / "data"
    data.save(path)
    settings = ["model.hidden_features=64", "data.row_normalise=false", "single.order=given", "model.dropout=0"]
    words = ["--data", str(path), "--model", "gcn", *(word for setting in settings for word in ("--set", setting))]
    del data
    line = [sys.executable, "-c", _CHILD, *words]
    child = subprocess.run(line, check=True, capture_output=True, text=True, cwd=_HERE)
    estimated = json.JSONDecoder().raw_decode(child.stdout)[0]["peak"]["bytes"]
    measured = int(child.stderr.split()[-1])
    assert measured > 2**29, "the run is too small to say anything about arrays"
    assert estimated == pytest.approx(measured, rel=0.15)


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
