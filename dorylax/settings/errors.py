"""Errors of settings: one line with the key, the value, the allowed values and a near match."""

from __future__ import annotations

import re

from dorylax.errors import InputError

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than tabs and line breaks: terminals obey them, and no path holds a NUL."""


ConfigError = InputError
"""Invalid settings; the message is one line for the user."""


def shown(value: object) -> str:
    """Return a value as the user would write it in YAML: `null`, `true`, `0.5`, `'text'`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
