"""Errors of tracing and splitting, which name the line of the user's model."""

from __future__ import annotations

from typing import NoReturn

from dorylax.errors import DorylaxError
from dorylax.jax_internals import JaxprEqn
from dorylax.program.jaxpr.source import where_written


class SplitError(DorylaxError, ValueError):
    """A model that cannot be split by rows; it can still be trained on one machine."""


class SideEffectError(SplitError):
    """A model with prints or other callbacks, which a program would drop and plain jit runs."""


class PassError(DorylaxError, ValueError):
    """A pass that is unknown, or applied where it no longer can be."""


def refuse(equation: JaxprEqn, reason: str, advice: str) -> NoReturn:
    """Raises the `SplitError` for an equation."""
    raise SplitError(f"{reason} [{equation.primitive.name}{where_written(equation)}]. {advice}.")
