"""Which stages are worth shipping."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.program import DataSpec, Program, RowSpec, optimise, trace
from dorylax.program.passes import split

SPEC = DataSpec((RowSpec("vertex", (8,)),), RowSpec("vertex", (), "int32"), num_vertices=100, num_edges=900)


def traced(width: int, passes: tuple[str, ...]) -> Program:
    """8 numbers in, `width` out, 16 · width FLOPs: 16 · width / (32 + 4 · width) FLOPs for each byte."""

    def model(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, x @ params)

    return optimise(trace(model, SPEC, params=np.zeros((8, width), np.float32), loss=None), passes)


def places(program: Program) -> list[str]:
    return [task.place for task in program.tasks]


@pytest.mark.parametrize(("width", "place"), [(2, "graph server"), (7, "graph server"), (8, "worker"), (9, "worker")])
def test_two_operations_for_each_byte_are_worth_shipping(width: int, place: str) -> None:
    assert split.SHIPPED_FLOPS_PER_BYTE == 2
    program = traced(width, ("fuse",))
    assert [task.place for task in program.tasks if any(e.primitive.name == "dot_general" for e in task.equations)] == [
        place
    ]


def test_the_threshold_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "SHIPPED_FLOPS_PER_BYTE", 1e-9)
    assert "worker" in places(traced(2, ("fuse",)))
    monkeypatch.setattr(split, "SHIPPED_FLOPS_PER_BYTE", 1e9)
    assert "worker" not in places(traced(9, ("fuse",)))


def test_without_fuse_nothing_is_placed() -> None:
    assert "graph server" not in [task.place for task in traced(2, ()).tasks if task.kind == "stage"]


def test_elementwise_stages_are_light() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        return jnp.maximum(ops.gather(graph, x) + params, 0)

    program = optimise(trace(model, SPEC, params=np.zeros(8, np.float32), loss=None), ["fuse"])
    assert set(places(program)) == {"graph server"}


def test_only_stages_are_placed() -> None:
    for task in traced(9, ("fuse",)).tasks:
        assert (task.kind, task.place) in {("graph", "graph server"), ("stage", "worker"), ("stage", "graph server")}
