"""The line of user code that an exception comes from. Works without JAX."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, final

_OTHERS = {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}  # of a venv's base, say
_SITE = tuple(f"{path}/" for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} | _OTHERS)
_LIBRARIES = tuple(
    f"{site}{name}/"
    for site in _SITE
    for name in (
        *("jax", "jaxlib", "flax", "optax", "opt_einsum", "orbax", "numpy", "scipy", "pandas", "jaxtyping", "beartype"),
        *("typeguard", "ml_dtypes", "treescope", "chex", "cloudpickle", "pydantic", "click", "rich", "dorylax"),
    )
)
_PYTHON = f"{sysconfig.get_path('stdlib')}/"
_ROOT = Path(__file__).resolve().parents[1]
# A checkout has the package's folders next to tests and examples, which count as user code.
_OWN = (f"{_ROOT}/", *(f"{_ROOT.parent / name}/" for name in ("layers", "pipeline", "serverless", "experiments")))


@final
class UserLine(NamedTuple):
    """A line of the user's code.

    Attributes:
        file: The path of the file.
        line: The line number, from 1.
        function: The enclosing function, as `Net.__call__`; empty if unknown.
        text: The source; empty if the file is unreadable.
    """

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        """`models.py:75 (Net.__call__): return self.last(h)`, with the path from the current folder."""
        path = os.path.relpath(self.file)
        place = f"{self.file if path.startswith(os.pardir) else path}:{self.line}"
        place += f" ({self.function})" if self.function else ""
        return f"{place}: {self.text}" if self.text else place


def is_users(file: str) -> bool:
    """Return whether a file is user code: a real file outside libraries, Python and dorylax."""
    if file.startswith("<"):
        return False
    of_python = file.startswith(_PYTHON) and not file.startswith(_SITE)
    return not of_python and not file.startswith(_LIBRARIES + _OWN)


def user_line(error: BaseException) -> UserLine | None:
    """Return the innermost line of user code in an exception's traceback, or None.

    For a SyntaxError it is the line with the error.
    """
    if isinstance(error, SyntaxError) and error.filename is not None and is_users(error.filename):
        return UserLine(error.filename, error.lineno or 1, "", (error.text or "").strip())
    # JAX's record of the place where an operation was written that fails elsewhere: in a gradient, say.
    written = error.__cause__ if type(error.__cause__).__name__ == "JaxStackTraceBeforeTransformation" else None
    found: UserLine | None = None if written is None else user_line(written)
    if found is not None:
        return found
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if is_users(code.co_filename):
            text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
            found = UserLine(code.co_filename, line, code.co_qualname, text)
    return found


def in_one_sentence(error: BaseException) -> str:
    """`TypeError: dot_general requires …`: the exception's type and its first line, without what JAX adds to it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name = type(error).__name__
    # jaxtyping's first line names the function, the next three the argument, its value and its expected type.
    said = " ".join(lines[: 4 if type(error).__module__.startswith("jaxtyping") else 1])
    return f"{name}: {said}" if said else name


@contextlib.contextmanager
def user_line_noted() -> Iterator[None]:
    """Add a note with the line to exceptions from user code. Their type does not change.

    dorylax's exceptions name lines themselves.
    """
    try:
        yield
    except Exception as error:
        line = None if type(error).__module__.partition(".")[0] == "dorylax" else user_line(error)
        if line is not None:
            note = f"in {line}"
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
        raise
