"""What a comparison varies without saying so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from dorylax.config import RunConfig
from dorylax.experiments.confounding import confounders
from dorylax.experiments.run import main
from dorylax.experiments.sweep import CONFIGS, Sweep, select
from dorylax.experiments.sweep_file import load, read

_GUIDE = Path(__file__).parent.parent.parent / "docs" / "experiments.md"
_PIPELINES = "zip: {pipeline.mode: [pipe, async], pipeline.staleness: [null, 1]}\n"
_BY_MODE = "compare: {baseline: {pipeline.mode: pipe}}\n"


def _read(text: str) -> Sweep:
    return read(text, "s.yaml", "s")


def _with_update_by_mode(sweep: Sweep) -> Sweep:
    """The sweep with the update policies that modes once brought along, which its file does not name."""
    policy = {
        "pipe": {"pipeline.update": "per_epoch"},
        "async": {"pipeline.update": "per_interval", "pipeline.predict_weights": "none"},
    }
    runs = [
        dataclasses.replace(run, config=RunConfig.resolve(run.config.to_dict(), policy[run.setting["pipeline.mode"]]))
        for run in sweep.runs
    ]
    return dataclasses.replace(sweep, runs=tuple(runs))


def _of_the_guide() -> Sweep:
    found = re.search(r'Path\("mine\.yaml"\)\.write_text\("""\n(.*?)"""\)', _GUIDE.read_text(), re.DOTALL)
    # Its model and optimizer are in a file that is not here; what they are does not matter.
    return _read(found[1].replace("mine.py:Residual", "gcn").replace('"mine.py:lion"', "sgd"))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_sweeps_are_valid_and_vary_what_they_name(path: Path) -> None:
    sweep = load(path)
    assert sweep.name == path.stem
    assert sweep.runs
    assert sweep.description
    assert confounders(sweep) == []


@pytest.mark.parametrize(
    ("keys", "hidden"),
    [
        ("grid: {pipeline.staleness: [0, 1, 3]}", "0, 1, 3"),
        ("grid: {pipeline.staleness: [0, null]}", "0, 1"),  # null: the default
        ("grid: {pipeline.staleness: [0, 1], model.name: [gcn, gat]}\nsimulate: true", "0, 1"),
        ("parts: {one: {grid: {pipeline.staleness: [0, 1]}}}", "0, 1"),
        ("grid: {pipeline.staleness: [0, 1, 3], pipeline.freshness: [0.8]}", None),
        ("zip: {pipeline.staleness: [0, 1], pipeline.freshness: [0, 0.8]}", None),
        ("grid: {pipeline.staleness: [1], model.name: [gcn, gat]}", None),
    ],
)
def test_freshness_that_is_not_named_hides_staleness(keys: str, hidden: str | None) -> None:
    found = confounders(_read(f"base: {{pipeline.mode: async, pipeline.servers: 2}}\n{keys}\n"))
    assert [one.partition(", and the sweep")[0] for one in found] == [f"pipeline.staleness is {hidden}"] * bool(hidden)


def test_freshness_in_the_base_is_named() -> None:
    base = "base: {pipeline.mode: async, pipeline.freshness: 0.8}\n"
    assert confounders(_read(f"{base}grid: {{pipeline.staleness: [0, 1]}}\n")) == []


def test_the_guides_ablation_varies_what_it_names() -> None:
    assert confounders(_of_the_guide()) == []


def test_the_guides_ablation_as_it_was_changed_the_update_policy_too() -> None:
    assert confounders(_with_update_by_mode(_of_the_guide())) == [
        "pipeline.update differs between variants that are compared, and the sweep does not name it: "
        "per_epoch (pipe); per_interval (async). "
        "Give it one value in base, or list its values in zip, beside pipeline.mode"
    ]


def test_a_key_that_is_named_may_differ() -> None:
    named = _PIPELINES.replace("}\n", ", pipeline.update: [per_epoch, per_interval]}\n")
    assert confounders(_read(named + _BY_MODE)) == []


def test_recipes_of_models_are_named_key_by_key() -> None:
    lines = confounders(_read("grid: {model.name: [gcn, gat, sage]}\ncompare: {baseline: {model.name: gcn}}\n"))
    assert [line.partition(" ")[0] for line in lines] == [
        *("model.hidden_features", "model.dropout", "optimizer.learning_rate"),
        *("optimizer.weight_decay_on", "train.epochs"),
    ]
    assert "16 (gcn); 8 (gat); 64 (sage). " in lines[0]
    assert "200 (gcn / sage); 1000 (gat). " in lines[4]


def test_options_that_only_some_have_are_no_difference() -> None:
    """Of gat its heads, of async its staleness, of each optimizer its own constants."""
    base = (
        "base: {model.hidden_features: 8, model.dropout: 0.5, optimizer.learning_rate: 0.01, "
        "optimizer.weight_decay_on: all, train.epochs: 5}\n"
    )
    assert confounders(_read(base + "grid: {model.name: [gcn, gat]}\ncompare: {baseline: {model.name: gcn}}\n")) == []
    update = "base: {pipeline.update: per_epoch}\n"
    assert confounders(_read(update + "grid: {pipeline.mode: [pipe, async]}\n" + _BY_MODE)) == []
    optimizers = "grid: {optimizer.name: [adam, adagrad, rmsprop]}\ncompare: {baseline: {optimizer.name: adam}}\n"
    assert confounders(_read(optimizers)) == []


def test_what_is_not_compared_may_differ() -> None:
    """Runs of other groups; a sweep that compares nothing; seeds; what `--only` leaves out."""
    groups = _with_update_by_mode(_read("base: {train.epochs: 5}\ngrid: {model.name: [gcn, gat]}\n" + _PIPELINES))
    assert confounders(groups) == []
    by_model = "compare: {baseline: {model.name: gcn}}\n"
    text = "base: {train.epochs: 5, data.name: cora}\ngrid: {model.name: [gcn, mlp]}\n" + _PIPELINES + by_model
    assert confounders(_with_update_by_mode(_read(text + "seeds: 2\n"))) == []
    ablation = _with_update_by_mode(_of_the_guide())
    assert confounders(select(ablation, [("pipeline.mode", "pipe")])) == []


def test_where_no_single_key_decides_variants_are_told_in_full() -> None:
    text = (
        "base: {train.epochs: 5}\ngrid: {pipeline.servers: [1, 2]}\n"
        + _PIPELINES
        + "compare: {baseline: {pipeline.mode: pipe, pipeline.servers: 1}}\n"
    )
    sweep = _read(text)
    odd = RunConfig.resolve(sweep.runs[-1].config.to_dict(), {"train.eval_every": 2})
    runs = (*sweep.runs[:-1], dataclasses.replace(sweep.runs[-1], config=odd))
    line = next(line for line in confounders(dataclasses.replace(sweep, runs=runs)) if "eval_every" in line)
    assert "1 (servers=1, pipe / servers=1, async S=1 / servers=2, pipe); 2 (servers=2, async S=1). " in line


def test_a_dry_run_a_run_and_the_report_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(
        "base: {data.size: tiny, train.epochs: 1}\n"
        "grid: {data.name: [communities], model.name: [mlp, sgc]}\n"
        "compare: {baseline: {model.name: mlp}}\n"
    )
    said = (
        "optimizer.learning_rate differs between variants that are compared, and the sweep does not name it: "
        "0.01 (mlp); 0.2 (sgc). Give it one value in base, or list its values in zip, beside model.name"
    )
    words = ["--sweep", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    for more in (["--dry-run"], []):
        assert main([*words, *more]) == 0
        assert f"warning: {said}\n" in capsys.readouterr().err
    assert f"- **Warning:** {said}\n" in (tmp_path / "out" / "report.md").read_text()
    assert said in (tmp_path / "out" / "report.html").read_text()
