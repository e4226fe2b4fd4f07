"""How this process's allocator treats what is freed, where the same large arrays come and go with every unit."""

from __future__ import annotations

import contextlib
import ctypes
import gc

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT = 1 << 27


def keep_freed_memory() -> None:
    """Has up to 128 MiB that are freed used again, and not given back to the system, which clears every page anew.

    Page faults were a quarter of an epoch's processor time. Nothing happens where the C library is not glibc.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            library.mallopt(option, _KEPT)


def give_back_freed_memory() -> None:
    """Gives all that is freed back to the system: what the next sweep takes is of other sizes, and comes on top.

    JAX holds arrays that it has read until it is called again, or Python looks for garbage. That it looks among the youngest
    objects will do, and takes no time in a process that has many.
    """
    gc.collect(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
