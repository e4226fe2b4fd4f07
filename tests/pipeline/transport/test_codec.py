from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dorylax.errors import RunError
from dorylax.pipeline.transport.codec import Codec


class Letter(NamedTuple):
    number: int
    params: Any
    rest: Any = None


class Stranger(NamedTuple):
    number: int


PARAMS = {"b": {"x": 1}, "a": (2, 3)}
CODEC = Codec([Letter], {"params": jax.tree.structure(PARAMS)})


def there_and_back(payload: Any) -> Any:
    document, found = CODEC.encode(payload)
    return CODEC.decode(document, found)


NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
ARRAYS = arrays.arrays(st.sampled_from([np.float32, np.int64, np.bool_]), arrays.array_shapes(min_dims=0, max_side=3))
PAYLOADS = st.recursive(
    NUMBERS | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.builds(Letter, st.integers(), st.none(), inner)
    ),
    max_leaves=10,
)


@given(PAYLOADS)
def test_what_comes_is_what_was_sent(payload: Any) -> None:
    found = there_and_back(payload)
    assert jax.tree.structure(found) == jax.tree.structure(payload)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(payload), strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def test_a_tree_comes_back_whatever_it_is_made_of() -> None:
    letter = Letter(1, jax.tree.map(jnp.float32, PARAMS))
    found = there_and_back([letter, Letter(2, None)])
    assert jax.tree.structure(found[0].params) == jax.tree.structure(PARAMS)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found[0].params))
    assert found[1] == Letter(2, None)


def test_numbers_of_numpy_and_half_floats_keep_their_types() -> None:
    found = there_and_back([np.float64(1.5), np.ones(2, ml_dtypes.bfloat16), jnp.ones(2), float("nan"), float("inf")])
    assert [getattr(one, "dtype", None) for one in found] == ["float64", "bfloat16", "float32", None, None]
    assert np.isnan(found[3])
    assert found[4] == float("inf")


def test_keys_come_back_as_keys() -> None:
    key = jax.random.key(3)
    (found,) = there_and_back((key,))
    assert found.dtype == key.dtype  # bare words would do for random numbers, too
    assert jax.random.uniform(found) == jax.random.uniform(key)


@pytest.mark.parametrize("payload", [Stranger(1), {1: 2}, object(), {3}, Letter(1, {"other": 1})])
def test_nothing_else_travels(payload: Any) -> None:
    with pytest.raises(RunError):
        CODEC.encode(payload)


@pytest.mark.parametrize(
    "document", [{"a": 1}, {"x": 1}, {}, {"n": ["Stranger", 1]}, {"n": ["Letter", 1]}, {"k": 1}, {"a": 0, "t": []}]
)
def test_what_is_no_document_is_refused(document: Any) -> None:
    with pytest.raises(RunError, match="cannot be read"):
        CODEC.decode(document, [np.zeros(1)])
