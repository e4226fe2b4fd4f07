"""How often a 2-layer GCN gathers: what is promised of hoist, reorder and prune together."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from support.graphs import messy_graph

from dorylax.layers import GCN
from dorylax.ops import native
from dorylax.program import PASSES, DataSpec, Program, RowSpec, optimise, trace
from dorylax.program.model.base import ModelParts
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.tracing.arguments import RunData, training_weights

F, C = 9, 4
GRAPH = messy_graph()
V, E = int(GRAPH.num_vertices), int(GRAPH.num_edges)
SPEC = DataSpec((RowSpec("vertex", (F,)),), RowSpec("vertex", (), "int32"), num_vertices=V, num_edges=E)
# Hidden rows wider and narrower than the output rows: the second layer gathers at the smaller width.
both_ways = pytest.mark.parametrize(("hidden", "width"), [(7, 4), (3, 3)], ids=["narrows", "widens"])


def gcn(hidden: int, passes: Any = PASSES) -> tuple[ModelParts, Program]:
    parts = take_apart(GCN(F, hidden, C, dropout=0.0, rngs=nnx.Rngs(0)))
    return parts, optimise(trace(parts, SPEC), passes)


def gathers(program: Program, when: str, phase: str) -> list[int]:
    """Widths of the gathers."""
    return [
        task.equations[0].outvars[0].aval.shape[-1]
        for task in program.tasks
        if task.kind == "graph" and task.when == when and task.phase == phase
        if "gather" in task.equations[0].primitive.name
    ]


@both_ways
def test_one_gather_forward_and_one_backward_in_an_epoch(hidden: int, width: int) -> None:
    _, program = gcn(hidden)
    assert gathers(program, "epoch", "forward") == [width]
    assert gathers(program, "epoch", "backward") == [width]
    assert gathers(program, "once", "forward") == [F]
    text = program.describe()
    assert re.search(r"every epoch:.*graph operators: 1 forward, 1 backward", text)


def test_without_passes_there_are_two_and_two() -> None:
    _, program = gcn(7, ())
    assert gathers(program, "epoch", "forward") == [7, C]
    assert gathers(program, "epoch", "backward") == [C, 7]
    assert gathers(program, "once", "forward") == []


def test_dropout_on_the_features_keeps_the_first_layer_in_the_epoch() -> None:
    parts = take_apart(GCN(F, 7, C, dropout=0.5, rngs=nnx.Rngs(0)))
    program = optimise(trace(parts, SPEC))
    assert len(gathers(program, "epoch", "forward")) == 2


@pytest.mark.skipif(not native.status().available, reason="kernel calls are counted where there is the native kernel")
@both_ways
def test_kernel_calls_of_an_epoch(hidden: int, width: int) -> None:
    """Of the compiled step: it has no loops, so that calls in its text are calls in an epoch."""
    parts, program = gcn(hidden)
    rng = np.random.default_rng(0)
    data = RunData(
        GRAPH,
        (rng.normal(size=(V, F)).astype(np.float32),),
        rng.integers(0, C, V).astype(np.int32),
        training_weights(np.arange(V) < V // 2),
    )
    function = program.as_function(V, E)
    prepare = jax.jit(function.prepare).lower(data).compile()

    def epoch(kept: Any, data: RunData, params: Any) -> Any:
        seed = np.uint32(0)
        return function.step(kept, data, params, parts.streams, parts.state, seed=seed, epoch=seed)

    step = jax.jit(epoch).lower(prepare(data), data, parts.params).compile()
    assert kernel_calls(prepare) == [f"f32[{V},1,{F}]"]
    assert kernel_calls(step) == [f"f32[{V},1,{width}]"] * 2
    plain = jax.jit(gcn(hidden, ())[1].as_function(V, E).step).lower(
        (), data, parts.params, parts.streams, parts.state, seed=np.uint32(0), epoch=np.uint32(0)
    )
    assert len(kernel_calls(plain.compile())) > 2


def kernel_calls(compiled: Any) -> list[str]:
    """Shapes of what the native kernels give."""
    lines = [line for line in compiled.as_text().splitlines() if 'custom_call_target="dorylax' in line]
    return [match[1] for line in lines if (match := re.search(r"= (\w+\[[\d,]*\])", line))]
