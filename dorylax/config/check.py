"""Checks of keys, and of each value alone; errors are one line, in this project's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dorylax.config.schema import KEYS, NULL_SAYS_SOMETHING, OWN, SECTIONS, is_key
from dorylax.near_matches import choose, close, did_you_mean
from dorylax.settings.errors import CONTROL, ConfigError, shown
from dorylax.settings.words import expected


def flatten(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested or dotted keys as dotted keys; raise ConfigError for an unknown key, or one that is given twice."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        for dotted, entry in _entries(key, value):
            if not is_key(dotted):
                raise unknown_key(dotted)
            if dotted in flat:
                raise ConfigError(f"{dotted} is given twice")
            flat[dotted] = entry
    return flat


class Checked(dict[str, Any]):
    """Dotted keys with values, each checked by itself."""


def checked(mapping: Mapping[str, Any]) -> Checked:
    """Flatten and check keys and values, unless they are checked already."""
    if isinstance(mapping, Checked):
        return mapping
    flat = Checked(flatten(mapping))
    for key, value in flat.items():
        check_value(key, value)
    return flat


def _entries(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of an entry, with their values."""
    if key not in (*SECTIONS, OWN):
        yield key, value
        return
    if not isinstance(value, Mapping):
        example = next((name for name in KEYS if name.startswith(key)), f"{key}.depth")
        raise ConfigError(f"{key} is a section and must hold keys such as {example}, got {shown(value)}")
    for name, entry in value.items():
        yield from _entries(f"{key}.{name}", entry)


def unknown_key(key: object) -> ConfigError:
    """Return the error for a key that does not exist."""
    text = str(key)
    section, dot, option = text.partition(".")
    if section in SECTIONS and dot:
        return SECTIONS[section].unknown(option)
    head = f"unknown key {shown(key)}"
    if near := close(text, KEYS):
        return ConfigError(f"{head}: {choose(near, KEYS)}")
    # `epochs`, or `training.epochs`: right but for the section.
    names = {name.split(".")[1] for name in KEYS}
    near = [name for word in close(option or text, names) for name in KEYS if name.split(".")[1] == word]
    hint = choose(near, KEYS) if near else f"keys begin with {', '.join(SECTIONS)}, as in train.epochs"
    return ConfigError(f"{head}: {hint}")


def check_value(key: str, value: Any) -> None:
    """Check the type and bounds of one value; raise ConfigError: `train.epochs must be ≥ 1, got 0`."""
    section, _, option = key.partition(".")
    if isinstance(value, str) and CONTROL.search(value):
        raise ConfigError(f"{key} must have no control characters, got {shown(value)}", key)
    # None in a model's or optimizer's option means "not used", which is not for the user to say.
    if value is None and section not in NULL_SAYS_SOMETHING and key in KEYS:
        raise ConfigError(f"{key} must be {expected(KEYS[key])}, got null", key)
    SECTIONS[section].check(option, value)


def known(key: str, value: Any, names: Iterable[str]) -> str:
    """Return `value` if it is one of `names`; otherwise raise ConfigError with the nearest."""
    if value not in (listed := list(names)):
        raise ConfigError(f"unknown {key} {shown(value)}: {did_you_mean(value, listed)}", key)
    return str(value)
