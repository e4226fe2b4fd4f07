"""Configuration files: keys in YAML, nested or dotted, each error with its file and line.

Nothing is filled in here, so that what a file says can still be overridden (recipe < file < flags).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dorylax.config.check import check_value, flatten
from dorylax.config.schema import SECTIONS
from dorylax.settings import strict_yaml
from dorylax.settings.errors import ConfigError, shown

SCHEMA = 1
"""The number that says how a stored configuration is to be read (docs/run-directory.md)."""


def overrides_from_file(path: Path) -> dict[str, Any]:
    """Read a YAML file of keys, nested or dotted, without filling anything in.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or holds a wrong key or value; with file and line.
    """
    return overrides_from_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a configuration file, or a ConfigError that says why there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def overrides_from_yaml(text: str, name: str) -> dict[str, Any]:
    """`overrides_from_file` for a document that is already text."""
    document = strict_yaml.parse(text, name)
    if document.value is None:
        return {}
    if not isinstance(document.value, dict):
        raise ConfigError(f"{document.where()}: must hold keys such as train.epochs, got {shown(document.value)}")
    values = dict(document.value)
    schema = values.pop("schema", SCHEMA)
    if schema != SCHEMA:
        raise ConfigError(f"{document.where('schema')}: schema must be {SCHEMA}, got {shown(schema)}")
    return overrides_from_mapping(document, values)


def overrides_from_mapping(
    document: strict_yaml.Document, mapping: dict[str, Any], inside: strict_yaml.Path = ()
) -> dict[str, Any]:
    """`overrides_from_file` for a part of a document; `inside` is where in it the mapping stands."""
    given: dict[str, Any] = {}
    for key, entry in mapping.items():
        # One entry at a time, so that each error can have its line.
        entries = entry.items() if key in SECTIONS and isinstance(entry, dict) else [(None, entry)]
        for option, value in entries:
            path = (key,) if option is None else (key, option)
            try:
                for dotted, one in flatten({".".join(path): value}).items():
                    check_value(dotted, one)
                    if dotted in given:
                        raise ConfigError(f"{dotted} is given twice")
                    given[dotted] = one
            except ConfigError as error:
                raise ConfigError(f"{document.where(*inside, *path)}: {error}") from None
    return given
