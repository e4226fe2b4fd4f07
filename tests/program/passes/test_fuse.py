"""fuse: one stage for both directions of a level; light stages stay on the graph server."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support import zoo

from dorylax.program import Program, optimise, trace
from dorylax.program.passes.split import fuse

NAMES = ["GCN", "MPNN", "sharing"]


@pytest.fixture(scope="module", params=NAMES)
def program(request: Any) -> Program:
    case = zoo.ALL[request.param]
    return optimise(trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32")), ["prune", "hoist"])


def stages(program: Program) -> list[tuple[str, int, str | None]]:
    return [(task.when, task.level, task.space) for task in program.tasks if task.kind == "stage"]


def test_one_stage_for_each_level_and_space(program: Program) -> None:
    assert max(Counter(stages(program)).values()) == 2
    fused = fuse(program)
    assert max(Counter(stages(fused)).values()) == 1
    assert set(stages(fused)) == set(stages(program))
    assert fused.passes == ("prune", "hoist", "fuse")


def test_the_last_level_is_one_task_with_the_loss_and_its_gradient(program: Program) -> None:
    loss = program.traced.step.jaxpr.outvars[0]
    (apart,) = [task for task in program.tasks if loss in task.defined]
    (joined,) = [task for task in fuse(program).tasks if loss in task.defined]
    assert (apart.phase, joined.phase) == ("forward", "both")
    assert joined.defined > apart.defined


def test_graph_operators_stay_as_they_are(program: Program) -> None:
    before, after = ([t for t in p.tasks if t.kind == "graph"] for p in (program, fuse(program)))
    assert [(t.equations, t.when, t.phase, t.level) for t in before] == [
        (t.equations, t.when, t.phase, t.level) for t in after
    ]


def test_fewer_bytes_are_shipped(program: Program) -> None:
    before, after = (p.cost(20_000, 300_000).epoch.shipped_bytes for p in (program, fuse(program)))
    assert after < before
