"""Where in the user's code an operation was written, for messages."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import dorylax
from dorylax.jax_internals import JaxprEqn, first_source_line

_LIBRARIES = tuple(
    str(Path(sysconfig.get_path("purelib")) / name) + "/"
    for name in ("jax", "jaxlib", "flax", "optax", "numpy", "jaxtyping", "beartype", "dorylax")
)
# In a checkout the package's own folders lie beside tests and examples, which are users like others.
_OWN = tuple(
    f"{Path(place).resolve()}/"
    for place in (Path(dorylax.__file__).parent, Path(dorylax.__file__).parent.parent / "layers")
)


def where_written(equation: JaxprEqn) -> str:
    """`, at models.py:75 (Net.__call__)`: the innermost line outside the libraries; empty if nothing is known."""
    line = first_source_line(equation, _in_library)
    return "" if line is None else f", at {Path(line.file).name}:{line.line} ({line.function})"


def where_raised(error: BaseException) -> str:
    """The same for the place where an exception came from."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not _in_library(code.co_filename) and not code.co_filename.startswith("<"):
            found = f", at {Path(code.co_filename).name}:{line} ({code.co_qualname})"
    return found


def _in_library(file: str) -> bool:
    return file.startswith(_LIBRARIES + _OWN)
