"""What all graph primitives share.

A graph primitive takes *dense* operands (values per vertex `[V, H, F]` or per edge `[E, H]`, `[E, H, F]`) followed by
the five arrays of the graph's *structure*, and a static `direction`: "in" computes a row per vertex over its in-
edges, "out" over its out-edges. All primitives take the whole structure, so that a transposed operator finds the
reverse rows at hand; what a lowering does not read costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dorylax.graph.compressed import CompressedGraph, as_words
from dorylax.jax_internals import Primitive, ad, batching, mlir

Direction = Literal["in", "out"]


class Structure(NamedTuple):
    """The graph as primitives take it: rows by destination, then rows by source with each entry's slot.

    An edge's slot is its place in the rows by destination: what per-edge operands and results are in order of. Operators
    lead from and to the user's order (`dorylax.ops.edge_order`).
    """

    in_offsets: Any  # uint32 [V+1, 2]
    in_neighbours: Any  # int32 [E]
    out_offsets: Any  # uint32 [V+1, 2]
    out_neighbours: Any  # int32 [E]
    out_edges: Any  # int32 [E]


class Rows(NamedTuple):
    """One direction of a structure."""

    offsets: Any  # uint32 [R+1, 2]
    neighbours: Any  # int32 [E]
    edges: Any | None  # int32 [E], or None where entry k is edge k


def structure_of(graph: CompressedGraph, *, edge_ids: bool = True) -> Structure:
    """The arrays of a graph, for `bind`.

    Args:
        graph: the graph.
        edge_ids: whether the operator counts edges, as all do but those that only sum or compare over vertices.

    Raises:
        GraphError: edges are counted, and the graph has no ids for them.
    """
    into, out = graph.incoming, graph.outgoing
    edges = out.edges
    if edge_ids:
        graph.require_edge_ids()
    if not graph.edge_ids_fit:
        edges = jnp.zeros((0,), jnp.int32)
    return Structure(as_words(into.offsets), into.neighbours, as_words(out.offsets), out.neighbours, edges)


def rows_of(structure: Structure, direction: Direction) -> Rows:
    """The rows that an operator of this direction computes."""
    if direction == "in":
        return Rows(structure.in_offsets, structure.in_neighbours, None)
    return Rows(structure.out_offsets, structure.out_neighbours, structure.out_edges)


def flip(direction: Direction) -> Direction:
    """The other direction."""
    return "out" if direction == "in" else "in"


def num_rows(structure: Structure, direction: Direction) -> Any:
    """R, which may be a symbolic dimension."""
    return rows_of(structure, direction).offsets.shape[0] - 1


FUSED: dict[str, Callable[..., Sequence[Any]]] = {}
"""The fused operators' primitives by name: `(*operands, **params) -> results` in operators that are not fused."""


class Operator:
    """A graph primitive with its rules; call it like a function of `(*dense, structure, **params)`.

    Args:
        name: the primitive's name in jaxprs.
        num_dense: how many dense operands it takes.
        abstract: `(*dense, structure, **params) -> ShapeDtypeStruct-like`, or a tuple of them if it has several results.
        lower: `(*dense, structure, **params) -> result` in JAX, for every platform.
        lower_cpu: the same on CPU; `lower` if None.
        several: whether it has several results.
        fused: of an operator that others make up, the same written out in those: `(*dense, structure, **params) -> results`.
    """

    def __init__(
        self,
        name: str,
        num_dense: int,
        *,
        abstract: Callable[..., Any],
        lower: Callable[..., Any],
        lower_cpu: Callable[..., Any] | None = None,
        several: bool = False,
        fused: Callable[..., Sequence[Any]] | None = None,
    ) -> None:
        self.num_dense = num_dense
        self.several = several
        self.primitive = Primitive(name)
        self.primitive.multiple_results = several

        def with_structure(fun: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *operands, **params: fun(*operands[:num_dense], Structure(*operands[num_dense:]), **params)

        self.primitive.def_abstract_eval(with_structure(abstract))
        self.primitive.def_impl(functools.partial(_run_eagerly, self.primitive))
        mlir.register_lowering(self.primitive, mlir.lower_fun(with_structure(lower), multiple_results=several))
        if lower_cpu is not None:
            rule = mlir.lower_fun(with_structure(lower_cpu), multiple_results=several)
            mlir.register_lowering(self.primitive, rule, platform="cpu")
        if fused is not None:
            FUSED[name] = with_structure(fused)

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


@functools.cache
def _jitted(primitive: Primitive, params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return jax.jit(functools.partial(primitive.bind, **dict(params)))


def _run_eagerly(primitive: Primitive, *operands: Any, **params: Any) -> Any:
    """Outside jit, an operator is compiled by itself, once per shape."""
    return _jitted(primitive, tuple(sorted(params.items())))(*operands)
