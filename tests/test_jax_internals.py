"""What dorylax takes from JAX without a promise: that it is there, does what it is taken for, and is taken in one place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import dorylax
from dorylax.jax_internals import (
    as_written_at,
    first_source_line,
    make_jaxpr_of,
    multiple_of,
    size_at,
    source_lines,
    symbols_of,
    without_lapack,
    without_locations,
    written_at,
    written_somewhere,
)

VECTOR = jax.ShapeDtypeStruct((3,), jnp.float32)


def test_nothing_else_touches_unstable_names() -> None:
    unstable = re.compile(r"\bjax\s*\.\s*(_src|extend|interpreters)\b|from jax import .*\b(_src|extend|interpreters)\b")
    package = Path(dorylax.__file__).parent
    files = [*package.rglob("*.py"), *(package.parent / "layers").rglob("*.py")]
    assert len(files) > 50
    # The loader of artefacts runs where dorylax is not, and does there what `without_lapack` does here.
    touching = {str(file.relative_to(package)) for file in files if unstable.search(file.read_text())}
    assert touching == {"jax_internals.py", "inference/loader.py"}


def test_dimensions() -> None:
    n, e = export.symbolic_shape("n, e")
    assert [symbols_of(dim) for dim in (n, 2 * n + e, 7, np.int64(7))] == [{"n"}, {"n", "e"}, set(), set()]
    assert size_at(n * e - 1, {"n": 3, "e": 5}) == 14
    assert size_at(7, {}) == 7
    assert int(size_at(2 * n, {"n": jnp.int32(4)})) == 8
    assert [multiple_of(dim) for dim in (n, 6 * e)] == [("n", 1), ("e", 6)]
    assert [multiple_of(dim) for dim in (4, n + 1, n * e, n + e, n * n, n // 2)] == [None] * 6


def written_here(x: Any) -> Any:
    return jnp.sin(x)


def test_source_lines() -> None:
    library: dict[str, Any] = {}
    exec(compile("def call(fun, x):\n    return fun(x)", "library.py", "exec"), library)
    (equation,) = make_jaxpr_of(lambda x: library["call"](written_here, x), VECTOR).jaxpr.eqns
    first = next(source_lines(equation))
    assert (Path(first.file).name, first.function) == (Path(__file__).name, "written_here")
    assert first.line == written_here.__code__.co_firstlineno + 1
    assert first_source_line(equation, lambda file: file == first.file) == ("library.py", 2, "call")
    # The innermost line is better than none.
    assert first_source_line(equation, lambda file: True) == first


def test_source_lines_move() -> None:
    (equation,) = make_jaxpr_of(written_here, VECTOR).jaxpr.eqns
    (other,) = make_jaxpr_of(jnp.cos, VECTOR).jaxpr.eqns
    moved = written_at(other, equation)
    assert moved.primitive is other.primitive
    assert next(source_lines(moved)) == next(source_lines(equation))
    with as_written_at(equation):
        (inside,) = make_jaxpr_of(jax.lax.exp, VECTOR).jaxpr.eqns
    assert "written_here" in [line.function for line in source_lines(inside)]
    assert written_somewhere(equation)


def one(x: Any) -> Any:
    return jnp.sin(x) * 2


def two(x: Any) -> Any:
    y = jnp.sin(x)
    return y * 2


def test_exported_functions_without_their_locations_are_equal() -> None:
    exported = [export.export(jax.jit(fun, inline=True), platforms=["cpu"])(VECTOR) for fun in (one, two)]
    stripped = [without_locations(one) for one in exported]
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(stripped[1].call(x), exported[1].call(x))
    texts = [one.mlir_module().replace("jit_one", "f").replace("jit_two", "f") for one in stripped]
    assert texts[0] == texts[1]
    assert not any(b"test_jax_internals.py" in one.mlir_module_serialized for one in stripped)
    assert any(b"test_jax_internals.py" in one.mlir_module_serialized for one in exported)


def test_lapack_is_left_alone_in_this_thread_only_for_a_while() -> None:
    from jax._src.export import _export

    before = _export._ensure_backends_initialized

    def fail() -> None:
        with without_lapack():
            assert _export._ensure_backends_initialized is not before
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert _export._ensure_backends_initialized is before
