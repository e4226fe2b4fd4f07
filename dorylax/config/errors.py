"""What a wrong configuration says: one line with the key, the value, what is allowed, what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A configuration that cannot be run; its text is one line for the user.

    Attributes:
        key: the dotted key that is wrong, where it is one.
    """

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """The part of an error that helps: near matches of `value`, or all choices where none is near.

    Args:
        value: what was given.
        choices: what would have been right, in the order to show.

    Returns:
        `did you mean a or b?` or `choose from a, b, c`.
    """
    names = list(choices)
    return choose(close(value, names), names)


def close(value: object, choices: Iterable[str]) -> list[str]:
    """Up to three of `choices` that look like `value`, nearest first; letter case does not count."""
    lowered = {name.lower(): name for name in choices}
    word = str(value).lower()
    near = difflib.get_close_matches(word, lowered, n=3, cutoff=0.5)
    ratios = [difflib.SequenceMatcher(None, name, word).ratio() for name in near]
    # Next to a good match a poor one only distracts.
    return [lowered[name] for name, ratio in zip(near, ratios, strict=True) if ratio > ratios[0] - 0.2]


def choose(near: Iterable[str], choices: Iterable[str]) -> str:
    """`did_you_mean` once the near matches are known."""
    if near := list(near):
        return f"did you mean {' or '.join(near)}?"
    return f"choose from {', '.join(choices)}"


def shown(value: object) -> str:
    """A value as the user would write it in YAML: `null`, `true`, `0.5`, `'text'`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
