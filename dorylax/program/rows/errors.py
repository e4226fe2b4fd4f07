"""`RowError`: which operation of the model mixes rows, where it is written, and what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from dorylax.jax_internals import JaxprEqn
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.jaxpr.source import where_written
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.types import Summed


class RowError(SplitError):
    """An operation for which it is not proved that rows are computed independently.

    Its text is `<phase><headline>: <reason> [<primitive>, at <file>:<line> (<function>)]. <advice>`.

    Args:
        equation: the operation.
        reason: what it does.
        advice: what to do instead, as a sentence without its full stop.
        headline: what is wrong with it.
        callers: the calls that the operation is inside of, outermost first.
        phase: what precedes the message ("in the gradient: ").
    """

    def __init__(
        self,
        equation: JaxprEqn,
        reason: str,
        advice: str,
        *,
        headline: str,
        callers: Sequence[JaxprEqn] = (),
        phase: str = "",
    ) -> None:
        self.equation = equation
        self.reason = reason
        self.advice = advice
        self.headline = headline
        self._callers, self._phase = callers, phase
        super().__init__(
            f"{phase}{headline}: {reason} [{equation.primitive.name}{place_of(equation, callers)}]. {advice}."
        )

    def advising(self, what_to_do: str) -> RowError:
        """The same error with other advice."""
        return RowError(
            self.equation, self.reason, what_to_do, headline=self.headline, callers=self._callers, phase=self._phase
        )


@final
class MisusedSumError(RowError):
    """A sum over rows that something reads which its parts cannot go through one by one."""


def place_of(equation: JaxprEqn, callers: Sequence[JaxprEqn]) -> str:
    """Where an operation is written; where it is called if it is inside a library's function, as that of `jnp.sort`."""
    return next(filter(None, map(where_written, (equation, *reversed(callers)))), "")


def mixing(space: Space) -> str:
    """The headline for an operation that mixes rows."""
    return f"combines values of different {advice.many(space)}"


def misused_sum(
    total: Summed, use: JaxprEqn, why: str, *, callers: Sequence[JaxprEqn] = (), phase: str = ""
) -> MisusedSumError:
    """The error for a sum over rows that is used before its parts can meet: inside a loop, in a derivative of one's own.

    Args:
        total: the sum; the error names the place where it was taken.
        use: the operation that it enters.
        why: what is wrong with that use, as a sentence without its full stop.
        callers: the calls that the use is inside of, outermost first.
        phase: as in `RowError`.

    Raises:
        ValueError: nothing is known about where the sum was taken.
    """
    if total.origin is None:
        raise ValueError("a sum that was an input has no place to name")
    origin = total.origin
    taken = place_of(origin.equation, origin.callers)
    used = place_of(use, callers)
    if used not in ("", taken):
        why = f"{why} [{use.primitive.name}{used}]"
    return MisusedSumError(
        origin.equation,
        origin.how,
        f"{why}. {advice.sums(origin.space)}",
        headline=mixing(origin.space),
        callers=origin.callers,
        phase=phase,
    )
