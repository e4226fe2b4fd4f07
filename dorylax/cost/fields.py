"""Checks of the fields of a cluster's description: known keys, types, and bounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import ConfigError
from dorylax.settings.words import TYPE_WORDS


def check_bounds(owner: object, least: float, *keys: str, above: bool = False, below: float = math.inf) -> None:
    """Raise a ConfigError unless these fields are finite, ≥ `least` (> `least` if `above`) and < `below`."""
    for key in keys:
        value: float | int = getattr(owner, key)
        if not (value > least or (value == least and not above)) or not value < below:
            bounds = f"{'>' if above else '≥'} {least:g}"
            more = f" and < {below:g}" if below < math.inf else "" if math.isfinite(value) else " and finite"
            raise ConfigError.of(key, f"must be {bounds}{more}, got {value}")


def entries(
    value: Any,
    section: str,
    kinds: Mapping[str, type | None],
    *,
    such_as: str,
    owner: str,
    required: Collection[str] = (),
) -> dict[str, Any]:
    """Return the entries of a section of a file.

    Args:
        value: The section as read.
        section: Dotted key of the section; empty for the whole file.
        kinds: Known keys with their types, None for any; whole numbers are numbers, too.
        such_as: Description of the keys, for an error.
        owner: Owner of the keys, for an error.
        required: Keys that must be given.

    Raises:
        ConfigError: The value is no mapping, a key is unknown or missing, or a value has another type; names the key.
    """
    if not isinstance(value, dict):
        raise ConfigError.of(section, f"must hold keys{such_as}, got {value!r}")
    for name in value:
        if name not in kinds:
            raise ConfigError.of(key_in(section, name), f"is not a key of {owner}: {did_you_mean(name, kinds)}")
    for name in required:
        if name not in value and (kind := kinds[name]) is not None:
            raise ConfigError.of(key_in(section, name), f"is missing: expected {TYPE_WORDS[kind]}")
    return {name: _typed(one, kinds[name], key_in(section, name)) for name, one in value.items()}


def key_in(section: str, name: str) -> str:
    """Return the dotted key of an entry."""
    return f"{section}.{name}" if section else str(name)


@contextmanager
def inside(section: str) -> Iterator[None]:
    """Add the section to the keys of errors that the body raises."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError.of(key_in(section, error.key), error.problem) from None


def _typed(value: Any, kind: type | None, key: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if kind is not None and type(value) is not kind:
        raise ConfigError.of(key, f"must be {TYPE_WORDS[kind]}, got {value!r}")
    return value
