"""settle: rows of data alone that are read along edges are made once; the operator that reads them stays in the epoch."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from support import zoo

from dorylax import ops
from dorylax.program import Program, trace
from dorylax.program.passes.split import hoist, settle
from dorylax.program.tasks.steps import lower

SHAPES = {"a": (zoo.F, 4), "b": (4, zoo.C), "w": (1,)}


def _learned_weights(p: Any, g: Any, x: Any, weight: Any) -> Any:
    scaled = jnp.sin(x)  # of data alone
    near = ops.gather(g, scaled, weight * p["w"])
    return ops.gather(g, jnp.tanh(near @ p["a"])) @ p["b"]


CASE = zoo.Case(lambda dtype: (_learned_weights, {k: np.ones(s, dtype) for k, s in SHAPES.items()}), ("x", "weight"))


def _traced(case: zoo.Case = CASE) -> Program:
    return trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"))


def _shapes(program: Program, when: str) -> list[tuple[Any, ...]]:
    """Of what tasks at that time write."""
    pairs = zip(program.tasks, program.interfaces, strict=True)
    return [var.aval.shape for task, interface in pairs if task.when == when for var in interface.writes]


def test_rows_that_never_change_are_made_and_sent_once() -> None:
    before, after = _traced(), settle(_traced())
    assert {one.constant for one in lower(before).publications} == {False}
    constant = [one.var.aval.shape for one in lower(after).publications if one.constant]
    assert [shape[-1] for shape in constant] == [zoo.F]
    assert _shapes(before, "once") == []
    assert _shapes(after, "once") == constant


def test_operators_stay_where_they_are() -> None:
    before, after = _traced(), settle(_traced())
    assert [task.when for task in after.tasks if task.kind == "graph"] == ["epoch"] * sum(
        task.kind == "graph" for task in before.tasks
    )


def test_what_hoist_takes_is_made_once_as_well() -> None:
    """A constant gather goes where it goes without settle."""
    program = _traced(zoo.ALL["GCN without dropout"])
    both, alone = hoist(settle(program)), hoist(program)
    assert [(task.kind, task.when) for task in both.tasks] == [(task.kind, task.when) for task in alone.tasks]
