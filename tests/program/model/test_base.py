from __future__ import annotations

import inspect

import pytest

from dorylax.program.model.base import Keywords, training_flags


@pytest.mark.parametrize(
    ("name", "training"), [("train", True), ("training", True), ("is_training", True), ("deterministic", False)]
)
def test_flags_say_whether_the_model_trains(name: str, training: bool) -> None:
    assert training_flags(["graph", "x", name], training=True) == {name: training}
    assert training_flags(["graph", "x", name], training=False) == {name: not training}


def test_no_flag_is_made_up() -> None:
    assert training_flags(["graph", "x", "trains"], training=True) == {}


def test_keywords_are_what_a_signature_takes_by_name() -> None:
    def call(params, graph, x, weight, pos=None, *, key, train, age): ...  # type: ignore[no-untyped-def]

    found = Keywords.of(inspect.signature(call), given=3, apart=("key",))
    assert found == Keywords(("weight", "pos", "age"), ("weight", "age"))
    assert found.taken(["pos", "age", "other", "train"]) == ("age", "pos")
    every = Keywords.of(inspect.signature(lambda graph, x, **inputs: x), given=2)
    assert every == Keywords(any=True)
    assert every.taken(["b", "a"]) == ("a", "b")
