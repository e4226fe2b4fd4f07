"""A graph operator: a record of its properties, and a JAX primitive with its rules.

A graph primitive takes *dense* operands (values per vertex `[V, H, F]` or per edge `[E, H]`, `[E, H, F]`) followed by
the five arrays of the graph's *structure*, and usually a static `direction`: "in" computes a row per vertex over its
in-edges, "out" over its out-edges. All primitives take the whole structure, so that a transposed operator finds the
reverse rows in its operands; arrays that a lowering does not read cost nothing.

`OPERATORS` is the only list of operators. Splitting, cost models and runtimes look them up there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dorylax.jax_internals import Primitive, ShapedArray, ad, apply_primitive, batching, mlir
from dorylax.ops.native import usable
from dorylax.ops.primitives.structure import Direction, Structure, num_rows
from dorylax.ops.row_loops.loops import Arrays, Loops
from dorylax.ops.row_loops.rows import Entries

PREFIX = "dorylax_"
"""Prefix of graph primitives' names in jaxprs."""

TRANSCENDENTAL = 10
"""Operations that one exp, log, tanh, square root, … counts as: roughly the cost of a vectorised polynomial."""

Role = Literal["own", "neighbour", "edge"]
"""Owner of an operand's values, for an entry of a row: the row's "own" vertex, the "neighbour" at the entry's other end, or
the "edge" itself."""

Label = Literal["GA", "SC", "AE", "count"]
"""Kind of operator in the vocabulary of Dorylus: GA gathers along edges into vertices, SC scatters vertices' values to
edges, AE computes edge by edge, and "count" only counts edges, so that no values move."""


class OperandSpec(NamedTuple):
    """A dense operand.

    Attributes:
        role: Owner of its values.
        axes: Number of axes: 3 for values `[…, H, F]`, 2 for weights and scores `[…, H]`, 1 for `[…]`.
        role_in: Role for direction "in", if it differs.
    """

    role: Role
    axes: int = 3
    role_in: Role | None = None


class ResultSpec(NamedTuple):
    """A result, with one row per vertex or per edge.

    Attributes:
        like: Position of the dense operand with the same heads, columns and dtype, if there are operands.
        axes: Number of axes.
        per_edge: Whether its rows belong to edges, in slot order, instead of vertices.
        dtype: `dtypes of the operands -> dtype`; None: the dtype of `like`.
    """

    like: int = 0
    axes: int = 3
    per_edge: bool = False
    dtype: Callable[[Sequence[Any]], Any] | None = None


class CallSizes(NamedTuple):
    """Sizes of one call of an operator.

    Attributes:
        rows: Number of vertices.
        entries: Number of edges.
        widths: Elements per row of each dense operand: heads × columns.
    """

    rows: int
    entries: int
    widths: tuple[int, ...]


def per_entry(each: int) -> Callable[[CallSizes], int]:
    """Return an operator's `flops` function: `each` operations per entry and column of the first operand."""
    return lambda sizes: each * sizes.entries * sizes.widths[0]


OPERATORS: dict[str, Operator] = {}
"""Every graph operator, by the name of its primitive."""


