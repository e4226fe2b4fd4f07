"""Whether a key exists and a value is right for it; each error is one line, in this project's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from dorylax.config.schema import NULL_SAYS_SOMETHING, SECTIONS, bound_words, choices, expected, keys, nullable
from dorylax.near_matches import choose, close, did_you_mean
from dorylax.settings.errors import ConfigError, shown

KEYS: dict[str, FieldInfo] = dict(keys())
"""Dotted key → its field, in order."""


def flatten(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Nested or dotted keys → dotted keys, each known.

    Raises:
        ConfigError: an unknown section or key, a section that is none, or a key given in both ways.
    """
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in SECTIONS:
            if not isinstance(value, Mapping):
                example = next(name for name in KEYS if name.startswith(key))
                raise ConfigError(f"{key} is a section and must hold keys such as {example}, got {shown(value)}")
            entries = {f"{key}.{name}": entry for name, entry in value.items()}
        else:
            entries = {key: value}
        for dotted, entry in entries.items():
            if dotted not in KEYS:
                raise ConfigError(unknown_key(dotted))
            if dotted in flat:
                raise ConfigError(f"{dotted} is given twice")
            flat[dotted] = entry
    return flat


def unknown_key(key: object) -> str:
    """The error for a key that does not exist."""
    text = str(key)
    section, dot, option = text.partition(".")
    head = f"unknown key {shown(key)}"
    if section in SECTIONS and dot:
        options = list(SECTIONS[section].model_fields)
        near = close(option, options)
        return f"{head}: " + choose([f"{section}.{name}" for name in near], [f"{section}.{name}" for name in options])
    if near := close(text, KEYS):
        return f"{head}: {choose(near, KEYS)}"
    # `epochs`, or `training.epochs`: right but for the section.
    names = {name.split(".")[1] for name in KEYS}
    near = [name for word in close(option or text, names) for name in KEYS if name.split(".")[1] == word]
    return f"{head}: " + (choose(near, KEYS) if near else f"keys begin with {', '.join(SECTIONS)}, as in train.epochs")


def check_value(key: str, value: Any) -> None:
    """Check one value by itself: type, bounds, and known names.

    Raises:
        ConfigError: `train.epochs must be ≥ 1, got 0`.
    """
    field = KEYS[key]
    if value is None:
        # None in a model's or optimizer's option means "not used", which is not for the user to say.
        if nullable(field) and key.partition(".")[0] in NULL_SAYS_SOMETHING:
            return
        raise ConfigError(f"{key} must be {expected(field)}, got null")
    section, option = key.split(".")
    try:
        SECTIONS[section].model_validate({option: value})
    except ValidationError as error:
        kind = error.errors()[0]["type"]
        if choices(field):
            raise ConfigError(f"{key} must be {expected(field)}, got {shown(value)}{_near(value, field)}") from None
        if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
            raise ConfigError(f"{key} must be {bound_words(field)}, got {shown(value)}") from None
        if kind == "string_too_short":
            raise ConfigError(f"{key} must not be empty") from None
        if kind == "finite_number":
            raise ConfigError(f"{key} must be finite, got {shown(value)}") from None
        raise ConfigError(f"{key} must be {expected(field)}, got {shown(value)}") from None


def known(key: str, value: Any, names: Iterable[str]) -> str:
    """`value` if it is one of `names`, else a ConfigError with the nearest."""
    if value not in (listed := list(names)):
        raise ConfigError(f"unknown {key} {shown(value)}: {did_you_mean(value, listed)}", key)
    return str(value)


def _near(value: Any, field: FieldInfo) -> str:
    hint = did_you_mean(value, choices(field))
    return f" ({hint})" if hint.startswith("did") else ""
