"""How many files and sockets this process may have open at a time."""

from __future__ import annotations

import resource

_MOST = 65_536
"""Of a limit that is raised: hard limits may be in the billions, and some programs look at every number up to theirs."""


def raise_limit() -> int:
    """Raises this process's soft limit of open files as far as it may, but not above 65,536; gives what it is then.

    Processes that it starts later inherit the limit. A second call does nothing.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # macOS has another limit below a hard one that says "unlimited"
        return soft
    return wanted
