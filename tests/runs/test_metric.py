"""What everyone who compares metrics knows of them."""

from __future__ import annotations

import pytest

from dorylax.runs.metric import METRICS, score_in


@pytest.mark.parametrize("name", ["accuracy", "roc_auc", "r2"])
def test_more_is_better(name: str) -> None:
    kind = METRICS[name]
    assert kind.better(0.7, 0.6)
    assert not kind.better(0.6, 0.6)
    assert kind.reaches(0.6, 0.6)
    assert not kind.reaches(0.5, 0.6)


@pytest.mark.parametrize("name", ["loss", "mae", "rmse"])
def test_less_is_better(name: str) -> None:
    kind = METRICS[name]
    assert kind.better(0.6, 0.7)
    assert not kind.better(0.6, 0.6)
    assert kind.reaches(0.6, 0.6)
    assert not kind.reaches(0.7, 0.6)


def test_fractions_are_shown_in_per_cent() -> None:
    assert METRICS["macro_f1"].shown(0.815) == "81.5 %"
    assert METRICS["mae"].shown(1.5) == "1.5000"


def test_a_summary_has_one_score_whatever_it_is_called() -> None:
    assert score_in({"val_accuracy": 0.0}, "val") == 0.0
    assert score_in({"val_accuracy": None, "val_score": 0.5}, "val") == 0.5
    assert score_in({"val_accuracy": None, "val_loss": 2.0}, "val") == 2.0
    assert score_in({"val_accuracy": None}, "test") is None
