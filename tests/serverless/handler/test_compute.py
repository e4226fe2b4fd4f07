"""Parts, padding and sums: stages of real models give the same results on padded parts as on all rows at once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from support.handler_events import RESULTS, SCALE, UNUSED, W, event, expected, rows_of, small_stage

from dorylax.program.artefact.stage_file import Stage, load
from dorylax.serverless.handler.compute import Inputs, Results, compute_part
from dorylax.serverless.task import ResultTarget


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
    assert not np.isfinite(values[3]).any()  # rows of zeros, which must not show
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
