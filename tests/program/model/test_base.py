from __future__ import annotations

import pytest

from dorylax.program.model.base import training_flags


@pytest.mark.parametrize(
    ("name", "training"), [("train", True), ("training", True), ("is_training", True), ("deterministic", False)]
)
def test_flags_say_whether_the_model_trains(name: str, training: bool) -> None:
    assert training_flags(["graph", "x", name], training=True) == {name: training}
    assert training_flags(["graph", "x", name], training=False) == {name: not training}
