"""Settings of this process's allocator for large arrays that are allocated and freed with every unit."""

from __future__ import annotations

import contextlib
import ctypes
import gc

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT = 1 << 27


def keep_freed_memory() -> None:
    """Let the allocator reuse up to 128 MiB of freed memory, since the system clears every page that it hands out.

    Page faults were a quarter of an epoch's processor time. Without glibc, this does nothing.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            library.mallopt(option, _KEPT)


def give_back_freed_memory() -> None:
    """Return all freed memory to the system, since the next sweep allocates other sizes in addition.

    JAX holds arrays that it has read until its next call or Python's garbage collection. Collecting the youngest generation
    suffices, and is fast in a process with many objects.
    """
    gc.collect(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
