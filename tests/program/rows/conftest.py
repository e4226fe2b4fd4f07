"""Traces small functions at symbolic numbers of rows, checks them, and compares the check's claims with numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from dorylax.graph.graph import Graph
from dorylax.jax_internals import ClosedJaxpr, is_literal
from dorylax.program.rows.check import infer
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType, Summed
from dorylax.program.tracing.flatten import flatten

N, E = 8, 10  # numbers of vertices and edges where functions are run
VERTEX, EDGE = Rows("vertex", 0), Rows("edge", 0)

# What a function's parameter of this name is: type, shape of a row (or of the value), dtype.
INPUTS: dict[str, tuple[RowType, tuple[int, ...], Any]] = {
    "x": (VERTEX, (6,), jnp.float32),
    "y": (VERTEX, (6,), jnp.float32),
    "col": (VERTEX, (), jnp.float32),
    "cube": (VERTEX, (3, 4), jnp.float32),
    "image": (VERTEX, (6, 6, 2), jnp.float32),
    "ids": (VERTEX, (), jnp.int32),
    "id_pairs": (VERTEX, (2,), jnp.int32),
    "mask": (VERTEX, (), jnp.bool_),
    "a": (EDGE, (4,), jnp.float32),
    "table": (Free(), (5, 6), jnp.float32),
    "w": (Free(), (6, 3), jnp.float32),
    "square": (Free(), (6, 6), jnp.float32),
    "bias": (Free(), (6,), jnp.float32),
    "kernel": (Free(), (4, 1, 3), jnp.float32),
    "kernel2d": (Free(), (3, 3, 2, 4), jnp.float32),
    "scale": (Free(), (), jnp.float32),
    "index": (Free(), (), jnp.int32),
    "picks": (Free(), (3,), jnp.int32),
    "key": (Free(), (), None),
}
_STRUCTURE = [((1, 2), jnp.uint32), ((0,), jnp.int32), ((1, 2), jnp.uint32), ((0,), jnp.int32), ((0,), jnp.int32)]


def _graph(arrays: Sequence[Any]) -> Graph:
    from dorylax.graph.compressed import Adjacency

    return Graph(arrays[0], arrays[1], outgoing=Adjacency(*arrays[2:5]))


# Each function runs a few times on a few rows: compiling is what costs.
_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Harness:
    """The helper of all tests of the row check."""

    def names(self, fun: Callable[..., Any]) -> list[str]:
        return list(inspect.signature(fun).parameters)

    def trace(self, fun: Callable[..., Any]) -> tuple[ClosedJaxpr, list[RowType]]:
        """The jaxpr of a function of named inputs, and the inputs' types."""
        n, e = export.symbolic_shape("n, e")
        specs: list[Any] = []
        types: list[RowType] = []
        for name in self.names(fun):
            if name == "graph":
                shapes = [(n + 1, 2), (e,), (n + 1, 2), (e,), (e,)]
                dtypes = [dtype for _, dtype in _STRUCTURE]
                specs.append([jax.ShapeDtypeStruct(s, d) for s, d in zip(shapes, dtypes, strict=True)])
                types.extend([GraphArray()] * 5)
            elif name == "key":
                specs.append(jax.eval_shape(lambda: jax.random.key(0)))
                types.append(Free())
            else:
                kind, shape, dtype = INPUTS[name]
                if isinstance(kind, Rows):
                    shape = (n if kind.space == "vertex" else e, *shape)  # type: ignore[assignment]
                specs.append(jax.ShapeDtypeStruct(shape, dtype))
                types.append(kind)

        def call(*values: Any) -> Any:
            return fun(*(_graph(v) if name == "graph" else v for name, v in zip(self.names(fun), values, strict=True)))

        return jax.make_jaxpr(call)(*specs), types

    def check(self, fun: Callable[..., Any], *, flat: bool = False, phase: str = "") -> list[RowType]:
        """The types of a function's results."""
        closed, types = self.trace(fun)
        if flat:
            closed = flatten(closed, custom=True)
        found = infer(closed.jaxpr, types, phase=phase)
        return [Free() if is_literal(atom) else found[atom] for atom in closed.jaxpr.outvars]

    def results(
        self, fun: Callable[..., Any], *inputs: tuple[RowType, tuple[Any, ...]], dtype: Any = None
    ) -> list[RowType]:
        """The types of a function's results for inputs of these types and shapes, in which "n" and "2*e" are symbolic."""
        sizes = ", ".join(str(size) for _, shape in inputs for size in shape if isinstance(size, str)) or "n"
        symbols = iter(export.symbolic_shape(sizes))
        specs = [
            jax.ShapeDtypeStruct(
                tuple(next(symbols) if isinstance(size, str) else size for size in shape), dtype or jnp.float32
            )
            for _, shape in inputs
        ]
        closed = jax.make_jaxpr(fun)(*specs)
        found = infer(closed.jaxpr, [kind for kind, _ in inputs])
        return [Free() if is_literal(atom) else found[atom] for atom in closed.jaxpr.outvars]

    def gradient(self, fun: Callable[..., Any], results: Sequence[RowType]) -> Callable[..., Any]:
        """A function of the same inputs: results, and gradients towards inputs of real numbers.

        The cotangents of rows differ from row to row; those of sums are 1, as that of a loss.
        """
        names = self.names(fun)
        changed = [k for k, name in enumerate(names) if name in INPUTS and INPUTS[name][2] == jnp.float32]

        def joint(*values: Any) -> list[Any]:
            def part(*some: Any) -> list[Any]:
                arguments = list(values)
                for k, value in zip(changed, some, strict=True):
                    arguments[k] = value
                return [leaf for leaf in jax.tree.leaves(fun(*arguments)) if jnp.issubdtype(leaf.dtype, jnp.floating)]

            out, pullback = jax.vjp(part, *(values[k] for k in changed))
            return [*out, *pullback([jnp.ones_like(y) if Summed() in results else jnp.cos(y) for y in out])]

        joint.__signature__ = inspect.signature(fun)  # type: ignore[attr-defined]
        return joint

    def inputs_of_gradient(self, fun: Callable[..., Any]) -> list[RowType]:
        """The types of the inputs that `gradient` differentiates towards."""
        names = [name for name in self.names(fun) if name in INPUTS]
        return [INPUTS[name][0] for name in names if INPUTS[name][2] == jnp.float32]

    def values(self, fun: Callable[..., Any], seed: int = 0) -> list[Any]:
        """Numbers for each input."""
        rng = np.random.default_rng(seed)
        values: list[Any] = []
        for name in self.names(fun):
            if name == "key":
                values.append(jax.random.key(0))
                continue
            kind, shape, dtype = INPUTS[name]
            if isinstance(kind, Rows):
                shape = (N if kind.space == "vertex" else E, *shape)
            if jnp.issubdtype(dtype, jnp.integer):
                value: Any = rng.integers(0, 3, shape)
            else:
                value = rng.normal(size=shape) if dtype == jnp.float32 else rng.random(shape) < 0.5
            values.append(jnp.asarray(value, dtype))
        return values

    def prove_numerically(self, fun: Callable[..., Any], results: Sequence[RowType], *, sizes: bool = True) -> None:
        """Asserts what the types of the results claim.

        Args:
            fun: the function.
            results: the types that the check gave for its results.
            sizes: whether the function may be run on some rows only (not if it reads how many there are).
        """
        names, values, other = self.names(fun), self.values(fun, 0), self.values(fun, 1)
        kinds = [INPUTS[name][0] for name in names]
        compiled = jax.jit(lambda *v: jax.tree.leaves(fun(*v)), compiler_options=_QUICK)

        def run(*arguments: Any) -> list[np.ndarray]:
            return [np.asarray(result) for result in compiled(*arguments)]

        def mixed(changed: dict[str, np.ndarray]) -> list[np.ndarray]:
            """Results where the chosen rows have other values."""
            return run(
                *(
                    jnp.where(changed[k.space].reshape(-1, *(1,) * (v.ndim - 1)), o, v) if isinstance(k, Rows) else v
                    for k, v, o in zip(kinds, values, other, strict=True)
                )
            )

        def some(rows: dict[str, list[int]]) -> list[np.ndarray]:
            """Results where there are only these rows."""
            return run(
                *(
                    v[np.asarray(rows[k.space])] if isinstance(k, Rows) else v
                    for k, v in zip(kinds, values, strict=True)
                )
            )

        whole = run(*values)
        assert len(whole) == len(results)
        first = {"vertex": np.arange(N) % 3 == 0, "edge": np.arange(E) % 2 == 0}
        second = {space: ~rows for space, rows in first.items()}
        one, two, both = mixed(first), mixed(second), mixed({space: first[space] | second[space] for space in first})
        for kind, base, a, b, ab in zip(results, whole, one, two, both, strict=True):
            if isinstance(kind, Rows):
                kept = _of_rows(kind, np.flatnonzero(second[kind.space]))
                _assert_close(np.take(a, kept, kind.axis), np.take(base, kept, kind.axis))
            elif isinstance(kind, Summed):
                _assert_close(_real(a) + _real(b), _real(base) + _real(ab))
            else:
                _assert_close(a, base)
        if not sizes:
            return
        parts = [{"vertex": [5, 0, 3, 7], "edge": [8, 1, 2, 5, 9]}, {"vertex": [1, 2, 4, 6], "edge": [0, 3, 4, 6, 7]}]
        pieces = [some(part) for part in parts]
        for k, (kind, base) in enumerate(zip(results, whole, strict=True)):
            if isinstance(kind, Rows):
                for part, piece in zip(parts, pieces, strict=True):
                    _assert_close(piece[k], np.take(base, _of_rows(kind, np.asarray(part[kind.space])), kind.axis))
            elif isinstance(kind, Summed):
                _assert_close(sum(_real(piece[k]) for piece in pieces), _real(base))


def _of_rows(kind: Rows, rows: np.ndarray) -> np.ndarray:
    """The entries of the axis that belong to these rows."""
    return (rows[:, None] * kind.factor + np.arange(kind.factor)).reshape(-1)


def _real(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind in "biuf" else array


def _assert_close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


@pytest.fixture(scope="session")
def rows() -> Harness:
    """Traces, checks and compares."""
    return Harness()
