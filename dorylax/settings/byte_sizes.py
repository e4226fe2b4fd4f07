"""Amounts of memory as people write them: `4GiB`, `500 MB`, `1073741824`."""

from __future__ import annotations

import re

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]*)", re.I)


def parse_bytes(text: str) -> int:
    """Return the number of bytes; raise ValueError for a text that is no amount."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"expected an amount of memory such as 4GiB, 500MB or 1073741824 (bytes), got {text!r}")
    return int(float(found[1]) * _UNITS[found[2].lower()])
