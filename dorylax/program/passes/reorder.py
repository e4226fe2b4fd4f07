"""reorder: `gather(x W)` ↔ `gather(x) W`, whichever moves fewer bytes.

A product with a matrix on the right acts on columns, a linear gather on rows, so they commute. Scaling of rows, sums, and
changes of shape that keep the columns commute with the product, too. A *region* is a set of such equations with at least one
gather. If all its inputs are products with the same matrix, the product can follow it, on its outputs; if its only output is
multiplied by a matrix, the product can precede it, on its inputs. Two savings count: gathers of constant features are free
once hoisted, and values that do not depend on parameters need no backward gather.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Var, is_literal, type_of, variables
from dorylax.program.jaxpr.graph_operators import is_graph_operator, operator_of
from dorylax.program.jaxpr.rewrite import Builder, makers, reached, simplify
from dorylax.program.jaxpr.symbols import row_space
from dorylax.program.tasks.split_model import AnySplit
from dorylax.program.tracing.differentiate import derive
from dorylax.program.tracing.traced import Traced

GATHERED_BYTES_PER_FLOP = 0.25
"""Cost of a FLOP in gathered bytes: a core gathers some 10 GB/s and multiplies matrices at some 40 GFLOP/s."""

_DEFAULT_DEGREE = 16  # for graphs of unknown size


def reorder(program: AnySplit, *, hoisting: bool = True, stale_price: float = 0.0) -> AnySplit:
    """Move products across gathers while that saves time.

    Args:
        program: A program that has not been pruned.
        hoisting: Whether hoist will follow, so that gathers of constant rows are free.
        stale_price: Surcharge on gathered bytes computed with weights, as a share of their cost. Such rows may be of an
            earlier epoch in asynchronous training. Constant rows never are, and random rows (dropout of features) do not
            age.
    """
    traced = program.traced
    forward = traced.forward
    while True:
        better = _Search(forward, traced, hoisting, stale_price).best()
        if better is None:
            break
        forward = simplify(better)
    if forward is traced.forward:
        return program
    derived = derive(forward, traced.inputs, traced.constants, traced.forward_outputs, fused=traced.fused)
    return program.of(dataclasses.replace(traced, **derived._asdict()), program.passes)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class _Region:
    """Commuting equations and their adjacent products.

    Attributes:
        linear: For each commuting equation, by position in ascending order, its linear operands.
        products: Positions of the products: those before the region if they are to move after it, else the one after it.
        inputs: Rows that enter the region, before any product.
        outputs: Rows that leave the region, after the product if it is early now.
        late: Whether the product is to move after the gathers.
    """

    linear: dict[int, tuple[int, ...]]
    products: tuple[int, ...]
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    late: bool


@final
class _Search:
    """Search for the move with the largest saving."""

    def __init__(self, forward: ClosedJaxpr, traced: Traced, hoisting: bool, stale_price: float) -> None:
        self._forward = forward
        self._equations = forward.jaxpr.eqns
        self._makers = makers(self._equations)
        self._place = {var: k for k, equation in enumerate(self._equations) for var in equation.outvars}
        self._readers: dict[Var, list[int]] = defaultdict(list)
        for k, equation in enumerate(self._equations):
            for var in variables(equation.invars):
                self._readers[var].append(k)
        self._linear = [_linear_operands(equation, self._makers) for equation in self._equations]
        self._results = set(variables(forward.jaxpr.outvars))
        entries = list(zip(forward.jaxpr.invars, traced.inputs, strict=True))
        self._trained = reached(self._equations, (var for var, entry in entries if entry.role == "param"))
        changing = reached(self._equations, (var for var, entry in entries if not entry.of_data))
        self._changing = changing if hoisting else None
        self._rows = traced.spec.num_vertices or 10_000
        self._dear = 1 + stale_price
        self._entries = traced.spec.num_edges or _DEFAULT_DEGREE * self._rows

    def best(self) -> ClosedJaxpr | None:
        """Return the forward pass after the best move; None if no move is a saving."""
        gains = [(self._gain(region), region) for region in self._regions()]
        gain, region = max(gains, key=lambda pair: pair[0], default=(0.0, None))
        if region is None or gain <= 0:
            return None
        return self._late(region) if region.late else self._early(region)

    def _regions(self) -> list[_Region]:
        products = [k for k, equation in enumerate(self._equations) if self._is_product(equation)]
        by_kernel: dict[Var, list[int]] = defaultdict(list)
        for k in products:
            by_kernel[self._equations[k].invars[1]].append(k)
        regions = [region for group in by_kernel.values() for region in self._after(group)]
        for k in products:
            region = self._before(k)
            if region is not None:
                regions.append(region)
        return regions

    def _is_product(self, equation: JaxprEqn) -> bool:
        if equation.primitive.name != "dot_general":
            return False
        rows, kernel = equation.invars
        plain = equation.params["dimension_numbers"] == (((1,), (0,)), ((), ()))
        free = not is_literal(kernel) and type_of(kernel).ndim == 2 and isinstance(type_of(kernel).shape[0], int)
        same = type_of(rows).dtype == type_of(kernel).dtype == type_of(equation.outvars[0]).dtype
        return plain and free and same and _is_columns(type_of(rows).shape) and type_of(rows).ndim == 2

    def _after(self, products: list[int]) -> list[_Region]:
        """Return regions whose inputs are all products with one matrix: one for each connected part with a gather."""
        group = {self._equations[k].outvars[0]: k for k in products}  # member → representative of its part
        parts: dict[int, list[int]] = {k: [k] for k in products}
        linear: dict[int, tuple[int, ...]] = {}
        for k in range(min(products) + 1, len(self._equations)):
            equation = self._equations[k]
            for chosen in self._linear[k]:
                others = [a for i, a in enumerate(equation.invars) if i not in chosen and not is_literal(a)]
                if all(equation.invars[i] in group for i in chosen) and not any(a in group for a in others):
                    linear[k] = chosen
                    ends = {group[equation.invars[i]] for i in chosen}
                    first = min(ends)
                    joined = [member for end in ends for member in parts.pop(end)] + [k]
                    parts[first] = joined
                    for member in joined:
                        group[self._equations[member].outvars[0]] = first
                    break
        found = []
        for members in parts.values():
            inside = {k: linear[k] for k in sorted(members) if k in linear}
            if not any(_is_linear_gather(self._equations[k]) for k in inside):
                continue
            seeds = tuple(k for k in sorted(members) if k not in linear)
            outputs = tuple(
                self._equations[k].outvars[0]
                for k in sorted(members)
                if self._leaves(self._equations[k].outvars[0], inside)
            )
            inputs = tuple(self._equations[k].invars[0] for k in seeds)
            found.append(_Region(inside, seeds, inputs, outputs, late=True))
        return found

    def _before(self, product: int) -> _Region | None:
        """Return the region whose only output is multiplied by a matrix."""
        inside: dict[int, tuple[int, ...]] = {}
        inputs: dict[Var, None] = {}
        pending = {self._equations[product].invars[0]}
        while pending:
            var = max(pending, key=lambda value: self._place.get(value, -1))  # its readers are all visited
            pending.discard(var)
            place = self._place.get(var)
            ways = [] if place is None else self._linear[place]
            own = all(k in inside or k == product for k in self._readers[var]) and var not in self._results
            if place is None or not ways or not own:
                inputs[var] = None
                continue
            inside[place] = ways[0]
            pending.update(self._equations[place].invars[i] for i in ways[0])
        gathers = any(_is_linear_gather(self._equations[k]) for k in inside)
        if not gathers or not all(_is_columns(type_of(var).shape) for var in inputs):
            return None
        ordered = {k: inside[k] for k in sorted(inside)}
        return _Region(ordered, (product,), tuple(inputs), (self._equations[product].outvars[0],), late=False)

    def _leaves(self, var: Var, inside: dict[int, tuple[int, ...]]) -> bool:
        return var in self._results or any(k not in inside for k in self._readers[var])

    def _gain(self, region: _Region) -> float:
        moved = len(region.outputs if region.late else region.inputs)
        now = self._cost(region, early=region.late, products=len(region.products))
        return now - self._cost(region, early=not region.late, products=moved)

    def _cost(self, region: _Region, *, early: bool, products: int) -> float:
        """Cost of an epoch's forward and backward pass in gathered bytes, with products converted to bytes."""
        kernel = self._equations[region.products[0]].invars[1]
        fan_in, fan_out = type_of(kernel).shape
        entering = (*region.inputs, kernel) if early else region.inputs
        trained = any(var in self._trained for var in entering)
        changing = self._changing is None or any(var in self._changing for var in entering)
        gathers = sum(_is_linear_gather(self._equations[k]) for k in region.linear)
        width = fan_out if early else fan_in
        forward, backward = (self._dear, self._dear) if trained else (float(changing), 0.0)
        gathered = gathers * self._entries * width * type_of(kernel).dtype.itemsize * (forward + backward)
        through = any(var in self._trained for var in region.inputs)  # cotangents pass through the product
        flops = products * 2 * self._rows * fan_in * fan_out * (2 + int(through))
        return float(gathered + flops * GATHERED_BYTES_PER_FLOP)

    def _late(self, region: _Region) -> ClosedJaxpr:
        builder = Builder(self._forward)
        like = self._equations[region.products[0]]
        lean: dict[Var, Any] = {}
        for k, equation in enumerate(self._equations):
            if k in region.products:
                lean[equation.outvars[0]] = builder.read(equation.invars[0])
            elif k in region.linear:
                operands = {i: lean[equation.invars[i]] for i in region.linear[k]}
                width = type_of(like.invars[1]).shape[0]
                lean[equation.outvars[0]] = _write_again(builder, equation, operands, self._makers, width)
            else:
                builder.keep(equation)
                continue
            if equation.outvars[0] in region.outputs:
                var = equation.outvars[0]
                builder.replace(var, _product(builder, like, lean[var], type_of(var).shape))
        return builder.finish()

    def _early(self, region: _Region) -> ClosedJaxpr:
        builder = Builder(self._forward)
        (place,) = region.products
        product = self._equations[place]
        width = type_of(product.invars[1]).shape[1]
        for k, equation in enumerate(self._equations):
            if k in region.linear:
                continue  # written below, once the matrix is available
            if k != place:
                builder.keep(equation)
                continue
            wide = {
                var: _product(builder, product, builder.read(var), (*type_of(var).shape[:-1], width))
                for var in region.inputs
            }
            for inner, linear in region.linear.items():
                old = self._equations[inner]
                operands = {i: wide[old.invars[i]] for i in linear}
                wide[old.outvars[0]] = _write_again(builder, old, operands, self._makers, width)
            result = wide[product.invars[0]]
            builder.replace(product.outvars[0], result)
        return builder.finish()


