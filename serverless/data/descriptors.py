"""The limit of open files and sockets of this process."""

from __future__ import annotations

import resource

_MOST = 65_536
"""Largest raised limit. Hard limits may be in the billions, and some programs iterate over all descriptors."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit, but at most 65,536; return the resulting limit.

    Later child processes inherit the limit. A second call does nothing.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # macOS enforces a lower limit than its "unlimited" hard limit
        return soft
    return wanted
