"""The cost of programs against bytes counted by hand."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from dorylax.layers import GAT, GCN
from dorylax.ops import gather
from dorylax.program.passes import optimise
from dorylax.program.program import Program, trace
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.view.cost import ProgramCost, cost, is_gather

V, E = 10, 30
SPEC = DataSpec((RowSpec("vertex", (5,)),), RowSpec("vertex", (), "int32", "labels"), num_vertices=V, num_edges=E)


def two_layers(params: Any, graph: Any, x: Any) -> Any:
    hidden = jax.nn.relu(gather(graph, x @ params["a"]))
    return gather(graph, hidden @ params["b"])


@pytest.fixture(scope="module")
def program() -> Program:
    """Rows of 5, 4 and 3 numbers; the loss of a vertex is its label times the sum of its row."""
    params = {"a": np.zeros((5, 4), np.float32), "b": np.zeros((4, 3), np.float32)}
    return trace(two_layers, SPEC, params=params, loss=lambda out, labels: out.sum(-1) * labels, metrics=None)


@pytest.fixture(scope="module")
def costs(program: Program) -> ProgramCost:
    return program.cost()


def only(program: Program, **wanted: Any) -> int:
    """The one task with these attributes."""
    found = [k for k, task in enumerate(program.tasks) if all(getattr(task, a) == v for a, v in wanted.items())]
    assert len(found) == 1
    return found[0]


def test_first_stage(program: Program, costs: ProgramCost) -> None:
    stage = costs.tasks[only(program, kind="stage", phase="forward", level=0)]
    assert stage.row_bytes_in == V * (5 * 4 + 4 + 4)  # features, labels, weights
    assert stage.row_bytes_out == V * (4 * 4 + 4 + 1)  # x·a; labels as floats; whether the weight is not 0
    assert stage.parameter_bytes == 5 * 4 * 4
    assert stage.shipped_bytes == 280 + 210 + 80
    assert stage.flops == 2 * V * 5 * 4 + V + V
    assert stage.gathered_bytes == 0


def test_last_stage_writes_a_sum_and_rows(program: Program, costs: ProgramCost) -> None:
    stage = costs.tasks[only(program, kind="stage", phase="backward", level=2)]
    assert stage.row_bytes_in == V * (4 * 4 + 5 * 4 + 1)
    assert stage.row_bytes_out == V * 5 * 4  # the gradient of the features
    assert stage.parameter_bytes == 2 * (5 * 4 * 4)  # a, and its gradient


@pytest.mark.parametrize(
    ("phase", "level", "width"), [("forward", 0, 4), ("forward", 1, 3), ("backward", 0, 3), ("backward", 1, 4)]
)
def test_gathers(program: Program, costs: ProgramCost, phase: str, level: int, width: int) -> None:
    one = costs.tasks[only(program, kind="graph", phase=phase, level=level)]
    assert one.gathered_bytes == E * (width * 4 + 4)
    assert one.flops == E * width
    assert one.row_bytes_in == one.row_bytes_out == V * width * 4
    assert (one.parameter_bytes, one.shipped_bytes) == (0, 0)


def test_totals(program: Program, costs: ProgramCost) -> None:
    assert costs.epoch.gathered_bytes == 2 * E * (4 * 4 + 4) + 2 * E * (3 * 4 + 4)
    assert costs.epoch.shipped_bytes == sum(one.shipped_bytes for one in costs.tasks)
    assert costs.epoch.flops == sum(one.flops for one in costs.tasks)
    assert (costs.epoch.forward_operators, costs.epoch.backward_operators) == (2, 2)
    assert costs.once.flops == costs.once.shipped_bytes == costs.once.forward_operators == 0
    assert (costs.num_vertices, costs.num_edges, costs.intervals) == (V, E, 1)


def test_every_interval_gets_the_parameters(program: Program, costs: ProgramCost) -> None:
    more = cost(program, intervals=4)
    workers = [k for k, task in enumerate(program.tasks) if task.place == "worker"]
    assert more.epoch.shipped_bytes - costs.epoch.shipped_bytes == 3 * sum(
        costs.tasks[k].parameter_bytes for k in workers
    )
    assert more.epoch.flops == costs.epoch.flops


def test_other_sizes(program: Program, costs: ProgramCost) -> None:
    double = program.cost(num_vertices=2 * V, num_edges=3 * E)
    assert double.epoch.gathered_bytes == 3 * costs.epoch.gathered_bytes
    assert all(b.row_bytes_in == 2 * a.row_bytes_in for a, b in zip(costs.tasks, double.tasks, strict=True))
    assert program.cost(num_edges=0).epoch.gathered_bytes == 0


def test_sizes_that_nobody_knows() -> None:
    spec = DataSpec(SPEC.inputs, SPEC.labels)
    program = trace(GCN(5, 4, 3, rngs=nnx.Rngs(0)), spec)
    with pytest.raises(
        ValueError, match=r"num_vertices is not known: .*Pass num_vertices \(V of the graph\), or trace with"
    ):
        program.cost()
    with pytest.raises(ValueError, match="num_edges is not known"):
        program.cost(num_vertices=3)
    assert program.cost(3, 4).num_edges == 4
    with pytest.raises(ValueError, match="num_edges must be ≥ 0, got -1"):
        program.cost(3, -1)
    with pytest.raises(ValueError, match="intervals must be ≥ 1, got 0"):
        cost(program, 3, 4, intervals=0)


def test_gcn_gathers_at_its_widths_and_counts_edges_apart() -> None:
    """Published order, nothing optimised: the kernel comes first, so that gathers have width 4 and 3 in both directions."""
    program = trace(GCN(5, 4, 3, rngs=nnx.Rngs(0)), SPEC)
    costs = program.cost()
    gathered = [costs.tasks[k].gathered_bytes for k, task in enumerate(program.tasks) if is_gather(task)]
    assert sorted(gathered) == [480, 480, 600, 600]
    names = [task.equations[0].primitive.name for task in program.tasks if task.kind == "graph" and not is_gather(task)]
    assert sorted(names) == ["dorylax_degrees", "dorylax_self_loops"]
    assert (costs.epoch.forward_operators, costs.epoch.backward_operators) == (2, 2)
    assert costs.epoch.gathered_bytes == 2160 + 4 * E  # self_loops reads the neighbours


def test_stages_of_graph_servers_ship_nothing() -> None:
    program = trace(GAT(5, 4, 3, heads=2, rngs=nnx.Rngs(0)), SPEC)
    for task, one in zip(program.tasks, program.cost().tasks, strict=True):
        assert (one.shipped_bytes > 0) == (task.place == "worker")


def test_what_servers_exchange_by_their_ghosts() -> None:
    """Rows of width 4 and 3 over in-edges, and of their cotangents over out-edges; features are read by no gather."""
    program = trace(GCN(5, 4, 3, rngs=nnx.Rngs(0)), SPEC)
    assert (program.cost().exchanged_once, program.cost().exchanged_epoch) == (0, 0)
    found = program.cost(ghosts={"in": (2, 5), "out": (1, 3)})
    assert (found.exchanged_once, found.exchanged_epoch) == (0, (7 + 4) * (4 + 3) * 4)


def test_features_that_are_gathered_are_exchanged_once() -> None:
    """Without dropout; with it, their rows are others in every epoch."""
    ghosts: Any = {"in": (2, 5), "out": (1, 3)}
    found = optimise(trace(GCN(5, 4, 3, dropout=0.0, rngs=nnx.Rngs(0)), SPEC)).cost(ghosts=ghosts)
    assert (found.exchanged_once, found.exchanged_epoch) == (7 * 5 * 4, (7 + 4) * 3 * 4)
    dropped = optimise(trace(GCN(5, 4, 3, rngs=nnx.Rngs(0)), SPEC)).cost(ghosts=ghosts)
    assert (dropped.exchanged_once, dropped.exchanged_epoch) == (0, 7 * 5 * 4 + (7 + 4) * 3 * 4)