def _product(builder: Builder, like: JaxprEqn, rows: Any, shape: tuple[Any, ...]) -> Any:
    """Return `rows @ kernel`, in the given shape."""
    flat = (shape[0], type_of(like.invars[1]).shape[0])

    def multiply(x: Any, kernel: Any) -> Any:
        x = x if x.ndim == 2 else jax.lax.reshape(x, flat)
        y = like.primitive.bind(x, kernel, **like.params)
        return y if len(shape) == 2 else jax.lax.reshape(y, shape)

    return builder.call(multiply, [rows, builder.read(like.invars[1])], like)


# Equations that act only on rows, and so commute with a product from the right.


def _is_linear_gather(equation: JaxprEqn) -> bool:
    """Whether the equation is a graph operator that commutes with a product from the right."""
    return is_graph_operator(equation) and operator_of(equation).commutes_with_products


def _is_columns(shape: Sequence[Any]) -> bool:
    """Whether a shape is rows by columns, `[n, F]` or `[n, 1, F]`."""
    return len(shape) >= 2 and row_space(shape[0]) is not None and all(_is_one(size) for size in shape[1:-1])


def _linear_operands(equation: JaxprEqn, made: Mapping[Var, JaxprEqn]) -> list[tuple[int, ...]]:
    """Return the sets of operands in which the equation is linear while acting only on rows; each tuple is one such set.

    Args:
        equation: Any equation.
        made: Equation that made each value.
    """
    name, operands = equation.primitive.name, equation.invars
    if len(equation.outvars) != 1 or not _is_columns(type_of(equation.outvars[0]).shape):
        return []
    if _is_linear_gather(equation):
        return [(0,)] if _is_columns(type_of(operands[0]).shape) else []
    if name in ("neg", "copy"):
        return [(0,)]
    if name in ("reshape", "squeeze", "expand_dims"):
        return [(0,)] if _same_columns(operands[0], equation) else []
    if name == "broadcast_in_dim":
        dims = equation.params["broadcast_dimensions"]
        kept = len(dims) == type_of(operands[0]).ndim and type_of(operands[0]).ndim >= 2
        return [(0,)] if kept and int(dims[0]) == 0 and _same_columns(operands[0], equation) else []
    if name in ("add", "sub", "add_any"):
        alike = all(not is_literal(a) and type_of(a).shape == type_of(equation.outvars[0]).shape for a in operands)
        return [(0, 1)] if alike else []
    if name in ("mul", "div"):
        sides = (0, 1) if name == "mul" else (0,)
        return [
            (side,)
            for side in sides
            if not is_literal(operands[side])
            and type_of(operands[side]).shape == type_of(equation.outvars[0]).shape
            and _scale(operands[1 - side], made) is not None
        ]
    return []


