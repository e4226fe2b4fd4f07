"""`RowError`: names the operation of the model that mixes rows, its source line, and an alternative."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.jax_internals import JaxprEqn
from dorylax.program.jaxpr.errors import SplitError, where_written
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice


class RowError(SplitError):
    """An operation does not provably compute rows independently.

    Its text is `<phase><headline>: <reason> [<primitive>, at <file>:<line> (<function>)]. <advice>`.

    Args:
        equation: The operation.
        reason: Description of the operation.
        advice: Alternative, as a sentence without its full stop.
        headline: The problem.
        callers: Calls that contain the operation, outermost first.
        phase: Prefix of the message ("in the gradient: ").
        misused_sum: Whether the operation reads a sum over rows that it cannot process part by part.
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
        misused_sum: bool = False,
    ) -> None:
        self.equation = equation
        self.reason = reason
        self.advice = advice
        self.headline = headline
        self.misused_sum = misused_sum
        self._callers, self._phase = callers, phase
        super().__init__(
            f"{phase}{headline}: {reason} [{equation.primitive.name}{place_of(equation, callers)}]. {advice}."
        )

    def advising(self, what_to_do: str) -> RowError:
        """Return the same error with other advice."""
        return RowError(
            self.equation, self.reason, what_to_do, headline=self.headline, callers=self._callers, phase=self._phase
        )


def place_of(equation: JaxprEqn, callers: Sequence[JaxprEqn]) -> str:
    """Return an operation's source line, or that of its caller if it is inside a library function such as `jnp.sort`."""
    return next(filter(None, map(where_written, (equation, *reversed(callers)))), "")


def mixing(space: Space) -> str:
    """Return the headline for an operation that mixes rows."""
    return f"combines values of different {advice.many(space)}"
