"""Errors of tracing and splitting that name the line of the user's model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from dorylax.errors import DorylaxError
from dorylax.jax_internals import JaxprEqn, first_source_line
from dorylax.user_code.lines import is_users, user_line


class SplitError(DorylaxError, ValueError):
    """The model cannot be split by rows, so that one machine alone can train it, or the run cannot be streamed.

    Attributes:
        side_effect: Whether the reason is a print or another callback, which a program would drop but plain jit runs.
        missing: Minimum number of bytes that the memory lacks for streaming; 0 if memory is not the reason.
    """

    def __init__(self, text: str = "", *, side_effect: bool = False, missing: int = 0) -> None:
        super().__init__(text)
        self.side_effect, self.missing = side_effect, missing


def refuse(equation: JaxprEqn, reason: str, advice: str) -> NoReturn:
    """Raise the `SplitError` for an equation."""
    raise SplitError(f"{reason} [{equation.primitive.name}{where_written(equation)}]. {advice}.")


def where_written(equation: JaxprEqn) -> str:
    """Return `, at models.py:75 (Net.__call__)`: the innermost line outside the libraries; empty if it is unknown."""
    return _place(first_source_line(equation, lambda file: not is_users(file)))


def where_raised(error: BaseException) -> str:
    """Return the source line that raised an exception, in the same form."""
    return _place(user_line(error))


def _place(line: Any) -> str:
    return "" if line is None else f", at {Path(line.file).name}:{line.line} ({line.function})"
