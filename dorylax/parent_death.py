"""Child processes that do not outlive their parent, whatever state they are in."""

from __future__ import annotations

import contextlib
import ctypes
import signal

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_parent() -> None:
    """Has Linux kill this process when the thread that started it has ended: even if it is stopped, or hangs.

    Elsewhere it does nothing. A parent that ended before this call is not noticed; watch a pipe from it as well.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
