"""Parts, padding and sums: the stages of real models on padded parts give what they give on all rows at once."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import zoo
from support.handler_events import RESULTS, SCALE, UNUSED, W, event, expected, rows_of, small_stage
from support.reference import Intervals, ReferenceExecutor, compile_whole

from dorylax.program import optimise, trace
from dorylax.program.artefact.export import export_stages
from dorylax.program.artefact.stage_file import Stage, load
from dorylax.program.rows.types import Rows, Summed
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget, cut
from dorylax.serverless.handler.compute import Inputs, Results, compute_part


@functools.cache
def shared_stage() -> Stage:
    return load(small_stage())


@pytest.fixture
def stage() -> Stage:
    return shared_stage()


def inputs(count: int, **changed: Any) -> Inputs:
    return Inputs(**{"real": count, "rows": rows_of(count), "free": (SCALE,), "weights": (UNUSED, W)} | changed)


def in_parts(stage: Stage, parts: tuple[int, ...], size: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """All rows of `rows_of(sum(parts))`, cut."""
    x, g = rows_of(sum(parts))
    asked = event(parts=parts, size=size)
    results, first = Results(asked.results), 0
    for count in parts:
        rows = (x[first : first + count], g[first : first + count])
        results.add(compute_part(asked, stage, inputs(count, rows=rows)), count)
        first += count
    return results.of_graph_server(), results.of_parameter_server()


@pytest.mark.parametrize(
    ("parts", "size"), [((5,), 5), ((5,), 8), ((1,), 4), ((4, 4), 4), ((4, 1), 4), ((3, 0, 2), 3)], ids=str
)
def test_results_are_those_of_all_real_rows(stage: Stage, parts: tuple[int, ...], size: int) -> None:
    total, *others = expected(*rows_of(sum(parts)))
    of_graph, of_parameters = in_parts(stage, parts, size)
    assert [value.shape for value in of_graph] == [(sum(parts), 3), (), (sum(parts), 4)]
    for found, wanted in zip(of_graph, others, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(of_parameters[0], total, rtol=1e-5)
    assert [value.dtype for value in (*of_graph, *of_parameters)] == [np.float32] * 4


@given(st.integers(1, 12), st.integers(1, 6))
def test_any_cut_gives_the_same(count: int, size: int) -> None:
    stage = shared_stage()
    parts = (size,) * (count // size) + ((count % size,) if count % size else ())
    of_graph, of_parameters = in_parts(stage, parts, size)
    total, *others = expected(*rows_of(count))
    np.testing.assert_allclose(of_graph[0], others[0], rtol=1e-6)
    np.testing.assert_allclose(of_graph[2], others[2], rtol=1e-6)
    np.testing.assert_allclose(of_parameters[0], total, rtol=1e-5, atol=1e-6)


def test_rows_that_are_padded_already_count_as_real_no_more_than_they_are(stage: Stage) -> None:
    x, g = rows_of(8)
    results = Results(RESULTS)
    results.add(compute_part(event(), stage, inputs(5, rows=(x, g))), 5)
    np.testing.assert_allclose(results.of_parameter_server()[0], x[:5].T @ g[:5], rtol=1e-5)
    np.testing.assert_allclose(results.of_graph_server()[2], 1 / x[:5], rtol=1e-6)


def test_padding_repeats_the_last_row_or_is_zero(stage: Stage) -> None:
    x, g = rows_of(5)
    sums, _, _, inverse = compute_part(event(), stage, inputs(5))
    assert inverse.shape == (8, 4)
    np.testing.assert_array_equal(inverse[5:], inverse[[4, 4, 4]])  # 1/0 would be infinite
    np.testing.assert_allclose(sums, x.T @ g, rtol=1e-5)  # the repeated rows meet a g of 0


def test_without_real_rows_the_sums_are_zero_and_what_has_no_rows_is_there(stage: Stage) -> None:
    results = Results(RESULTS)
    values = compute_part(event(parts=(0,)), stage, inputs(0, rows=(rows_of(1)[0][:0], rows_of(1)[1][:0])))
    assert not np.isfinite(values[3]).any()  # rows of zeros: nothing of them may be seen
    results.add([np.full_like(values[0], np.nan), *values[1:]], 0)
    np.testing.assert_array_equal(results.of_parameter_server()[0], np.zeros((4, 3)))
    rows, free, inverse = results.of_graph_server()
    assert (rows.shape, inverse.shape) == ((0, 3), (0, 4))
    assert free == 2 * SCALE


def test_sums_are_added_in_the_order_of_the_parts() -> None:
    # In float32 (1 + 2^-24) + 2^-24 is 1, and 2^-24 + 2^-24 + 1 is more.
    terms = [np.float32(2**-24), np.float32(2**-24), np.float32(1)]
    for order, total in (((0, 1, 2), np.float32(1 + 2**-23)), ((2, 0, 1), np.float32(1))):
        results = Results([ResultTarget("sums")])
        for k in order:
            results.add([np.asarray(terms[k])], 1)
        (found,) = results.of_parameter_server()
        assert isinstance(found, np.ndarray)
        assert (found, found.dtype) == (total, np.float32)


def test_rows_along_another_axis_with_several_entries_each() -> None:
    results = Results([ResultTarget("rows", axis=1, factor=2)])
    values = np.arange(16.0).reshape(2, 8)
    results.add([values], 3)
    results.add([values], 1)
    np.testing.assert_array_equal(results.of_graph_server()[0], np.concatenate([values[:, :6], values[:, :2]], axis=1))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"rows": rows_of(6)},
            r"operand 0 must have 5 or 8 entries along axis 0, for 5 rows padded to 8, got .*\[6, 4\]",
        ),
        ({"rows": (SCALE, SCALE)}, r"operand 0 must have 5 or 8 entries along axis 0.*got shape \[\]"),
        ({"rows": rows_of(5)[:1]}, "operand 3 is one of 'rows', and too few of these came"),
        ({"rows": (*rows_of(5), UNUSED)}, "1 arrays too many came for the operands of 'rows'"),
        ({"free": ()}, "operand 2 is one of 'free', and too few"),
        ({"free": (SCALE, SCALE)}, "1 arrays too many came for the operands of 'free'"),
        ({"weights": (W,)}, "operand 1 is leaf 1 of the weights, got 1 leaves"),
        ({"weights": (UNUSED, W.T)}, r"argument 1 must be float32 \[4, 3\], got float32 \[3, 4\]"),
    ],
    ids=["rows", "rank", "few rows", "many rows", "no free", "many free", "leaf", "shape"],
)
def test_refuses_what_does_not_fit(stage: Stage, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_part(event(), stage, inputs(5, **changed))


def test_refuses_another_number_of_results() -> None:
    with pytest.raises(ValueError, match="must write 4 values, one for each target, got 1"):
        Results(RESULTS).add([W], 3)


# The stages of models


def source_of(program: Any, var: Any, leaves: dict[Any, int]) -> OperandSource:
    found = program.analysis.types[var]
    if isinstance(found, Rows):
        return OperandSource("rows", found.axis, found.factor, zero=var in program.analysis.weighted)
    return OperandSource("weights", leaf=leaves[var]) if var in leaves else OperandSource("free")


def target_of(program: Any, var: Any) -> ResultTarget:
    found = program.analysis.types[var]
    if isinstance(found, Rows):
        return ResultTarget("rows", found.axis, found.factor)
    return ResultTarget("sums" if isinstance(found, Summed) else "free")


@pytest.mark.parametrize("name", ["GATConv", "GINConv", "MPNNConv", "sharing"])
def test_stages_of_models_give_on_padded_parts_what_they_give_on_all_rows(name: str) -> None:
    """In float64, so that only a mistake is larger than rounding."""
    with jax.enable_x64(True):
        case = zoo.ALL[name]
        parts, data = zoo.parts_of(case, "float64"), zoo.data_of(case, "float64")
        program = optimise(trace(parts, zoo.spec_of(case, "float64")))
        calls: list[tuple[int, tuple[Any, ...], list[Any]]] = []
        task_of = {program.interfaces[k].writes[0]: k for k, task in enumerate(program.tasks) if task.kind == "stage"}

        def recording(closed: Any, sizes: dict[str, int]) -> Any:
            function, index = compile_whole(closed, sizes), task_of.get(closed.jaxpr.outvars[0])

            def call(*values: Any) -> list[Any]:
                results = function(*values)
                if index is not None:
                    calls.append((index, values, results))
                return results

            return call

        whole = Intervals.of(data.graph, [0, zoo.V])
        executor = ReferenceExecutor(program, data, whole, compile=recording)
        executor.step(parts.params, parts.streams, parts.state, seed=3, epoch=4)
        stage_set = export_stages(program)
        assert {index for index, _, _ in calls} == set(stage_set.stages)
        stages = {sha256: load(content) for sha256, content in stage_set.artefacts.items()}
        for call in calls:
            check_stage(program, stages, stage_set.stages[call[0]], call)


def check_stage(program: Any, stages: dict[str, Stage], reference: Any, call: tuple[int, Any, Any]) -> None:
    index, values, results = call
    interface = program.interfaces[index]
    params = [var for var in interface.reads if not isinstance(program.analysis.types[var], Rows)][::2]
    leaves = {var: leaf for leaf, var in enumerate(params)}  # every other one, as if it were a parameter
    sources = tuple(source_of(program, var, leaves) for var in interface.reads)
    targets = tuple(target_of(program, var) for var in interface.writes)
    of_kind = {
        kind: [v for v, s in zip(values, sources, strict=True) if s.source == kind] for kind in ("free", "weights")
    }
    rows = [(value, source) for value, source in zip(values, sources, strict=True) if source.source == "rows"]
    space = program.tasks[index].space
    total = zoo.V if space == "vertex" else int(zoo.graph().num_edges)
    loaded = stages[reference.sha256]
    for counts, size in (((total,), total + 3), ((7, 7, total - 14), total + 3)):
        asked = event(reference=reference, size=size, parts=counts, operands=sources, results=targets)
        found, first = Results(targets), 0
        for count in counts:
            mine = [cut(value, source.axis, source.factor, first, first + count) for value, source in rows]
            found.add(compute_part(asked, loaded, Inputs(count, mine, of_kind["free"], of_kind["weights"])), count)
            first += count
        of_graph, of_parameters = iter(found.of_graph_server()), iter(found.of_parameter_server())
        for target, wanted in zip(targets, results, strict=True):
            got = next(of_parameters if target.target == "sums" else of_graph)
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
