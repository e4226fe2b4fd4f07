"""Columns of pandas frames whose type depends on what they hold and not on the values that happen to be there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

_DTYPES: Mapping[type, tuple[str, str]] = {
    int: ("int64", "Int64"),
    float: ("float64", "float64"),  # NaN says that a value is missing, as NumPy and Matplotlib understand it
    bool: ("bool", "boolean"),
    str: ("string", "string"),
}
"""Without missing values, and with them."""


def column(values: Sequence[Any], kind: type) -> pandas.Series:
    """A column whose type depends only on its kind and on whether a value is missing.

    Args:
        values: None where one is missing.
        kind: int, float, bool or str.
    """
    import pandas

    whole, nullable = _DTYPES[kind]
    return pandas.Series(values, dtype=nullable if None in values else whole)
