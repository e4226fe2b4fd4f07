"""Explains failures of a model on symbols, by a trace on numbers, in which arrays [V, …] from the model's code fit.

The operation that fails on symbols may come long after the one at fault: indexing by a permutation gives V rows instead of
n, and a gather two layers later fails. The trace on numbers contains all operations, so the first operation at which such a
number of rows enters can be named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from dorylax.jax_internals import ClosedJaxpr, InconclusiveDimensionOperation, JaxprEqn, is_literal
from dorylax.program.jaxpr.errors import SplitError, where_raised, where_written
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.errors import RowError, mixing
from dorylax.program.rows.rules import shape_of
from dorylax.program.rows.rules.elementwise import NAMES
from dorylax.program.rows.types import shown
from dorylax.program.tracing.spec import DataSpec
from dorylax.program.tracing.traced import Input

_MEETING = NAMES | {"concatenate"}
_INDEXING = ("gather", "dynamic_slice")
_OF_DATA = ("graph", "ids", "real", "rows", "labels", "weights")


class OnNumbers(NamedTuple):
    """Flat forward pass and loss of a model, traced at the numbers of vertices and edges of its data."""

    closed: ClosedJaxpr
    inputs: Sequence[Input]


class _Source(NamedTuple):
    """Origin of a value with a row for each vertex or edge: the data, a parameter, state, or the model's code."""

    kind: Literal["data", "param", "state", "constant"]
    name: str
    shape: tuple[Any, ...]


class _Culprit(NamedTuple):
    """Operation at which a number of rows from the model's code enters; `source` is None for indexing of rows."""

    equation: JaxprEqn
    space: Space
    source: _Source | None


def explain(error: Exception, spec: DataSpec, found: OnNumbers | None) -> SplitError:
    """Return the error to raise for a model that fails on symbols.

    Args:
        error: Error of the model on symbols.
        spec: Specification of the data.
        found: The same model on numbers; None if the numbers are not known.
    """
    counts: tuple[tuple[int | None, Space], ...] = ((spec.num_edges, "edge"), (spec.num_vertices, "vertex"))
    sizes = {size: space for size, space in counts if size is not None and size > 1}
    culprit = None if found is None else next(_culprits(found, sizes), None)
    if culprit is None:
        return SplitError(_in_words(error, sizes))
    equation, space, source = culprit
    if source is None:
        return RowError(equation, f"indexing of the {space} axis", advice.places(space), headline=mixing(space))
    place = where_raised(error) or where_written(equation)
    begin = f"cannot trace the model{place}: "
    if source.kind == "param":
        features = ", ".join(map(str, source.shape[1:])) or "1"
        return SplitError(
            f"{begin}the parameter {source.name} {shown(source.shape)} has a row for each {space}. "
            f"{advice.table(source.shape[0], features, space)}."
        )
    if source.kind == "state":
        return SplitError(
            f"{begin}the model keeps a row for each {space} as its state {source.name}: compute such rows anew in every "
            f"epoch; {advice.as_input(space)}."
        )
    return SplitError(f"{begin}{_first_line(error)}. {_closed_over(space)}")


def _culprits(found: OnNumbers, sizes: Mapping[int, Space]) -> Iterator[_Culprit]:
    jaxpr = found.closed.jaxpr
    known: dict[Any, _Source] = {}
    for var, entry in zip(jaxpr.invars, found.inputs, strict=True):
        if entry.role in _OF_DATA:
            known[var] = _Source("data", entry.name, shape_of(var))
        elif entry.role in ("param", "state") and _space(var, sizes) is not None:
            known[var] = _Source("param" if entry.role == "param" else "state", entry.name, shape_of(var))
    for var in jaxpr.constvars:
        if _space(var, sizes) is not None:
            known[var] = _Source("constant", "", shape_of(var))
    for equation in jaxpr.eqns:
        sources = [None if is_literal(atom) else known.get(atom) for atom in equation.invars]
        kinds = {source.kind for source in sources if source is not None}
        if "data" in kinds and sources[0] is not None and sources[0].kind == "data":
            space = _indexed(equation, sizes)
            if space is not None:
                yield _Culprit(equation, space, None)
        if "data" in kinds and (equation.primitive.name in _MEETING or is_graph_operator(equation)):
            for atom, source in zip(equation.invars, sources, strict=True):
                space = None if is_literal(atom) else _space(atom, sizes)
                if source is not None and source.kind != "data" and space is not None:
                    yield _Culprit(equation, space, source)
        of_data = next((source for source in sources if source is not None and source.kind == "data"), None)
        foreign = next((source for source in sources if source is not None and source.kind != "data"), None)
        for var in equation.outvars:
            if of_data is not None:
                known[var] = of_data
            elif foreign is not None and _space(var, sizes) is not None:
                known[var] = foreign


def _indexed(equation: JaxprEqn, sizes: Mapping[int, Space]) -> Space | None:
    """Return the space of the rows that an operation reads by number; None if it does not."""
    if equation.primitive.name not in _INDEXING:
        return None
    space, shape = _space(equation.invars[0], sizes), shape_of(equation.invars[0])
    if space is None:
        return None
    numbers = equation.params.get("dimension_numbers")
    if numbers is not None and 0 in map(int, numbers.operand_batching_dims):
        return None
    return None if equation.params["slice_sizes"][0] == shape[0] else space


def _space(atom: Any, sizes: Mapping[int, Space]) -> Space | None:
    """Return the space of a value's first axis, judged by its size."""
    shape = shape_of(atom)
    return sizes.get(shape[0]) if shape else None


def _in_words(error: Exception, sizes: Mapping[int, Space]) -> str:
    """Return the error's first line, with an explanation derived from its text."""
    first = _first_line(error)
    message = f"cannot trace the model{where_raised(error)}: {first}"
    shapes = re.findall(r"[(\[][\d, ne+*-]+[)\]]", first)
    numbers = {int(number) for shape in shapes for number in re.findall(r"\d+", shape)}
    for size in sorted(numbers & sizes.keys()):
        return f"{message}. {_closed_over(sizes[size])}"
    if "shape polymorphism" in first:
        return (
            f"{message}. Numbers of vertices and edges are symbols (n, e) while a model is split, which this function does "
            "not take: say which axes it means, as in x.squeeze(-1), or write it with other functions"
        )
    symbolic = isinstance(error, InconclusiveDimensionOperation) or "_DimExpr" in first or "Symbolic dimension" in first
    if symbolic or any(re.search(r"\b[ne]\b", shape) for shape in shapes):
        return (
            f"{message}. Numbers of vertices and edges are symbols (n, e) while a model is split: it may compute "
            "with them as arrays (jnp.sqrt(x.shape[0]), not math.sqrt or x.shape[0] ** 0.5), but not compare them, "
            f"loop over them, or close over arrays that have a row for each ({advice.as_input('vertex')})"
        )
    return message


def _closed_over(space: Space) -> str:
    size = "x.shape[0]" if space == "vertex" else "graph.num_edges"
    return (
        f"An array with a row per {space} that the model closes over must be an input of the model: "
        f"{advice.declared(space)}. "
        f"One that the model makes itself takes its size from {size}"
    )


def _first_line(error: Exception) -> str:
    first = str(error).strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {first}"
