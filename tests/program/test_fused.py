"""Fused operators in programs: in one piece for one machine, written out for all others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.graphs import messy_graph
from support.reference import Intervals, ReferenceExecutor

from dorylax import ops
from dorylax.layers import GATConv
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.ops.row_operators import operator_on_rows
from dorylax.program import DataSpec, optimise, trace
from dorylax.program.model.kinds import take_apart
from dorylax.program.program import Program
from dorylax.program.tracing.arguments import RunData
from dorylax.program.tracing.spec import RowSpec

V, E = 14, 60
GRAPH = messy_graph(V, E)
X = np.random.default_rng(0).normal(size=(V, 5)).astype(np.float32)
SPEC = DataSpec((RowSpec("vertex", (5,)),), RowSpec("vertex", (), "int32", "labels"), num_vertices=V, num_edges=E)
FUSED = {name for name, operator in OPERATORS.items() if operator.written_out}
RUN = RunData(GRAPH, (X,), np.arange(V, dtype=np.int32) % 3, np.full(V, 1 / V, np.float32))


class Gat(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs, dropout: float = 0.0) -> None:
        self.first = GATConv(5, 4, heads=2, attention_dropout=dropout, rngs=rngs)
        self.last = GATConv(8, 3, heads=1, concat=False, rngs=rngs)

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.last(graph, nnx.elu(self.first(graph, x)))


def names(program: Program) -> list[str]:
    return [task.equations[0].primitive.name for task in program.tasks if task.kind == "graph"]


def test_one_machine_runs_one_operator_per_layer_and_direction() -> None:
    program = optimise(trace(Gat(rngs=nnx.Rngs(0)), SPEC, fused=True))
    wanted = ["dorylax_attention_saving"] * 2 + ["dorylax_attention_backward"] * 2
    assert [name for name in names(program) if name != "dorylax_self_loops"] == wanted
    assert "attention_backward" in program.describe()
    costs = zip(program.tasks, program.cost().tasks, strict=True)
    read = [cost.gathered_bytes for task, cost in costs if task.kind == "graph" and task.space == "vertex"]
    assert read[-1] == 4 * E + 4 * E * (8 + 3 * 2) + 4 * V * (
        3 * 8 + 2 + 1
    )  # ct, t, shift, scale; z, y, tilt, s, loops
    forward = optimise(trace(Gat(rngs=nnx.Rngs(0)), SPEC, loss=None, fused=True))
    assert [name for name in names(forward) if name != "dorylax_self_loops"] == ["dorylax_attention"] * 2


def test_others_see_what_it_is_made_of() -> None:
    found = names(optimise(trace(Gat(rngs=nnx.Rngs(0)), SPEC)))
    assert FUSED.isdisjoint(found)
    assert {"dorylax_edge_softmax", "dorylax_gather_weighted", "dorylax_edge_dot"} <= set(found)


def test_dropout_of_coefficients_is_not_fused() -> None:
    found = names(trace(Gat(rngs=nnx.Rngs(0), dropout=0.5), SPEC, fused=True))
    assert found.count("dorylax_edge_softmax") == 1
    assert found.count("dorylax_attention_saving") == 1


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_both_compute_the_same(cut: bool) -> None:
    model = Gat(rngs=nnx.Rngs(0))
    parts = take_apart(model, GRAPH, X)
    given = parts.params, parts.streams, parts.state
    results = []
    for fused in (False, True):
        program = optimise(trace(model, SPEC, fused=fused))
        if cut:
            results.append(ReferenceExecutor(program, RUN, Intervals.even(GRAPH, 3)).step(*given))
        else:
            function = program.as_function(V, E)
            results.append(
                jax.jit(function.step)(function.prepare(RUN), RUN, *given, seed=np.uint32(0), epoch=np.uint32(0))
            )
    for one, other in zip(*(jax.tree.leaves((r.loss, r.gradients)) for r in results), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_derivatives_inside_a_model_are_written_out_too() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        def energy(x: Any) -> Any:
            s = x @ params["s"]
            return (ops.additive_attention(graph, x[:, None, :], s[:, None], -s[:, None]) ** 2).sum(axis=(1, 2))

        return jax.jvp(energy, (x,), (jnp.ones_like(x),))[1][:, None] * params["s"][:3]

    params = {"s": jnp.linspace(-1, 1, 5)}
    assert FUSED.isdisjoint(names(trace(model, SPEC, params=params)))
    assert "dorylax_attention_tangent" in names(trace(model, SPEC, params=params, fused=True))


def test_graph_servers_refuse_them_by_name() -> None:
    for name in FUSED:
        with pytest.raises(ValueError, match="fused operator, which runs on a whole graph only: trace the model"):
            operator_on_rows(name)
