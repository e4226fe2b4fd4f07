"""What an evaluation leaves in memory."""

from __future__ import annotations

import pytest

import dorylax
from dorylax.config import RunConfig
from dorylax.trainer import Trainer


def _config(**overrides: object) -> RunConfig:
    return RunConfig.resolve(
        {"data.size": "tiny", "train.epochs": 1}, {k.replace("__", "."): v for k, v in overrides.items()}
    )


@pytest.mark.parametrize(("dropout", "given_back"), [(0.0, True), (0.5, False)])
def test_features_that_steps_do_not_read_are_given_back(
    dropout: float, given_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once after hoisting, then after each evaluation."""
    data = dorylax.load("communities", size="tiny")
    found: list[object] = []
    monkeypatch.setattr("dorylax.trainer.loop.release", lambda *arrays: found.extend(arrays))
    Trainer.from_config(_config(model__dropout=dropout, train__epochs=2), data).fit()
    assert len(found) == (3 if given_back else 0)
    assert all(array is data.features for array in found)
