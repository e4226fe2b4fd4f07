"""Sizes of values against numbers counted by hand."""

from __future__ import annotations

from typing import Any

import jax
from jax import export

from dorylax.program.jaxpr.sizes import elements, value_bytes

SIZES = {"n": 7, "e": 30}
N, E = export.symbolic_shape("n, e")


def array(*shape: Any, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def test_bytes() -> None:
    assert elements(array(N, 5), SIZES) == 35
    assert value_bytes(array(N, 5), SIZES) == 140
    assert value_bytes(array(E, 2, dtype="bool"), SIZES) == 60
    assert value_bytes(array(N + 1, 2, dtype="uint32"), SIZES) == 64
    assert value_bytes(array(dtype="float32"), SIZES) == 4
    assert value_bytes(jax.typeof(jax.random.key(0)), SIZES) == 8
