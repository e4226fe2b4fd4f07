"""Source lines of operations in the user's code, for messages."""

from __future__ import annotations

from pathlib import Path

from dorylax.jax_internals import JaxprEqn, first_source_line
from dorylax.user_code.lines import is_users, user_line


def where_written(equation: JaxprEqn) -> str:
    """Return `, at models.py:75 (Net.__call__)`: the innermost line outside the libraries; empty if it is unknown."""
    line = first_source_line(equation, lambda file: not is_users(file))
    return "" if line is None else f", at {Path(line.file).name}:{line.line} ({line.function})"


def where_raised(error: BaseException) -> str:
    """Return the source line that raised an exception, in the same form."""
    line = user_line(error)
    return "" if line is None else f", at {Path(line.file).name}:{line.line} ({line.function})"
