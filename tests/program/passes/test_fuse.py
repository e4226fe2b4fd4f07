"""fuse: one stage for both directions of a level; stages that are not worth shipping stay on the graph server."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support import zoo

from dorylax import ops
from dorylax.program import DataSpec, Program, RowSpec, optimise, trace
from dorylax.program import passes as passes_module

fuse = functools.partial(optimise, passes=["fuse"])

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


SPEC = DataSpec((RowSpec("vertex", (8,)),), RowSpec("vertex", (), "int32"), num_vertices=100, num_edges=900)


def of_width(width: int, passes: tuple[str, ...]) -> Program:
    """8 numbers in, `width` out, 16 · width FLOPs: 16 · width / (32 + 4 · width) FLOPs for each byte."""

    def model(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, x @ params)

    return optimise(trace(model, SPEC, params=np.zeros((8, width), np.float32), loss=None), passes)


def places(program: Program) -> list[str]:
    return [task.place for task in program.tasks]


@pytest.mark.parametrize(("width", "place"), [(2, "graph server"), (7, "graph server"), (8, "worker"), (9, "worker")])
def test_two_operations_for_each_byte_are_worth_shipping(width: int, place: str) -> None:
    assert passes_module.SHIPPED_FLOPS_PER_BYTE == 2
    program = of_width(width, ("fuse",))
    assert [task.place for task in program.tasks if any(e.primitive.name == "dot_general" for e in task.equations)] == [
        place
    ]


def test_the_threshold_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes_module, "SHIPPED_FLOPS_PER_BYTE", 1e-9)
    assert "worker" in places(of_width(2, ("fuse",)))
    monkeypatch.setattr(passes_module, "SHIPPED_FLOPS_PER_BYTE", 1e9)
    assert "worker" not in places(of_width(9, ("fuse",)))


def test_without_fuse_nothing_is_placed() -> None:
    assert "graph server" not in [task.place for task in of_width(2, ()).tasks if task.kind == "stage"]


def test_elementwise_stages_are_light() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        return jnp.maximum(ops.gather(graph, x) + params, 0)

    program = optimise(trace(model, SPEC, params=np.zeros(8, np.float32), loss=None), ["fuse"])
    assert set(places(program)) == {"graph server"}


def test_only_stages_are_placed() -> None:
    for task in of_width(9, ("fuse",)).tasks:
        assert (task.kind, task.place) in {("graph", "graph server"), ("stage", "worker"), ("stage", "graph server")}
