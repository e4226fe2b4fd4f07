"""The contract of a rule, the registry of rules, and an equation as rules see it.

A rule proves, for one equation of a known primitive, the types of its results, or refuses. It may rely on checks of the
driver (`check.py`): structure arrays enter only graph operators, and rows of vertices and of edges do not meet outside graph
operators and calls. The driver also compares the rule's answer with the shapes of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, final

from dorylax.errors import InputError
from dorylax.jax_internals import Jaxpr, JaxprEqn, type_of
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.errors import RowError, mixing, place_of
from dorylax.program.rows.types import Free, Origin, Rows, RowType, Summed, read_axis


class Scope(NamedTuple):
    """Context shared by all equations of a jaxpr.

    Attributes:
        phase: Prefix of error messages.
        inside: Loop or branch whose body the jaxpr is; None outside.
        callers: Calls and loops that contain the jaxpr, outermost first.
        infer: Returns the types of a jaxpr's outputs, given those of its inputs.
    """

    phase: str
    inside: str | None
    callers: tuple[JaxprEqn, ...]
    infer: Callable[[Jaxpr, Sequence[RowType], Scope], list[RowType]]


def shape_of(atom: Any) -> tuple[Any, ...]:
    """Return the shape of a variable or literal; values without one, such as tokens, count as scalars."""
    return getattr(atom.aval, "shape", ())


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
        """Space of the rows that take part; "vertex" without rows."""
        for _, rows in self.rows:
            return rows.space
        for total in self.sums:
            if total.origin is not None:
                return total.origin.space
        return "vertex"

    def result_rows(self, k: int = 0) -> Rows | None:
        """Return the axis of rows of a result, judged by its shape.

        Raises:
            RowError: The shape has two such axes, or a size that does not count rows.
        """
        try:
            return read_axis(self.result_shapes[k])
        except InputError as error:
            self.refuse(str(error), advice.pairs(self.space))

    def dtype(self, k: int) -> Any:
        """Return the dtype of an operand."""
        return type_of(self.equation.invars[k]).dtype

    @property
    def result_dtype(self) -> Any:
        """Dtype of the first result."""
        return type_of(self.equation.outvars[0]).dtype

    def counts(self, size: Any) -> Rows | None:
        """Return the rows that a size in the parameters counts, as axis 0; None for numbers.

        Raises:
            RowError: The size is not a constant multiple of one symbol.
        """
        try:
            return read_axis((size,))
        except InputError:
            self.refuse(f"a part of the {self.space} axis, of size {size}", advice.places(self.space))

    def infer(self, jaxpr: Jaxpr, types: Sequence[RowType], *, inside: str | None = None) -> list[RowType]:
        """Return the types of the outputs of a jaxpr that this operation runs.

        Args:
            jaxpr: A body, a branch, or a function.
            types: Types of its inputs.
            inside: Name of the loop or branch in messages, if it cannot contain graph operators.
        """
        scope = self.scope._replace(callers=(*self.scope.callers, self.equation), inside=inside or self.scope.inside)
        return scope.infer(jaxpr, types, scope)

    # Ways to refuse

    def refuse(self, reason: str, what_to_do: str) -> NoReturn:
        """Raise the error of an operation that mixes rows."""
        raise self._error(reason, what_to_do, mixing(self.space))

    def unsupported(self, reason: str, what_to_do: str = advice.OURS) -> NoReturn:
        """Raise the error of an operation whose independence of rows cannot be proved."""
        raise self._error(reason, what_to_do, f"cannot be computed {self.space} by {self.space}")

    def _error(self, reason: str, what_to_do: str, headline: str) -> RowError:
        scope = self.scope
        return RowError(self.equation, reason, what_to_do, headline=headline, callers=scope.callers, phase=scope.phase)

    def refuse_sum(self, why: str | None = None) -> NoReturn:
        """Raise the error of a sum over rows that enters this operation; it names the place where the sum was taken."""
        if self.rows:
            default = f"The sum is then used for single {advice.many(self.space)}"
        else:
            default = f"The sum is then used by {self.name}, which parts of a sum cannot go through one by one"
        origin = next((total.origin for total in self.sums if total.origin is not None), None)
        if origin is not None:
            reason = why or default
            used = place_of(self.equation, self.scope.callers)
            if used not in ("", place_of(origin.equation, origin.callers)):
                reason = f"{reason} [{self.name}{used}]"
            raise RowError(
                origin.equation,
                origin.how,
                f"{reason}. {advice.sums(origin.space)}",
                headline=mixing(origin.space),
                callers=origin.callers,
                phase=self.scope.phase,
                misused_sum=True,
            )
        self.unsupported(f"a sum over {advice.many(self.space)} enters {self.name}", advice.sums(self.space))

    # Common parts of rules

    def require_free(self, operands: Iterable[int], what: str) -> None:
        """Refuse if any of these operands has rows or is a sum over rows."""
        for k in operands:
            kind = self.types[k]
            if isinstance(kind, Summed):
                self.refuse_sum()
            if not isinstance(kind, Free):
                self.refuse(f"{what} that differ from {self.space} to {self.space}", advice.places(self.space))

    def summed(self, how: str) -> Summed:
        """Return the type of a sum over rows that this operation takes."""
        return Summed(Origin(self.equation, self.scope.callers, self.space, how))

    def add_up(self, terms: Iterable[int]) -> Summed:
        """Return the type of a linear combination of these operands, at least one of which is a sum.

        Raises:
            RowError: An operand has rows, or is not known to be zero, so that it would be added once for each part of the
                rows.
        """
        for k in terms:
            kind = self.types[k]
            if isinstance(kind, Free) and not kind.zero:
                self.refuse_sum(f"A term without rows is then added to the sum. {advice.TERMS}")
            if not isinstance(kind, Free | Summed):
                self.refuse_sum()
        return self.sums[0]

    def common_rows(self, count: int | None = None) -> Rows:
        """Return the rows of the first `count` operands (all by default), which must have the same.

        Raises:
            RowError: They have different rows, or any operand is a sum over rows.
        """
        if self.sums:
            self.refuse_sum()
        rows = self.rows[0][1]
        if any(kind != rows for kind in self.types[:count]):
            self.unsupported(f"operands of {self.name} have their rows on different axes")
        return rows

    def refuse_along(self, rows: Rows, axes: Iterable[Any], what: str) -> None:
        """Refuse if the axis of rows is one of those along which the operation computes."""
        if rows.axis in [int(axis) for axis in axes]:
            self.refuse(f"{what} the {rows.space} axis", advice.order(rows.space))

    def follow(
        self,
        axis_of: Callable[[Rows], int | Rows] = lambda rows: rows,
        *,
        linear: bool,
        along: Iterable[Any] = (),
        what: str = "",
    ) -> list[RowType]:
        """Return the results' types if the first operand's rows stay separate and no other operand has rows.

        Args:
            axis_of: Position of the operand's rows in every result: the axis, or the type if the factor changes.
            linear: Whether the operation is linear in the operand.
            along: Axes of the operand along which the operation computes, as described by `what`.
            what: Start of the reason to refuse rows there.
        """
        kind = self.types[0]
        if isinstance(kind, Summed) and not linear:
            self.refuse_sum()
        if isinstance(kind, Rows):
            self.refuse_along(kind, along, what)
            to = axis_of(kind)
            kind = to if isinstance(to, Rows) else Rows(kind.space, to, kind.factor)
        return self.all_results(Free() if isinstance(kind, Free) else kind)

    def all_results(self, kind: RowType) -> list[RowType]:
        """Return this type for each result."""
        return [kind] * len(self.result_shapes)


Rule = Callable[[Operation], Sequence[RowType]]

RULES: dict[str, Rule] = {}
"""The rule of each primitive."""


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Register a rule for primitives of these names."""

    def register(function: Rule) -> Rule:
        for name in primitives:
            if name in RULES:
                raise ValueError(f"two rules for the primitive {name}")
            RULES[name] = function
        return function

    return register
