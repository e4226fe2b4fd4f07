"""Becomes a command of dorylax within limits: `python within_limits.py '[[NUMBER, LIMIT], …]' ARGUMENT …`.

NUMBER is one of `resource.RLIMIT_…`; the limit is soft and hard.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys

_DROP_FROM_BOUNDING_SET, _SYS_ADMIN, _SYS_RESOURCE = 24, 21, 24


def become(limits: str, *arguments: str) -> None:
    """Sets the limits, and runs the command in this process' place."""
    for number, limit in json.loads(limits):
        if number == resource.RLIMIT_NPROC and os.getuid() == 0:
            _be_bound_by_limits()
        resource.setrlimit(number, (limit, limit))
    os.execv(sys.executable, [sys.executable, "-m", "dorylax", *arguments])


def _be_bound_by_limits() -> None:
    """Makes root a user of whom nothing else runs, whom the limit of processes binds, but who may still read all files."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_SYS_ADMIN, _SYS_RESOURCE):
        libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
    os.setresuid(20_000 + os.getpid() % 40_000, 0, 0)


if __name__ == "__main__":
    become(*sys.argv[1:])
