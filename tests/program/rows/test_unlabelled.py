"""Of which values vertices without a label have no part."""

from __future__ import annotations

from support import zoo

from dorylax.jax_internals import Var
from dorylax.program.passes import optimise
from dorylax.program.program import Program, trace
from dorylax.program.rows.types import Rows, Summed


def program_of(name: str) -> Program:
    case = zoo.ALL[name]
    return optimise(trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32")))


def sums(program: Program) -> set[Var]:
    written = (var for interface in program.interfaces for var in interface.writes)
    return {var for var in written if isinstance(program.analysis.types[var], Summed)}


def test_loss_metric_and_gradients_of_the_last_layer_are_without_them() -> None:
    program = program_of("GCN without dropout")
    nothing = program.analysis.without_unlabelled
    forward, backward = (task.equations[0] for task in program.tasks if task.kind == "graph" and task.when == "epoch")
    assert forward.outvars[0] not in nothing, "every vertex has logits"
    assert backward.invars[0] in nothing, "but only of those with a label the gradient is not 0"
    assert backward.outvars[0] not in nothing, "and a vertex without one has neighbours with one"
    # Weights and biases of the first layer [5, 4], and the weights of the last [4, 3], which are multiplied before a gather.
    of_all = {var for var in sums(program) if 4 in var.aval.shape}
    assert sums(program) & nothing == sums(program) - of_all


def test_only_rows_and_sums_over_rows_are_of_that_kind() -> None:
    for name in ("GCN", "GAT", "GraphSAGE deep"):
        program = program_of(name)
        found = program.analysis.without_unlabelled
        assert {type(program.analysis.types[var]) for var in found} == {Rows, Summed}


def test_what_is_said_of_all_vertices_is_not_of_the_labelled_alone() -> None:
    program = program_of("GCN jumping")
    assert sums(program) - program.analysis.without_unlabelled
