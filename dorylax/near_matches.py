"""What a wrong word may be meant for: near matches, and how an error tells them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def close(value: object, choices: Iterable[str], *, cutoff: float = 0.6) -> list[str]:
    """Up to three of `choices` that look like `value`, nearest first; letter case does not count.

    Args:
        value: what was given.
        choices: what would have been right.
        cutoff: likeness from which a choice is near, in 0 … 1. Names here are short, and of two words that share only half
            of their letters (`wall`, `real`) one is hardly ever meant for the other. Where a near match is itself
            the error, and not only a hint, it takes more.
    """
    lowered = {name.lower(): name for name in choices}
    word = str(value).lower()
    found = difflib.get_close_matches(word, lowered, n=3, cutoff=cutoff)
    ratios = [difflib.SequenceMatcher(None, name, word).ratio() for name in found]
    # Next to a good match a poor one only distracts.
    return [lowered[name] for name, ratio in zip(found, ratios, strict=True) if ratio > ratios[0] - 0.2]


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


def choose(found: Iterable[str], choices: Iterable[str]) -> str:
    """`did_you_mean` once the near matches are known."""
    if found := list(found):
        return f"did you mean {' or '.join(found)}?"
    return f"choose from {', '.join(choices)}"
