from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.parameters.ordered_sum import OrderedSum

# float32 terms of very different size, whose sum depends on the order.
TERMS = [{"w": np.float32(10.0**k) * np.arange(1, 4, dtype=np.float32) / 3, "b": jnp.float32(0.1**k)} for k in range(6)]


@given(st.permutations(range(6)))
def test_the_order_of_arrival_does_not_matter(order: list[int]) -> None:
    total = OrderedSum(6)
    for place in order:
        assert total.total is None
        total.add(place, TERMS[place])
    expected = TERMS[0]
    for term in TERMS[1:]:
        expected = {name: expected[name] + term[name] for name in term}
    assert total.total is not None
    for name, value in expected.items():
        np.testing.assert_array_equal(total.total[name], value)
        assert total.total[name].dtype == np.float32


def test_terms_are_left_as_they_are() -> None:
    term = np.ones(3)
    total = OrderedSum(2)
    total.add(0, term)
    total.add(1, term)
    assert term.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes_are_kept(dtype: str) -> None:
    total = OrderedSum(2)
    for place in range(2):
        total.add(place, np.ones(2, jnp.dtype(dtype)))
    assert total.total is not None
    assert total.total.dtype == jnp.dtype(dtype)
