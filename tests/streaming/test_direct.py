"""Bytes of files, past the page cache or not: the same."""

from __future__ import annotations

import errno
import os
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
