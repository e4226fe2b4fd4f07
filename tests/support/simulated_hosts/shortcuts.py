"""What hosts of one process need not do again and again, for the sake of many simulations an hour."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator
from typing import Any

from dorylax.graph.sharded_data import ShardedData
from dorylax.pipeline.hosts import coordinator
from dorylax.pipeline.parameters import update

_shard = functools.lru_cache(None)(ShardedData.shard)
_pickled = functools.lru_cache(None)(update._pickled)
_SHORTCUTS: tuple[tuple[Any, str, Any], ...] = (
    (ShardedData, "shard", _shard),  # its arrays are never written to
    (update, "_pickled", _pickled),
    (coordinator, "_CLOCK_READINGS", 1),  # all clocks show the same
)


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """Shards are read once, optimizers pickled once, and nobody collects garbage amid a simulation."""
    before = [getattr(where, name) for where, name, _ in _SHORTCUTS]
    collects = gc.isenabled()
    gc.disable()
    for where, name, shortcut in _SHORTCUTS:
        setattr(where, name, shortcut)
    try:
        yield
    finally:
        for (where, name, _), inner in zip(_SHORTCUTS, before, strict=True):
            setattr(where, name, inner)
        if collects:
            gc.enable()
