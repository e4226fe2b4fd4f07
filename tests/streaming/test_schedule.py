"""In which sweep over the rows each task runs."""

from __future__ import annotations

from typing import Any

from flax import nnx
from support import zoo

from dorylax.layers import GCN
from dorylax.program.passes import optimise
from dorylax.program.program import Program, trace
from dorylax.streaming.schedule import Schedule, schedule


def program_of(name: str) -> Program:
    case = zoo.ALL[name]
    return optimise(trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32")))


def kinds(found: Schedule) -> list[list[str]]:
    return [[step.kind for step in sweep.every] for sweep in found.sweeps]


def test_a_gcn_takes_three_sweeps() -> None:
    found = schedule(program_of("GCN without dropout"), "epoch", symmetric=True)
    assert kinds(found) == [["stage"], ["gather", "stage"], ["gather", "stage"], ["driver"]]
    first, second, third, _ = found.sweeps
    assert not found.reads_index(first)
    assert found.reads_index(second)
    assert found.reads_index(third)
    (hidden,) = second.steps[0].through_edges
    assert hidden in first.steps[0].writes
    assert hidden in found.whole
    (gathered,) = second.steps[0].writes
    assert gathered not in found.kept, "what only the unit needs never exists for all rows"


def test_where_edges_have_no_reverse_gradients_are_added_up_at_sources() -> None:
    found = schedule(program_of("GCN without dropout"), "epoch", symmetric=False)
    pushed = [step for sweep in found.sweeps for step in sweep.steps if step.kind == "push"]
    assert len(pushed) == 1
    assert set(pushed[0].writes) <= found.pushed <= found.whole
    assert not pushed[0].through_edges, "what it reads are its unit's own rows"
    assert kinds(found) == [["stage"], ["gather", "stage", "push"], ["stage"], ["driver"]]


def test_values_of_edges_are_pushed_on_any_graph() -> None:
    found = schedule(program_of("GAT"), "epoch", symmetric=True)
    assert any(step.kind == "push" for sweep in found.sweeps for step in sweep.steps)


def test_a_task_in_blocks_runs_before_a_sweep_and_its_rows_are_read_in_order() -> None:
    program = program_of("GCN without dropout")
    plain = schedule(program, "epoch", symmetric=True)
    gather = plain.sweeps[1].steps[0]
    found = schedule(program, "epoch", symmetric=True, blocked=[gather.index])
    assert kinds(found) == [["stage"], ["gather", "stage"], ["gather", "stage"], ["driver"]]
    assert gather.through_edges[0] not in found.whole
    assert gather.through_edges[0] in found.kept
    assert gather.writes[0] in found.streams(found.sweeps[1])


def test_what_two_programs_compute_once_has_one_key() -> None:
    def keys(loss: bool) -> set[str]:
        options: Any = {} if loss else {"loss": None, "metrics": None}
        model = GCN(zoo.F, 4, zoo.C, dropout=0.0, rngs=nnx.Rngs(0))
        case = zoo.ALL["GCN"]
        program = optimise(trace(model, zoo.spec_of(case, "float32"), **options))
        return set(program.traced.described(program.traced.step.jaxpr, program.kept_of_once))

    assert keys(loss=False) <= keys(loss=True)
    assert keys(loss=False)


def test_what_is_computed_once_is_kept() -> None:
    program = program_of("GCN without dropout")
    kept = set(program.kept_of_once)
    assert kept
    once = {var for task in program.tasks if task.when == "once" for var in task.defined}
    assert kept <= once


def test_the_sweep_of_the_loss_is_for_labelled_vertices_alone() -> None:
    found = schedule(program_of("GCN without dropout"), "epoch", symmetric=True)
    assert [found.for_labelled(sweep) for sweep in found.sweeps] == [False, True, False, False]
    found = schedule(program_of("APPNP"), "epoch", symmetric=True)
    assert sum(map(found.for_labelled, found.sweeps)) == 1, "of ten gathers forward the last"


def test_the_first_sweep_backward_goes_through_edges_from_labelled_vertices_alone() -> None:
    found = schedule(program_of("GCN without dropout"), "epoch", symmetric=True)
    assert [found.from_labelled(sweep) for sweep in found.sweeps] == [False, False, True, False]
    found = schedule(program_of("APPNP"), "epoch", symmetric=True)
    assert sum(map(found.from_labelled, found.sweeps)) == 1, "of ten gathers backward the first"


def test_a_sweep_that_makes_more_than_the_loss_needs_is_for_all_vertices() -> None:
    for name in ("GAT", "GCN jumping", "MLP"):
        found = schedule(program_of(name), "epoch", symmetric=True)
        assert not any(map(found.for_labelled, found.sweeps))
