"""From a command's options to configuration keys: those of a file, overridden by those of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dorylax.config.check import check_value, unknown_key
from dorylax.config.files import overrides_from_file
from dorylax.config.schema import KEYS
from dorylax.settings.errors import ConfigError
from dorylax.settings.strict_yaml import scalar
from dorylax.settings.words import type_words


def parse_value(key: str, text: str) -> Any:
    """The value of one key as typed on a command line, by YAML's rules for scalars; checked.

    Raises:
        ConfigError: an unknown key, or a value that is wrong for it.
    """
    if key not in KEYS:
        raise unknown_key(key)
    try:
        value = scalar(text)
    except ConfigError:
        value = text
    # `--data 10` is a name all the same.
    if type_words(KEYS[key]) == "text" and value is not None:
        value = text
    check_value(key, value)
    return value


def parse_setting(setting: str) -> tuple[str, Any]:
    """`key=value` → key and value, checked.

    Raises:
        ConfigError: no `=`, or as `parse_value`.
    """
    key, equals, text = setting.partition("=")
    if not equals:
        raise ConfigError(f"--set takes key=value, as in train.epochs=100, got {setting!r}")
    return key.strip(), parse_value(key.strip(), text.strip())


def collect(
    file: Path | None, named: dict[str, str | None], settings: Sequence[str], *, no_verify: bool
) -> dict[str, Any]:
    """All that the user gave, dotted.

    Args:
        file: of `--config`.
        named: dotted key → text of an option of its own (`--epochs`), None where not given.
        settings: each a `key=value` of `--set`.
        no_verify: whether `--no-verify` is given.

    Raises:
        ConfigError: a wrong key or value, or one key given by two options.
    """
    given = overrides_from_file(file) if file else {}
    if no_verify:
        named = {**named, "data.verify": "false"}
    flags = {key: parse_value(key, text) for key, text in named.items() if text is not None}
    for setting in settings:
        key, value = parse_setting(setting)
        if key in flags:
            raise ConfigError(f"{key} is given twice on the command line")
        flags[key] = value
    return given | flags
