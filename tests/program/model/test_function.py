from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from dorylax.program.model.function import take_apart

X = np.ones((5, 3), np.float32)
PARAMS = {"w": np.full((3,), 2, np.float32)}


def plain(params: Any, graph: Any, x: Any) -> Any:
    return x * params["w"]


def random(params: Any, graph: Any, x: Any, *, key: Any, training: bool) -> Any:
    return x * jax.random.bernoulli(key, 0.5, x.shape) if training else x


def test_a_function_without_randomness() -> None:
    parts = take_apart(plain, PARAMS)
    assert (parts.name, parts.params, parts.streams, parts.state) == ("plain", PARAMS, {}, {})
    output, state = parts.structure.apply_train(PARAMS, {}, {}, None, X)
    np.testing.assert_array_equal(output, 2 * X)
    assert state == {}
    np.testing.assert_array_equal(parts.structure.apply_evaluate(PARAMS, {}, {}, None, X), 2 * X)


def test_a_function_with_a_key_and_a_flag() -> None:
    parts = take_apart(random, PARAMS)
    assert set(parts.streams) == {"key"}
    output, _ = parts.structure.apply_train(PARAMS, parts.streams, {}, None, X)
    np.testing.assert_array_equal(output, jax.random.bernoulli(parts.streams["key"], 0.5, X.shape) * X)
    np.testing.assert_array_equal(parts.structure.apply_evaluate(PARAMS, parts.streams, {}, None, X), X)


@pytest.mark.parametrize("params", [None, {}, {"w": ()}])
def test_parameters_must_be_given(params: Any) -> None:
    with pytest.raises(ValueError, match=r"model plain has no parameters: give params=…, the first argument"):
        take_apart(plain, params)
