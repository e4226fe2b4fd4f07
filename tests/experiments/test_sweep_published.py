"""Published numbers in sweep files."""

from __future__ import annotations

import pytest

from dorylax.config import ConfigError
from dorylax.experiments.sweep_file import read

TEXT = """\
simulate: true
base: {graph.name: amazon}
zip: {pipeline.mode: [pipe, async, async], pipeline.staleness: [null, 0, 1]}
compare: {baseline: {pipeline.mode: pipe}}
published:
  source: a paper
  points:
    - {at: {pipeline.mode: async}, dollars: 3, seconds_ratio: 0.5}
    - {at: {pipeline.staleness: 1}, dollars: 4.5}
"""


def test_points_by_setting() -> None:
    sweep = read(TEXT, "s.yaml", "s")
    assert sweep.published.source == "a paper"
    found = [sweep.published.of(run.setting) for run in sweep.runs]
    assert found == [{}, {"dollars": 3.0, "seconds_ratio": 0.5}, {"dollars": 4.5, "seconds_ratio": 0.5}]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "simulate: true\nbase: {graph.name: amazon}",
            "base: {train.epochs: 3}",
            "s.yaml:7: dollars is of simulations, and these runs train: choose from epochs_to",
        ),
        ("  source: a paper\n", "", "s.yaml:5: published must hold source and points, as in"),
        ("source: a paper", "source: 3", "s.yaml:6: source must be text, got 3"),
        (
            "seconds_ratio: 0.5",
            "second_ratio: 0.5",
            r"s.yaml:8: second_ratio is nothing that .* did you mean seconds_ratio",
        ),
        ("dollars: 4.5", "dollars: many", "s.yaml:9: dollars must be a number ≥ 0, got 'many'"),
        ("dollars: 4.5", "dollars: -1", "s.yaml:9: dollars must be a number ≥ 0, got -1"),
        (", dollars: 4.5", "", "s.yaml:9: a point is as in"),
        ("pipeline.staleness: 1}", "pipeline.stalenes: 1}", "s.yaml:9: pipeline.stalenes does not vary: did you mean"),
        ("pipeline.staleness: 1}", "pipeline.staleness: 7}", "s.yaml:9: no run is at "),
        (
            "compare: {baseline: {pipeline.mode: pipe}}\n",
            "",
            "s.yaml:7: seconds_ratio is relative to a baseline: add `compare",
        ),
    ],
)
def test_mistakes_have_their_line(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigError, match=f"^{message}"):
        read(TEXT.replace(old, new, 1), "s.yaml", "s")


TRAINED = """\
base: {data.size: tiny}
zip: {pipeline.mode: [pipe, async, async], pipeline.staleness: [null, 0, 1]}
compare: {baseline: {pipeline.mode: pipe}}
published:
  source: a paper
  points:
    - {at: {pipeline.staleness: 1}, epochs_to_target_ratio: 1.41}
"""


def test_points_of_runs_that_train() -> None:
    sweep = read(TRAINED, "s.yaml", "s")
    assert [sweep.published.of(run.setting) for run in sweep.runs] == [{}, {}, {"epochs_to_target_ratio": 1.41}]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "epochs_to_target_ratio",
            "epoch_to_target_ratio",
            r"s.yaml:7: epoch_to_target_ratio is nothing that training is compared by: did you mean epochs_to",
        ),
        ("epochs_to_target_ratio", "seconds_ratio", "s.yaml:7: seconds_ratio is of simulations, and these runs train"),
        (": 1.41", ": .nan", "s.yaml:7: epochs_to_target_ratio must be a number ≥ 0, got nan"),
        ("staleness: 1}", "staleness: 2}", "s.yaml:7: no run is at "),
        ("    - {at", "    - {of", r"s.yaml:7: a point is as in .*epochs_to_target_ratio: 0.7"),
        (
            "compare: {baseline: {pipeline.mode: pipe}}\n",
            "",
            "s.yaml:6: epochs_to_target_ratio is relative to a baseline: add `compare",
        ),
    ],
)
def test_mistakes_where_runs_train(old: str, new: str, message: str) -> None:
    assert old in TRAINED
    with pytest.raises(ConfigError, match=f"^{message}"):
        read(TRAINED.replace(old, new, 1), "s.yaml", "s")


def test_points_must_be_a_list() -> None:
    text = TEXT[: TEXT.index("  points")] + "  points: 3\n"
    with pytest.raises(ConfigError, match=r"s\.yaml:7: points must be a list, got 3"):
        read(text, "s.yaml", "s")
