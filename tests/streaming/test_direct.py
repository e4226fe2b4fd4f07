"""Bytes of files, past the page cache or not, are the same; memory that is freed is used again."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dorylax.streaming import direct
from dorylax.streaming.direct import BLOCK, DirectFile, anonymous, room, up


@pytest.fixture(params=[True, False], ids=["direct", "refused"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        opened = os.open

        def refusing(path: str, flags: int, mode: int = 0o777) -> int:
            if flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, "no such thing here")
            return opened(path, flags, mode)

        monkeypatch.setattr(os, "open", refusing)
    return bool(request.param)


@pytest.mark.parametrize(("position", "size"), [(0, 10), (5, 8192), (4095, 2), (8192, 1000), (9_990, 10), (0, 10_000)])
def test_bytes_from_anywhere(tmp_path: Path, way: bool, position: int, size: int) -> None:
    content = np.random.default_rng(0).integers(0, 256, 10_000, np.uint8).tobytes()
    (tmp_path / "file").write_bytes(content)
    file = DirectFile(tmp_path / "file")
    assert file._direct == way or way  # a file system may refuse by itself
    found = file.read(anonymous(room(size)), position, size)
    assert found.tobytes() == content[position : position + size]
    file.close()


def test_a_file_that_ends_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(5000))
    with pytest.raises(OSError, match="ends at byte 5000, and 5001 were expected"):
        DirectFile(tmp_path / "file").read(anonymous(room(5001)), 0, 5001)


def test_what_is_written_has_no_name_and_is_read_back(tmp_path: Path, way: bool) -> None:
    file = DirectFile(tmp_path / "file", writes=True)
    assert not any(tmp_path.iterdir())
    buffer = anonymous(2 * BLOCK)
    buffer[:] = np.arange(2 * BLOCK) % 251
    file.write(buffer, BLOCK)
    found = file.read(anonymous(room(BLOCK + 7)), BLOCK + 3, BLOCK + 7)
    np.testing.assert_array_equal(found, buffer[3 : BLOCK + 10])
    file.close()


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = DirectFile(tmp_path / "file", writes=True)
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="No space left"):
        file.write(anonymous(BLOCK), 0)


def test_memory_is_aligned_and_zero() -> None:
    for size in (1, BLOCK, direct._HUGE_BYTES):
        found = anonymous(size)
        assert found.ctypes.data % BLOCK == 0
        assert len(found) == size
        assert not found.any()
    assert [up(size) for size in (0, 1, BLOCK, BLOCK + 1)] == [0, BLOCK, BLOCK, 2 * BLOCK]


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
