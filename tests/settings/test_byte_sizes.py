"""Amounts of memory as people write them."""

from __future__ import annotations

import pytest

from dorylax.settings.byte_sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 * 2**30),
        ("1.5 gib", 3 * 2**29),
        ("500MB", 5 * 10**8),
        ("10kB", 10**4),
        ("7", 7),
        ("2 TiB", 2**41),
        ("9B", 9),
    ],
)
def test_amounts(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4 G", "-1GiB", "4GiB!", "1e9"])
def test_what_is_none(text):
    with pytest.raises(ValueError, match=r"expected an amount of memory such as 4GiB"):
        parse_bytes(text)
