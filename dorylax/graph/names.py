"""Names of vertices and classes, which data sets and their archives keep: integers, or text as UTF-8 bytes."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from dorylax.graph.validate import GraphError


def stored_names(what: str, names: Any) -> np.ndarray:
    """Names as archives store them: integers `[N]`, or texts as UTF-8 bytes `[N]`; stored names stay as they are.

    Raises:
        GraphError: A name contains NUL, with which NumPy pads text, or is not valid Unicode; `what` names the argument.
    """
    if isinstance(names, np.ndarray) and names.dtype.kind in "iuS":
        return names
    values = names.tolist() if hasattr(names, "tolist") else list(names)
    if all(isinstance(value, Integral) and -(2**63) <= int(value) < 2**63 for value in values):
        return np.array(values, np.int64)
    found = []
    for k, value in enumerate(values):
        text = str(value)
        if "\0" in text:
            raise GraphError(f"{what}[{k}] = {text!r} contains NUL: rename it")
        try:
            found.append(text.encode())
        except UnicodeEncodeError:
            raise GraphError(f"{what}[{k}] = {text!r} is not valid Unicode: rename it") from None
    return np.array(found)


def shown_names(stored: np.ndarray) -> np.ndarray:
    """Stored names as integers or text `[N]`; bytes that are not UTF-8 appear as escapes."""
    return np.char.decode(stored, "utf-8", "backslashreplace") if stored.dtype.kind == "S" else stored