def _write_again(
    builder: Builder, equation: JaxprEqn, linear: Mapping[int, Any], made: Mapping[Var, JaxprEqn], width: int
) -> Any:
    """Write a commuting equation again for rows of another width.

    Args:
        builder: Builder of the new jaxpr.
        equation: The equation.
        linear: Replacements of its linear operands, by position.
        made: Equation that made each value.
        width: New number of columns.

    Returns:
        The atom of its result.
    """
    name, params = equation.primitive.name, equation.params
    shape = (*type_of(equation.outvars[0]).shape[:-1], width)
    if name in ("reshape", "squeeze", "expand_dims", "broadcast_in_dim"):
        return builder.call(lambda x: jax.lax.reshape(x, shape), [linear[0]], equation)
    operands = [linear[k] if k in linear else builder.read(atom) for k, atom in enumerate(equation.invars)]
    other, dims = 0, None
    if name in ("mul", "div"):
        other = 0 if 1 in linear else 1
        source, dims = _scale(equation.invars[other], made) or (None, None)
        operands[other] = builder.read(source)

    def again(*xs: Any) -> Any:
        values = list(xs)
        if dims is not None:
            values[other] = jax.lax.broadcast_in_dim(values[other], shape, dims)
        return equation.primitive.bind(*values, **params)

    return builder.call(again, operands, equation)


def _scale(atom: Any, made: Mapping[Var, JaxprEqn]) -> tuple[Any, tuple[int, ...] | None] | None:
    """Return an operand that is equal in all columns, as its source and how to broadcast it; None if columns may differ."""
    if is_literal(atom) or type_of(atom).ndim == 0 or _is_one(type_of(atom).shape[-1]):
        return atom, None
    maker = made.get(atom)
    if maker is None or maker.primitive.name != "broadcast_in_dim":
        return None
    source, dims = maker.invars[0], tuple(int(dim) for dim in maker.params["broadcast_dimensions"])
    last = type_of(atom).ndim - 1
    if last in dims and not _is_one(type_of(source).shape[dims.index(last)]):
        return None
    return source, dims


def _same_columns(atom: Any, equation: JaxprEqn) -> bool:
    shape, new = type_of(atom).shape, type_of(equation.outvars[0]).shape
    return _is_columns(shape) and shape[0] == new[0] and shape[-1] == new[-1]


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1
