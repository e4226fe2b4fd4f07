"""What is freed is used again."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
import numpy as np
from dorylax.streaming.spare import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for _ in range(3):
    np.ones(3 << 20, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    for size in (40, 3, 50):
        np.ones(size << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_pages_are_cleared_once() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", _FAULTS, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert resource.getpagesize() == 4096
    assert faults("kept") < faults("given back") / 2


_HELD = """
import ctypes, threading
import numpy as np
from dorylax.machine import resident_bytes
from dorylax.streaming.spare import give_back_freed_memory, keep_freed_memory
keep_freed_memory()
def work():
    arrays = [np.ones(2 << 20, np.uint8) for _ in range(20)]
    kept.append(np.ones(100, np.uint8))
kept = []
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
before = resident_bytes()
give_back_freed_memory()
print(before - resident_bytes())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc_trim is glibc's")
def test_what_threads_freed_is_given_back() -> None:
    found = subprocess.run([sys.executable, "-c", _HELD], capture_output=True, text=True, check=True).stdout
    assert int(found) > 30 << 20
