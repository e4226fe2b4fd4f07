"""Checksums of blocks: what is written is what is compared, on any number of threads, and whatever is changed is found."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.allocations import allocating_less_than

from dorylax.graph import checksums
from dorylax.graph.checksums import Checksums, Summing, from_json, to_json, told, wrong_blocks

Wrong = Callable[[bytes | bytearray, int, Checksums], list[int]]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "BLOCK", 64)


@pytest.fixture
def wrong(tmp_path: Path) -> Wrong:
    """`wrong_blocks` of a file with this content."""

    def find(content: bytes | bytearray, first: int, sums: Checksums) -> list[int]:
        (tmp_path / "file").write_bytes(content)
        with (tmp_path / "file").open("rb") as file:
            return wrong_blocks(file, first, sums)

    return find


def _sums(content: bytes, step: int = 50) -> Checksums:
    written = io.BytesIO()
    stream = Summing(written.write)
    for begin in range(0, len(content), step):
        stream.write(content[begin : begin + step])
    assert written.getvalue() == content
    return stream.checksums()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 640, 1000])
@pytest.mark.parametrize("step", [1, 50, 64, 1000])
def test_what_is_written_is_right_in_pieces_of_any_size(size: int, step: int, wrong: Wrong) -> None:
    content = np.random.default_rng(size).bytes(size)
    sums = _sums(content, step)
    assert (sums.size, len(sums.blocks)) == (size, -(-size // 64))
    assert sums == _sums(content, 7)
    assert wrong(b"before" + content + b"behind", 6, sums) == []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_wrong_block_is_named(threads: int, wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "cores", lambda: threads)
    content = bytearray(np.random.default_rng(0).bytes(1000))
    sums = _sums(bytes(content))
    for block in (0, 7, 15):
        content[64 * block + 30] ^= 4
    assert wrong(content, 0, sums) == [0, 7, 15]
    assert wrong(content[:900], 0, sums) == [0, 7, 14, 15]
    assert told([15], sums, 0) == "bytes 960 … 999 of the file (block 16 of 16) are not what was written"
    assert told([7, 15], sums, 1000) == (
        "bytes 1,448 … 1,511 of the file (block 8 of 16, and 1 after it) are not what was written"
    )


def test_a_block_of_any_size_goes_through_one_small_buffer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checksums, "BLOCK", 1 << 16)
    with (tmp_path / "large").open("w+b") as file:
        file.truncate(1 << 28)
        with allocating_less_than(1 << 26):
            assert wrong_blocks(file, 0, Checksums(1 << 28, (0,), 1 << 28)) == [0]


def test_exchanged_blocks_are_wrong(wrong: Wrong) -> None:
    content = np.random.default_rng(0).bytes(256)
    assert wrong(content[64:128] + content[:64] + content[128:], 0, _sums(content)) == [0, 1]


def test_the_list_reads_back() -> None:
    arrays = {"x": _sums(b"abc"), "y": _sums(bytes(200))}
    assert from_json(to_json(arrays)) == arrays


@pytest.mark.parametrize("change", [{"version": 2}, {"hash": "xxh3"}])
def test_a_list_of_another_version_is_left_alone(change: dict[str, object]) -> None:
    assert from_json(json.dumps(json.loads(to_json({"x": _sums(b"abc")})) | change).encode()) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[" * 10**5,
        b"[]",
        b"{}",
        b'{"format": "x"}',
        to_json({"x": Checksums(1, (1,), 64)}).replace(b"dorylax-checksums", b"others-checksums"),
        to_json({"x": Checksums(65, (1, 2), 64)}),
        to_json({"x": Checksums(1, (1,), 64)}).replace(b'"bytes":1', b'"bytes":"1"'),
        to_json({"x": Checksums(1, (1,), 64)}).replace(b'"block_bytes":4194304', b'"block_bytes":0'),
    ],
)
def test_what_is_no_list_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"checksums\.json is no list of checksums"):
        from_json(content)
