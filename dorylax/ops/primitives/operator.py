"""A graph operator: one record of all that is known about it, and a JAX primitive with its rules.

A graph primitive takes *dense* operands (values per vertex `[V, H, F]` or per edge `[E, H]`, `[E, H, F]`) followed by
the five arrays of the graph's *structure*, and usually a static `direction`: "in" computes a row per vertex over its in-
edges, "out" over its out-edges. All primitives take the whole structure, so that a transposed operator finds the
reverse rows at hand; what a lowering does not read costs nothing.

Whoever splits, prices, names or runs operators looks them up in `OPERATORS`: nothing else lists them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import Primitive, ShapedArray, ad, apply_primitive, batching, mlir
from dorylax.ops.primitives.structure import Direction, Structure, num_rows
from dorylax.ops.row_loops.loops import Loops
from dorylax.ops.row_loops.rows import Entries

PREFIX = "dorylax_"
"""What the names of graph primitives begin with in jaxprs."""

TRANSCENDENTAL = 10
"""Operations that one exp, log, tanh, square root, … counts as: about what a vectorised polynomial takes."""

Role = Literal["own", "neighbour", "edge"]
"""Whose values an operand holds, seen from an entry of a row: of the row's "own" vertex, of the "neighbour" at the entry's
other end, or of the "edge" itself."""

Label = Literal["GA", "SC", "AE", "count"]
"""What an operator does, in the vocabulary of Dorylus: it gathers along edges into vertices, scatters vertices' values to
edges, computes edge by edge, or only counts edges, so that no values move."""


class OperandSpec(NamedTuple):
    """A dense operand.

    Attributes:
        role: whose values it holds.
        axes: how many axes it has: 3 for values `[…, H, F]`, 2 for weights and scores `[…, H]`, 1 for `[…]`.
        role_in: its role where the direction is "in", if that is another.
    """

    role: Role
    axes: int = 3
    role_in: Role | None = None


class ResultSpec(NamedTuple):
    """A result, with one row per vertex or per edge.

    Attributes:
        like: the dense operand whose heads, columns and dtype it has, if there are operands.
        axes: how many axes it has.
        per_edge: whether its rows belong to edges, in the order of slots, and not to vertices.
        dtype: `dtypes of the operands -> dtype`, if it is not that of `like`.
    """

    like: int = 0
    axes: int = 3
    per_edge: bool = False
    dtype: Callable[[Sequence[Any]], Any] | None = None


class CallSizes(NamedTuple):
    """How much one call of an operator computes.

    Attributes:
        rows: vertices.
        entries: edges.
        widths: elements of a row of each dense operand: heads × columns.
    """

    rows: int
    entries: int
    widths: tuple[int, ...]


def per_entry(each: int) -> Callable[[CallSizes], int]:
    """So many operations for each entry and column of the first operand, as `flops` of an operator."""
    return lambda sizes: each * sizes.entries * sizes.widths[0]


OPERATORS: dict[str, Operator] = {}
"""Every graph operator, by the name of its primitive."""


class Operator:
    """A graph operator; call it like a function of `(*dense, structure, **params)`.

    Args:
        name: the primitive's name in jaxprs, after `PREFIX`.
        operands: its dense operands.
        results: its results. One that runs over rows by source gives none per edge: edges are numbered by destination.
        label: what it does, in the vocabulary of Dorylus.
        flops: how many operations a call takes.
        lower: `(*dense, structure, **params) -> result` in JAX, for every platform; a sequence if there are several.
        lower_cpu: the same on CPU; `lower` if None.
        abstract: `(*dense, structure, **params) -> ShapedArray`, where parameters decide what `results` cannot say.
        compute_rows: `(loops, params, operands, rows, results)` fills in the results for some rows, in NumPy arrays, which
            is how a graph server runs it; None where it only runs on a whole graph.
        several: whether the primitive returns a sequence of results (`multiple_results` of JAX), be it of one.
        written_out: of a *fused* operator, which others make up: itself in those others,
            `(*dense, structure, **params) -> results`. It is what a program sees that must be split.
        compares_ends: whether it reads the neighbours' numbers, although it has no operand of theirs.
        choice_at_destination: whether which entries take part is known at their destination only, though no operand is
            per edge.
        commutes_with_products: whether it is the same linear map of the first operand's rows in every column, so that a
            product of rows with a matrix may be taken before it or after it.
        columns_apart: whether each column of its result is made of that column of its operands of three axes, so that it may
            be run on some columns after the other.

    Raises:
        ValueError: there is an operator of this name.
    """

    def __init__(
        self,
        name: str,
        operands: Sequence[OperandSpec],
        results: Sequence[ResultSpec],
        *,
        label: Label,
        flops: Callable[[CallSizes], int],
        lower: Callable[..., Any],
        lower_cpu: Callable[..., Any] | None = None,
        abstract: Callable[..., Any] | None = None,
        compute_rows: Callable[[Loops, Mapping[str, Any], list[np.ndarray], Entries, list[np.ndarray]], None]
        | None = None,
        several: bool = False,
        written_out: Callable[..., Sequence[Any]] | None = None,
        compares_ends: bool = False,
        choice_at_destination: bool = False,
        commutes_with_products: bool = False,
        columns_apart: bool = False,
    ) -> None:
        if PREFIX + name in OPERATORS:
            raise ValueError(f"there is already a graph operator named {name!r}: choose another name")
        self.name = name
        self.operands = tuple(operands)
        self.results = tuple(results)
        self.label = label
        self.flops = flops
        self.compute_rows = compute_rows
        self.several = several
        self.written_out = None if written_out is None else self._with_structure(written_out)
        self.compares_ends = compares_ends
        self.choice_at_destination = choice_at_destination
        self.commutes_with_products = commutes_with_products
        self.columns_apart = columns_apart
        self.primitive = Primitive(PREFIX + name)
        self.primitive.multiple_results = several
        self.primitive.def_abstract_eval(self._with_structure(abstract or self._abstract))
        # Outside jit, JAX compiles an operator by itself, once per shape, and under its debugging flags, too.
        self.primitive.def_impl(functools.partial(apply_primitive, self.primitive))
        for platform, function in ((None, lower), ("cpu", lower_cpu)):
            if function is not None:
                rule = mlir.lower_fun(self._with_structure(function), multiple_results=several)
                mlir.register_lowering(self.primitive, rule, platform=platform)
        OPERATORS[self.primitive.name] = self

    @property
    def num_dense(self) -> int:
        """How many dense operands it takes."""
        return len(self.operands)

    @property
    def per_edge(self) -> bool:
        """Whether any of its results belongs to edges."""
        return any(result.per_edge for result in self.results)

    def roles(self, params: Mapping[str, Any]) -> tuple[Role, ...]:
        """The role of each dense operand, with these parameters."""
        into = params.get("direction") == "in"
        return tuple(operand.role_in if into and operand.role_in else operand.role for operand in self.operands)

    def side(self, params: Mapping[str, Any]) -> Direction:
        """Whose rows it runs over: "in", by destination, or "out", by source.

        What gives a value per edge runs over in-rows whatever its direction, because edges are numbered in their order.
        """
        direction: Direction = params.get("direction", "in")
        return "in" if self.per_edge else direction

    def is_push(self, params: Mapping[str, Any]) -> bool:
        """Whether it sums per source what only the destinations' servers hold.

        Values of edges live with their destination, and so does the choice of which edges attained an extremum: a server
        cannot pull these over its out-rows. Destinations sum them per source and send the sums.
        """
        return (self.choice_at_destination or "edge" in self.roles(params)) and self.side(params) == "out"

    def result_shapes(self, dense: Sequence[Any], rows: Any, entries: Any) -> list[tuple[tuple[Any, ...], Any]]:
        """Shape and dtype of each result.

        Args:
            dense: the dense operands: arrays, or what has their `shape` and `dtype`.
            rows: R, which may be a symbol.
            entries: E, likewise.
        """
        dtypes = [x.dtype for x in dense]
        return [
            (
                (entries if result.per_edge else rows, *(dense[result.like].shape[1 : result.axes] if dense else ())),
                result.dtype(dtypes) if result.dtype else dtypes[result.like],
            )
            for result in self.results
        ]

    def _abstract(self, *operands: Any, **params: Any) -> Any:
        *dense, structure = operands
        rows, entries = num_rows(structure, params.get("direction", "in")), structure.in_neighbours.shape[0]
        found = [ShapedArray(shape, dtype) for shape, dtype in self.result_shapes(dense, rows, entries)]
        return tuple(found) if self.several else found[0]

    def _with_structure(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        n = self.num_dense
        return lambda *operands, **params: fun(*operands[:n], Structure(*operands[n:]), **params)

    def __call__(self, *operands: Any, **params: Any) -> Any:
        """Binds `(*dense, structure)`."""
        *dense, structure = operands
        return self.primitive.bind(*dense, *structure, **params)

    def def_linear(self, transposes: Sequence[Callable[..., Any] | None]) -> None:
        """Declares the operator linear in each dense operand that has a transpose, and constant in the others.

        Args:
            transposes: for each dense operand, `(cotangent, *dense, structure, **params) -> cotangent of that operand`
                (its own place among `dense` holds what JAX puts there), or None.
        """
        n = self.num_dense

        def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
            out = self.primitive.bind(*primals, **params)
            terms = [
                self.primitive.bind(*primals[:i], tangents[i], *primals[i + 1 :], **params)
                for i in range(n)
                if transposes[i] is not None and type(tangents[i]) is not ad.Zero
            ]
            return out, functools.reduce(ad.add_tangents, terms) if terms else _zero_tangent(out)

        def transpose(cotangent: Any, *operands: Any, **params: Any) -> list[Any]:
            dense, structure = operands[:n], Structure(*operands[n:])
            result: list[Any] = [None] * len(operands)
            for i, operand in enumerate(dense):
                rule = transposes[i]
                if ad.is_undefined_primal(operand) and rule is not None:
                    zero = type(cotangent) is ad.Zero
                    result[i] = ad.Zero(operand.aval) if zero else rule(cotangent, *dense, structure, **params)
            return result

        ad.primitive_jvps[self.primitive] = jvp
        ad.primitive_transposes[self.primitive] = transpose

    def def_jvp(self, rule: Callable[..., Any]) -> None:
        """Declares the derivative.

        Args:
            rule: `(dense, tangents, structure, **params) -> (result, tangent)`, with zeros instantiated. It is made of
                differentiable operators, so that higher derivatives and transposition follow.
        """
        n = self.num_dense

        def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
            dense_tangents = [ad.instantiate_zeros(t) for t in tangents[:n]]
            return rule(list(primals[:n]), dense_tangents, Structure(*primals[n:]), **params)

        ad.primitive_jvps[self.primitive] = jvp

    def def_transpose(self, linear: int, rule: Callable[..., Sequence[Any]]) -> None:
        """Declares the operator linear in its first operands together, and how it is transposed.

        Args:
            linear: how many operands it is linear in.
            rule: `(cotangents, *dense, structure, **params) -> cotangents of those operands`, whichever are wanted; their
                own places among `dense` hold what JAX puts there.
        """
        n = self.num_dense

        def transpose(cotangents: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
            found: Sequence[Any] = [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in operands[:linear]]
            if not all(type(ct) is ad.Zero for ct in cotangents):
                whole = [ad.instantiate_zeros(ct) for ct in cotangents]
                found = rule(whole, *operands[:n], Structure(*operands[n:]), **params)
            # An operand whose tangent is known to be zero is an array, not something to have a cotangent.
            wanted = [ad.is_undefined_primal(x) for x in operands[:linear]]
            result = [ct if want else None for ct, want in zip(found, wanted, strict=True)]
            return [*result, *[None] * (len(operands) - linear)]

        ad.primitive_transposes[self.primitive] = transpose

    def def_batching(self, fold: Literal["width", "heads"], *, shared: int | None = None) -> None:
        """Declares into which axis of the dense operands a batch axis folds.

        Args:
            fold: "width" (F, the cheapest), or "heads" (H) where F is contracted or weights per head may be batched too.
            shared: the place of an operand without heads, which all of a batch share.
        """

        def rule(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
            n = self.num_dense
            if any(dim is not None for dim in dims[n:]):
                raise NotImplementedError(
                    f"{self.primitive.name}: vmap over the graph itself is not supported; map over features or weights, "
                    "and loop over graphs (or join them into one graph of several components)"
                )
            if shared is not None and dims[shared] is not None:
                raise NotImplementedError(
                    f"{self.primitive.name}: vmap over which loops take part is not supported; map over the scores, "
                    "and loop over sets of loops"
                )
            size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
            dense = [
                x if k == shared else _fold(x, d, size, fold)
                for k, (x, d) in enumerate(zip(operands[:n], dims[:n], strict=True))
            ]
            out = self.primitive.bind(*dense, *operands[n:], **params)
            if self.several:
                unfolded = [_unfold(y, size, fold) for y in out]
                return [y for y, _ in unfolded], [d for _, d in unfolded]
            return _unfold(out, size, fold)

        batching.primitive_batchers[self.primitive] = rule


def _fold(x: Any, dim: int | None, size: int, fold: str) -> Any:
    """`x` with its batch axis (broadcast if it has none) folded into its last axis, or into its head axis."""
    axis = x.ndim if dim is None else x.ndim - 1  # rank without the batch axis
    target = axis if fold == "width" else 2  # heads are axis 1: B comes right behind them
    if dim is None:
        x = jnp.broadcast_to(jnp.expand_dims(x, target), (*x.shape[:target], size, *x.shape[target:]))
    else:
        x = jnp.moveaxis(x, dim, target)
    return x.reshape(*x.shape[: target - 1], x.shape[target - 1] * size, *x.shape[target + 1 :])


def _unfold(y: Any, size: int, fold: str) -> tuple[Any, int]:
    axis = y.ndim - 1 if fold == "width" else 1
    return y.reshape(*y.shape[:axis], y.shape[axis] // size, size, *y.shape[axis + 1 :]), axis + 1


def _zero_tangent(out: Any) -> Any:
    return ad.Zero(jax.typeof(out).to_tangent_aval())
