"""Memory-mapped arrays: which arrays are, and how their pages are given back.

A page of a mapped file that was read stays in memory, and counts as the process' own, until the system needs it for
something else. Who knows that it is done with an array says so here.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

_DONT_NEED = getattr(mmap, "MADV_DONTNEED", None)


def mapping_of(array: Any) -> mmap.mmap | None:
    """The mapping whose memory an array shows, itself or as a view of a view; None where there is none."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def release(*arrays: Any) -> None:
    """Gives resident pages of memory-mapped arrays back to the system; the next read brings them in again.

    Nothing happens to other arrays, and none to mappings that may be written to: what was written to private ones would be
    lost. Pages are given back whole, with what else of the file lies on them.
    """
    if _DONT_NEED is None or not hasattr(mmap.mmap, "madvise"):
        return
    for array in arrays:
        mapping = mapping_of(array)
        if mapping is None or not array.size:
            continue
        with memoryview(mapping) as whole:
            if not whole.readonly:
                continue
            begin = np.frombuffer(whole, np.uint8).ctypes.data
        first, last = (bound - begin for bound in byte_bounds(array))
        first -= first % mmap.PAGESIZE  # the mapping itself begins on a page
        mapping.madvise(_DONT_NEED, first, min(last, len(mapping)) - first)
