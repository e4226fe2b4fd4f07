"""The contract of a rule, the registry of rules, and an equation as rules see it.

A rule proves, for one equation of a known primitive, what its results are, or refuses. It may rely on what the driver
(`check.py`) has made sure of: structure arrays enter graph operators only, and rows of vertices and of edges do not
meet outside graph operators and calls. The driver also compares the rule's answer with the shapes of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, final

from dorylax.jax_internals import Jaxpr, JaxprEqn
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.axes import RowAxisError, read_axis
from dorylax.program.rows.errors import RowError, misused_sum, mixing
from dorylax.program.rows.types import Free, Origin, Rows, RowType, Summed


class Scope(NamedTuple):
    """What is the same for all equations of a jaxpr.

    Attributes:
        spaces: the space that each symbol counts.
        phase: what messages begin with.
        inside: the loop or branch that the jaxpr is the body of, if any.
        callers: the calls and loops that the jaxpr is inside of, outermost first.
        infer: types of a jaxpr's outputs, given those of its inputs.
    """

    spaces: Mapping[str, Space]
    phase: str
    inside: str | None
    callers: tuple[JaxprEqn, ...]
    infer: Callable[[Jaxpr, Sequence[RowType], Scope], list[RowType]]


def shape_of(atom: Any) -> tuple[Any, ...]:
    """The shape of a variable or literal; values without one, as tokens, count as scalars."""
    return getattr(_aval(atom), "shape", ())


def _aval(atom: Any) -> Any:
    return atom.aval


@final
class Operation:
    """An equation with the types of its operands."""

    def __init__(self, equation: JaxprEqn, types: Sequence[RowType], scope: Scope) -> None:
        self.equation = equation
        self.types = tuple(types)
        self.scope = scope
        self.name: str = equation.primitive.name
        self.params: dict[str, Any] = equation.params
        self.shapes = [shape_of(atom) for atom in equation.invars]
        self.result_shapes = [shape_of(var) for var in equation.outvars]
        self.rows: list[tuple[int, Rows]] = [(k, kind) for k, kind in enumerate(self.types) if isinstance(kind, Rows)]
        self.sums: list[Summed] = [kind for kind in self.types if isinstance(kind, Summed)]

    @property
    def space(self) -> Space:
        """Whose rows take part; vertices where none do."""
        for _, rows in self.rows:
            return rows.space
        for total in self.sums:
            if total.origin is not None:
                return total.origin.space
        return "vertex"

    def result_rows(self, k: int = 0) -> Rows | None:
        """The axis of rows of a result, read off its shape.

        Raises:
            RowError: the shape has two such axes, or an odd number of rows.
        """
        try:
            return read_axis(self.result_shapes[k], self.scope.spaces)
        except RowAxisError as error:
            self.refuse(str(error), advice.pairs(self.space))

    def dtype(self, k: int) -> Any:
        """The dtype of an operand."""
        return _aval(self.equation.invars[k]).dtype

    @property
    def result_dtype(self) -> Any:
        """The dtype of the first result."""
        return _aval(self.equation.outvars[0]).dtype

    def counts(self, size: Any) -> Rows | None:
        """What a size in the parameters counts, as axis 0; None for numbers.

        Raises:
            RowError: it is not a constant multiple of one symbol.
        """
        try:
            return read_axis((size,), self.scope.spaces)
        except RowAxisError:
            self.refuse(f"a part of the {self.space} axis, of size {size}", advice.places(self.space))

    def infer(self, jaxpr: Jaxpr, types: Sequence[RowType], *, inside: str | None = None) -> list[RowType]:
        """The types of the outputs of a jaxpr that this operation runs.

        Args:
            jaxpr: a body, a branch, a function.
            types: those of its inputs.
            inside: what messages call the loop or branch, if it is one in which graph operators cannot be.
        """
        scope = self.scope._replace(callers=(*self.scope.callers, self.equation), inside=inside or self.scope.inside)
        return scope.infer(jaxpr, types, scope)

    # Ways to refuse

    def refuse(self, reason: str, what_to_do: str) -> NoReturn:
        """Raises the error of an operation that mixes rows."""
        raise self._error(reason, what_to_do, mixing(self.space))

    def unsupported(self, reason: str, what_to_do: str = advice.OURS) -> NoReturn:
        """Raises the error of an operation about which nothing can be proved."""
        raise self._error(reason, what_to_do, f"cannot be computed {self.space} by {self.space}")

    def _error(self, reason: str, what_to_do: str, headline: str) -> RowError:
        scope = self.scope
        return RowError(self.equation, reason, what_to_do, headline=headline, callers=scope.callers, phase=scope.phase)

    def refuse_sum(self, why: str | None = None) -> NoReturn:
        """Raises the error of a sum over rows that enters this operation."""
        if self.rows:
            default = f"The sum is then used for single {advice.many(self.space)}"
        else:
            default = f"The sum is then used by {self.name}, which parts of a sum cannot go through one by one"
        for total in self.sums:
            if total.origin is not None:
                scope = self.scope
                raise misused_sum(total, self.equation, why or default, callers=scope.callers, phase=scope.phase)
        self.unsupported(f"a sum over {advice.many(self.space)} enters {self.name}", advice.sums(self.space))

    # What many rules need

    def require_free(self, operands: Iterable[int], what: str) -> None:
        """Refuses unless these operands have no rows and are no sums over rows."""
        for k in operands:
            kind = self.types[k]
            if isinstance(kind, Summed):
                self.refuse_sum()
            if not isinstance(kind, Free):
                self.refuse(f"{what} that differ from {self.space} to {self.space}", advice.places(self.space))

    def summed(self, how: str) -> Summed:
        """A sum over rows that this operation takes."""
        return Summed(Origin(self.equation, self.scope.callers, self.space, how))

    def add_up(self, terms: Iterable[int]) -> Summed:
        """The type of a linear combination of these operands, of which at least one is a sum and none has rows.

        Raises:
            RowError: another operand is not known to be zero, so that it would be added once for each part of the rows.
        """
        for k in terms:
            kind = self.types[k]
            if isinstance(kind, Free) and not kind.zero:
                self.refuse_sum(f"A term without rows is then added to the sum. {advice.TERMS}")
            if not isinstance(kind, Free | Summed):
                self.refuse_sum()
        return self.sums[0]

    def follow(self, axis_of: Callable[[Rows], int | Rows], *, linear: bool, operand: int = 0) -> list[RowType]:
        """The results' types where rows of one operand keep to themselves and no other operand has any.

        Args:
            axis_of: where an operand's rows are in every result: the axis, or the type if the factor changes.
            linear: whether the operation is linear in the operand.
            operand: which operand.
        """
        kind = self.types[operand]
        if isinstance(kind, Summed):
            if not linear:
                self.refuse_sum()
            return [kind for _ in self.result_shapes]
        if isinstance(kind, Rows):
            to = axis_of(kind)
            moved = to if isinstance(to, Rows) else Rows(kind.space, to, kind.factor)
            return [moved for _ in self.result_shapes]
        return [Free() for _ in self.result_shapes]


Rule = Callable[[Operation], Sequence[RowType]]

RULES: dict[str, Rule] = {}
"""The rule of each primitive."""


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Registers a rule for primitives of these names."""

    def register(function: Rule) -> Rule:
        for name in primitives:
            if name in RULES:
                raise ValueError(f"two rules for the primitive {name}")
            RULES[name] = function
        return function

    return register
