"""Errors of settings: one line with the key, the value, the allowed values and a near match."""

from __future__ import annotations

import re
from typing import final

from dorylax.errors import DorylaxError

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than tabs and line breaks: terminals obey them, and no path holds a NUL."""


@final
class ConfigError(DorylaxError, ValueError):
    """Invalid settings; the message is one line for the user.

    Attributes:
        key: The wrong dotted key, `pipeline.staleness`; empty if there is none.
        problem: The message without its key and place.
    """

    def __init__(self, message: str, key: str = "", problem: str = "") -> None:
        super().__init__(message)
        self.key, self.problem = key, problem or message

    def at(self, place: str) -> ConfigError:
        """Return a copy of the error that names its place in a file: `run.yaml:3`."""
        return ConfigError(f"{place}: {self}", self.key, self.problem)

    @classmethod
    def of(cls, key: str, problem: str) -> ConfigError:
        """Make an error whose message begins with its key: `pipeline.staleness` and `must be ≥ 0, got -1`."""
        return cls(f"{key} {problem}" if key else problem, key, problem)


def shown(value: object) -> str:
    """Return a value as the user would write it in YAML: `null`, `true`, `0.5`, `'text'`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
