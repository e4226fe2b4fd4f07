"""Where in the user's code an operation was written, for messages."""

from __future__ import annotations

from pathlib import Path

from dorylax.jax_internals import JaxprEqn, first_source_line
from dorylax.user_code.lines import is_users, user_line


def where_written(equation: JaxprEqn) -> str:
    """`, at models.py:75 (Net.__call__)`: the innermost line outside the libraries; empty if nothing is known."""
    line = first_source_line(equation, lambda file: not is_users(file))
    return "" if line is None else f", at {Path(line.file).name}:{line.line} ({line.function})"


def where_raised(error: BaseException) -> str:
    """The same for the place where an exception came from."""
    line = user_line(error)
    return "" if line is None else f", at {Path(line.file).name}:{line.line} ({line.function})"
