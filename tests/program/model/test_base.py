from __future__ import annotations

import pytest

from dorylax.program.model.base import Structure, training_flags
from dorylax.program.model.function import FunctionStructure


@pytest.mark.parametrize(
    ("name", "training"), [("train", True), ("training", True), ("is_training", True), ("deterministic", False)]
)
def test_flags_say_whether_the_model_trains(name: str, training: bool) -> None:
    assert training_flags(["graph", "x", name], training=True) == {name: training}
    assert training_flags(["graph", "x", name], training=False) == {name: not training}


def test_no_flag_is_made_up() -> None:
    assert training_flags(["graph", "x", "trains"], training=True) == {}


def test_structures_satisfy_the_contract() -> None:
    assert isinstance(FunctionStructure(print), Structure)
    assert not isinstance(print, Structure)
