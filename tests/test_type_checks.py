"""Functions inside functions are checked, each by its own annotations, and their checks are compiled once."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError, jaxtyped
from support import type_checks


def adder(number: int, kind: Any, default: Any = None) -> Callable[..., Any]:
    def add(other: kind = default) -> kind:
        return number + other if isinstance(number, type(other)) else "wrong"

    return jaxtyped(add, typechecker=type_checks.checked)


def test_arguments_and_results_of_inner_functions_are_checked() -> None:
    for number in (1, 2):
        add = adder(number, int)
        assert add(3) == number + 3
        with pytest.raises(TypeCheckError, match="parameter 'other'"):
            add("3")
        with pytest.raises(TypeCheckError, match="return value"):
            adder(1.5, int)(3)


def test_the_package_is_checked() -> None:
    from dorylax.memory.estimate import gibibytes

    assert gibibytes(2**30) == "1.0 GiB"
    with pytest.raises(TypeCheckError, match="'a lot'"):
        gibibytes("a lot")  # type: ignore[arg-type]


def test_shapes_are_checked() -> None:
    from dorylax.ops.row_random import row_bits

    key = jax.random.key(0)
    assert row_bits(key, jnp.arange(2), 3).shape == (2, 3)
    with pytest.raises(TypeCheckError, match="parameter 'ids'"):
        row_bits(key, jnp.zeros((2, 2), jnp.int32), 3)
