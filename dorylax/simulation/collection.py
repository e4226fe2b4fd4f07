"""Python's search for circular garbage, while millions of small objects come and go.

A simulation makes hundreds of thousands of them a second, of which next to none are in circles, and many wait for long on
the virtual clock. With Python's defaults every 700 of them begin a search, which also goes through the hundred thousands
that JAX holds: half of the time of a simulation.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_OBJECTS = 1_000_000
"""So many more of them begin a search."""


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Searches seldom while in it, and not among what is there already."""
    before = gc.get_threshold()
    if not before[0]:  # somebody has switched it off
        yield
        return
    gc.freeze()
    gc.set_threshold(max(before[0], _OBJECTS), 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
