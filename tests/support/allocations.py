"""Limit the memory that Python and NumPy allocate in a block of code."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator


@contextlib.contextmanager
def allocating_less_than(most: int) -> Iterator[None]:
    """Fail if allocations of the block exceed `most` bytes at any moment. Unlike resident memory, these are exact."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most
