"""Conversion of what `tests/test_inputs.py` does not have: what is kept, and what libraries themselves refuse."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from dorylax.graph.arrays import as_array, class_codes
from dorylax.graph.validate import GraphError


def test_arrays_are_kept_and_tables_of_one_type_are_not_widened() -> None:
    array = np.ones((3, 2), np.int8)
    assert as_array("a", array) is array
    assert as_array("a", pd.DataFrame(array)).dtype == np.int8
    assert as_array("a", pd.DataFrame({"a": pd.array([1, 2], dtype="Int8"), "b": [True, False]})).dtype == np.int8


def test_narrow_types_of_jax() -> None:
    assert as_array("a", jnp.ones(3, jnp.float8_e4m3fn)).dtype == np.float32
    assert as_array("a", jnp.full(3, -8, jnp.int4)).tolist() == [-8] * 3


def test_what_jax_and_torch_cannot_give_is_one_line() -> None:
    with pytest.raises(GraphError, match=r"^a \(PRNGKeyArray\) cannot be read as an array: [^\n]+$"):
        as_array("a", jax.random.split(jax.random.key(0), 3))
    with pytest.raises(GraphError, match=r"^a \(\w+Tracer\) cannot be read as an array: ."):  # JAX adds a note to it
        jax.jit(lambda x: as_array("a", x))(jnp.ones(3))
    torch = pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")
    with pytest.raises(GraphError, match=r"^a \(Tensor\) cannot be read as an array: [^\n]+$"):
        as_array("a", torch.empty(3, device="meta"))


def test_categories_that_are_their_own_codes() -> None:
    column = pd.Series([2, 0, None], dtype=pd.CategoricalDtype([0, 1, 2]))
    codes, names = class_codes("labels", column)
    assert (codes.tolist(), names) == ([2, 0, -1], None)


@pytest.mark.parametrize(
    "given",
    [
        ["b", None, "a", "b", ""],
        np.array(["b", "", "a", "b", ""]),
        np.array(["b", None, "a", "b", np.nan], object),
        pd.Series(["b", None, "a", "b", np.nan], index=range(7, 12)),
        pd.Series(["b", pd.NA, "a", "b", pd.NA], dtype="string"),
        pd.Categorical(["b", None, "a", "b", None]),
    ],
)
def test_text_is_numbered_in_its_order(given: Any) -> None:
    codes, names = class_codes("labels", given)
    assert (codes.tolist(), names) == ([1, -1, 0, 1, -1], ["a", "b"])


def test_text_among_numbers_is_refused() -> None:
    with pytest.raises(GraphError, match=r"^labels\[2\] = 3 stands among text: give every class as text$"):
        class_codes("labels", ["a", None, 3])
    assert class_codes("labels", [[1], [2]]) == ([[1], [2]], None)


def test_only_a_permuted_index_is_ambiguous() -> None:
    values = np.array([5, 6, 7])
    for index in (range(3), range(7, 10), [2, 2, 1], list("bca")):
        assert as_array("a", pd.Series(values, index=index)).tolist() == [5, 6, 7]
    for index in (range(2, -1, -1), [1, 0, 2]):
        with pytest.raises(GraphError, match="numbered in a different order"):
            as_array("a", pd.Series(values, index=index))
