"""What `dorylax info` says of a run before it begins."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence


def estimated_peak(words: Sequence[str]) -> tuple[int, str]:
    """The peak of a run's memory, in bytes, and the phase in which it is reached.

    Args:
        words: options of `dorylax info`, of `dorylax train` too.
    """
    command = [sys.executable, "-m", "dorylax", "info", "--json", *words]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found["peak"]["bytes"], found["peak"]["phase"]
