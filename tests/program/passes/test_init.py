"""`optimise`: which passes, in which order, and what is on record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dorylax import ops
from dorylax.errors import InputError
from dorylax.program import PASSES, DataSpec, Program, RowSpec, optimise, trace

SPEC = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32"), num_vertices=100, num_edges=900)


def model(params: Any, graph: Any, x: Any) -> Any:
    return ops.gather(graph, ops.gather(graph, x) @ params)


@pytest.fixture(scope="module")
def program() -> Program:
    return trace(model, SPEC, params=np.ones((3, 1), np.float32))


def shape(program: Program) -> list[Any]:
    """What two programs have in common that are split alike."""
    return [
        (task.kind, task.when, task.phase, task.level, task.place, [str(e.primitive) for e in task.equations])
        for task in program.tasks
    ]


def test_names_are_in_the_order_in_which_they_apply() -> None:
    assert PASSES == ("reorder", "prune", "settle", "hoist", "fuse", "rematerialise", "sink", "cut")


def test_all_by_default_and_on_record(program: Program) -> None:
    assert program.passes == ()
    assert optimise(program).passes == PASSES


def test_the_program_before_is_as_it_was(program: Program) -> None:
    before = shape(program)
    optimise(program)
    assert (program.passes, shape(program)) == ((), before)


@pytest.mark.parametrize("names", [("cut",), ("hoist", "fuse"), ("reorder", "sink"), ()])
def test_some_of_them(program: Program, names: tuple[str, ...]) -> None:
    assert optimise(program, names).passes == names


def test_the_order_of_names_does_not_matter(program: Program) -> None:
    forwards, backwards = optimise(program, PASSES), optimise(program, [*reversed(PASSES), "cut"])
    assert backwards.passes == PASSES
    assert shape(forwards) == shape(backwards)


def test_in_steps_it_is_the_same(program: Program) -> None:
    """But for reorder, which looks ahead whether hoist will follow."""
    stepwise = optimise(optimise(optimise(program, ["prune"]), ["hoist", "fuse"]), ["cut"])
    assert stepwise.passes == ("prune", "hoist", "fuse", "cut")
    assert shape(stepwise) == shape(optimise(program, ["prune", "hoist", "fuse", "cut"]))


def test_reorder_is_told_whether_hoist_follows(program: Program) -> None:
    hoisting, not_hoisting = optimise(program, ["reorder", "hoist"]), optimise(program, ["reorder"])
    widths = [
        [t.equations[0].outvars[0].aval.shape[-1] for t in p.tasks if t.kind == "graph" and t.phase == "forward"]
        for p in (hoisting, not_hoisting)
    ]
    assert widths == [[3, 3], [1, 1]]


@pytest.mark.parametrize("names", [["fold"], ["cut", "fold"], ["fuse", "Cut"]])
def test_unknown_names_are_refused(program: Program, names: list[str]) -> None:
    wrong = next(name for name in names if name not in PASSES)
    with pytest.raises(InputError, match=f"unknown pass '{wrong}': there are {', '.join(PASSES)}"):
        optimise(program, names)


@pytest.mark.parametrize("before", PASSES)
def test_no_pass_follows_itself_or_a_later_one(program: Program, before: str) -> None:
    after = optimise(program, [before])
    for name in PASSES[: PASSES.index(before) + 1]:
        message = f"pass {name} cannot follow {before}: passes apply once, in the order reorder, "
        with pytest.raises(InputError, match=message):
            optimise(after, [name])
