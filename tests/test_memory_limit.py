"""What a process may use, from /proc and /sys of another machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dorylax import memory_limit as limit


def _machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "3000\n"}, 3000),
        ("0::/a/b\n", {"a/b/memory.max": "2000\n", "a/memory.max": "3000\n"}, 2000),
        ("0::/docker/host/only\n", {"memory.max": "1000\n"}, 1000),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("5:cpu,memory:/job\n1:name=x:/\n", {"memory/job/memory.limit_in_bytes": "4096\n"}, 4096),
        ("5:cpu:/job\n", {"memory/job/memory.limit_in_bytes": "4096\n"}, None),
    ],
)
def test_cgroup(tmp_path: Path, cgroup: str, files: dict[str, str], expected: int | None) -> None:
    root = _machine(tmp_path, cgroup, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert limit.cgroup_bytes(root) == expected


def test_the_lower_one_counts(tmp_path: Path) -> None:
    physical = limit.physical_bytes()
    assert physical is not None
    assert limit.memory_limit(tmp_path) == (physical, "machine")
    _machine(tmp_path, "0::/\n", {"sys/fs/cgroup/memory.max": "4096"})
    assert limit.memory_limit(tmp_path) == (4096, "cgroup")
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(str(2**63 - 4096))
    assert limit.memory_limit(tmp_path) == (physical, "machine")


def test_resident_bytes_grow_with_an_array() -> None:
    before = limit.resident_bytes()
    array = np.ones(2**23)
    assert limit.resident_bytes() - before > 0.9 * array.nbytes