class Operator:
    """A graph operator; call it like a function of `(*dense, structure, **params)`.

    Args:
        name: Name of the primitive in jaxprs, without `PREFIX`.
        operands: Specs of the dense operands.
        results: Specs of the results. An operator that runs over rows by source gives no result per edge, since edges are
            numbered by destination.
        label: Kind of operator in the vocabulary of Dorylus.
        flops: Returns the number of operations of a call.
        lower: `(*dense, structure, **params) -> result` in JAX, for every platform; several results are a sequence.
        native: The same by the native kernels, for CPUs; None: there is no kernel.
        served: `dense operands -> arrays` whose dtypes the kernel must support (default: all); without any, the kernel is
            not called. Otherwise CPUs run `lower`.
        abstract: `(*dense, structure, **params) -> ShapedArray`, for results whose shape depends on parameters.
        compute_rows: `(loops, params, operands, rows, results)` fills in the results of some rows, in NumPy arrays; graph
            servers call it. None: the operator only runs on a whole graph.
        several: Whether the primitive returns a sequence of results (JAX's `multiple_results`), even for one result.
        fused: Whether `lower` consists of other operators, by which programs to be split replace this one (`written_out`).
        compares_ends: Whether it reads neighbours' numbers without having an operand of theirs.
        choice_at_destination: Whether only the destination can select the entries that take part, without an operand per
            edge.
        commutes_with_products: Whether it is the same linear map of the first operand's rows in every column. A product of
            rows with a matrix may then move from before it to after it, or back.
        columns_apart: Whether each column of its result depends only on that column of its three-axis operands, so that
            blocks of columns can run one after the other.

    Raises:
        ValueError: An operator of this name exists.
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
        native: Callable[..., Any] | None = None,
        served: Callable[..., Sequence[Any]] = lambda *dense: dense,
        abstract: Callable[..., Any] | None = None,
        compute_rows: Callable[[Loops, Mapping[str, Any], Arrays, Entries, Arrays], None] | None = None,
        several: bool = False,
        fused: bool = False,
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
        self.written_out = self._with_structure(lower) if fused else None
        self.compares_ends = compares_ends
        self.choice_at_destination = choice_at_destination
        self.commutes_with_products = commutes_with_products
        self.columns_apart = columns_apart
        self.primitive = Primitive(PREFIX + name)
        self.primitive.multiple_results = several
        self.primitive.def_abstract_eval(self._with_structure(abstract or self._abstract))
        # Outside jit, JAX compiles an operator once per shape, also under its debugging flags.
        self.primitive.def_impl(functools.partial(apply_primitive, self.primitive))

        def lower_cpu(*operands: Any, **params: Any) -> Any:
            if native is None or not usable(*(x.dtype for x in served(*operands[:-1]))):
                return lower(*operands, **params)
            return native(*operands, **params)

        for platform, function in ((None, lower), ("cpu", lower_cpu)):
            rule = mlir.lower_fun(self._with_structure(function), multiple_results=several)
            mlir.register_lowering(self.primitive, rule, platform=platform)
        OPERATORS[self.primitive.name] = self

    @property
    def num_dense(self) -> int:
        """Number of dense operands."""
        return len(self.operands)

    @property
    def per_edge(self) -> bool:
        """Whether any result belongs to edges."""
        return any(result.per_edge for result in self.results)

    def roles(self, params: Mapping[str, Any]) -> tuple[Role, ...]:
        """Roles of the dense operands for these parameters."""
        into = params.get("direction") == "in"
        return tuple(operand.role_in if into and operand.role_in else operand.role for operand in self.operands)

    def side(self, params: Mapping[str, Any]) -> Direction:
        """Rows that the operator runs over: "in", by destination, or "out", by source.

        Operators with a result per edge always run over in-rows, because edges are numbered in that order.
        """
        direction: Direction = params.get("direction", "in")
        return "in" if self.per_edge else direction

    def result_shapes(self, dense: Sequence[Any], rows: Any, entries: Any) -> list[tuple[tuple[Any, ...], Any]]:
        """Shape and dtype of each result.

        Args:
            dense: The dense operands: arrays, or objects with their `shape` and `dtype`.
            rows: R, a number or a symbol.
            entries: E, a number or a symbol.
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
        """Bind the primitive to `(*dense, structure)`."""
        *dense, structure = operands
        return self.primitive.bind(*dense, *structure, **params)

    def def_linear(self, transposes: Sequence[Callable[..., Any] | None]) -> None:
        """Declare the operator linear in each dense operand that has a transpose, and constant in the others.

        Args:
            transposes: For each dense operand, `(cotangent, *dense, structure, **params) -> cotangent of that operand` or
                None. In `dense`, that operand is JAX's placeholder.
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
        """Declare the derivative.

        Args:
            rule: `(dense, tangents, structure, **params) -> (result, tangent)`, with zeros instantiated. It consists of
                differentiable operators, so that higher derivatives and transposition follow.
        """
        n = self.num_dense

        def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
            dense_tangents = [ad.instantiate_zeros(t) for t in tangents[:n]]
            return rule(list(primals[:n]), dense_tangents, Structure(*primals[n:]), **params)

        ad.primitive_jvps[self.primitive] = jvp

    def def_transpose(self, linear: int, rule: Callable[..., Sequence[Any]]) -> None:
        """Declare the operator jointly linear in its first operands, and its transpose.

        Args:
            linear: Number of operands in which it is linear.
            rule: `(cotangents, *dense, structure, **params) -> cotangents of those operands`. In `dense`, those operands may
                be JAX's placeholders.
        """
        n = self.num_dense

        def transpose(cotangents: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
            found: Sequence[Any] = [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in operands[:linear]]
            if not all(type(ct) is ad.Zero for ct in cotangents):
                whole = [ad.instantiate_zeros(ct) for ct in cotangents]
                found = rule(whole, *operands[:n], Structure(*operands[n:]), **params)
            # An operand whose tangent is known to be zero is an array, and JAX accepts no cotangent for it.
            wanted = [ad.is_undefined_primal(x) for x in operands[:linear]]
            result = [ct if want else None for ct, want in zip(found, wanted, strict=True)]
            return [*result, *[None] * (len(operands) - linear)]

        ad.primitive_transposes[self.primitive] = transpose

    def def_batching(self, fold: Literal["width", "heads"], *, shared: int | None = None) -> None:
        """Declare the axis of the dense operands into which a batch axis folds.

        Args:
            fold: "width" (F, the cheapest), or "heads" (H) if F is contracted or weights per head may be batched too.
            shared: Position of an operand without heads that is the same for the whole batch.
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
    """Fold the batch axis of `x` (broadcast if it has none) into its last axis, or into its head axis."""
    axis = x.ndim if dim is None else x.ndim - 1  # rank without the batch axis
    target = axis if fold == "width" else 2  # heads are axis 1, and the batch axis follows them
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
