"""Descriptions of settings for errors and docs, from the type and bounds of their fields."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import annotated_types
from pydantic.fields import FieldInfo

from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import shown

TYPE_WORDS: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_SIGNS: dict[type, tuple[str, str]] = {
    annotated_types.Ge: ("≥", "ge"),
    annotated_types.Gt: (">", "gt"),
    annotated_types.Le: ("≤", "le"),
    annotated_types.Lt: ("<", "lt"),
}


def expected(field: FieldInfo) -> str:
    """Describe the values of a field: `a whole number ≥ 1`, `one of none, layer, rms`."""
    return " ".join(part for part in (type_words(field), bound_words(field)) if part)


def type_words(field: FieldInfo) -> str:
    """Return the type part of `expected`."""
    names = choices(field)
    return f"one of {', '.join(names)}" if names else TYPE_WORDS.get(core(field), "a list")


def bound_words(field: FieldInfo) -> str:
    """Return the bounds part of `expected`, or empty text: `≥ 0 and < 1`, of whole numbers `in 1 … 900`."""
    bounds = [(*_SIGNS[type(entry)], entry) for entry in _constraints(field) if type(entry) in _SIGNS]
    values = [(sign, getattr(entry, attribute)) for sign, attribute, entry in bounds]
    if core(field) is int and [sign for sign, _ in values] == ["≥", "≤"]:
        return f"in {values[0][1]} … {values[1][1]}"
    return " and ".join(f"{sign} {value}" for sign, value in values)


def choices(field: FieldInfo) -> tuple[str, ...]:
    """Return the values of a field with a closed set of values; empty for all others."""
    annotation = core(field)
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


def nullable(field: FieldInfo) -> bool:
    """Whether the field's type admits None."""
    return type(None) in typing.get_args(field.annotation)


def core(field: FieldInfo) -> Any:
    """Return the type of a field without `| None` and without constraints."""
    annotation: Any = field.annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = next(part for part in typing.get_args(annotation) if part is not type(None))
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation


def problem(field: FieldInfo, value: object, kind: str) -> str:
    """Describe a wrong value of a field, given the type of pydantic's error.

    Returns:
        `must be ≥ 1, got 0`, or with an `annotated_types.Unit`, `must be > 0 (seconds), got 0`.
    """
    if names := choices(field):
        hint = did_you_mean(value, names) if isinstance(value, str) else ""
        return f"must be {expected(field)}, got {shown(value)}" + (f" ({hint})" if hint.startswith("did") else "")
    if kind in ("string_too_short", "too_short"):
        return "must not be empty"
    wanted = expected(field)
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        wanted = bound_words(field)
    elif kind == "finite_number":
        return f"must be finite, got {shown(value)}"
    unit = "".join(f" ({entry.unit})" for entry in _constraints(field) if isinstance(entry, annotated_types.Unit))
    return f"must be {wanted}{unit}, got {shown(value)}"


def _constraints(field: FieldInfo) -> Iterator[Any]:
    """Yield the constraints of a field, including those on the part X of a type `X | None`."""
    found = list(field.metadata)
    for part in typing.get_args(field.annotation):
        if typing.get_origin(part) is Annotated:
            for entry in typing.get_args(part)[1:]:
                found.extend(entry.metadata if isinstance(entry, FieldInfo) else [entry])
    for entry in found:
        if isinstance(entry, annotated_types.GroupedMetadata):
            yield from entry
        else:
            yield entry
