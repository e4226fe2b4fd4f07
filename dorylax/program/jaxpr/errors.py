"""Errors of tracing and splitting that name the line of the user's model."""

from __future__ import annotations

from typing import NoReturn

from dorylax.errors import DorylaxError
from dorylax.jax_internals import JaxprEqn
from dorylax.program.jaxpr.source import where_written


class SplitError(DorylaxError, ValueError):
    """The model cannot be split by rows; one machine can still train it.

    Attributes:
        side_effect: Whether the reason is a print or another callback, which a program would drop but plain jit runs.
    """

    side_effect = False


def refuse(equation: JaxprEqn, reason: str, advice: str) -> NoReturn:
    """Raise the `SplitError` for an equation."""
    raise SplitError(f"{reason} [{equation.primitive.name}{where_written(equation)}]. {advice}.")
