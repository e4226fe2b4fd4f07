"""What a process may use, from /proc and /sys of another machine."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from dorylax import machine as limit


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
    def grown() -> int:
        before = limit.resident_bytes()
        array = np.ones(2**23)
        return limit.resident_bytes() - before if array.all() else 0

    # The system may reclaim other pages of the process meanwhile.
    assert max(grown() for _ in range(3)) > 0.9 * 2**26


def _limited(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Limits of a process: `as`, `nproc`, `stack`; the others are those of no limit."""
    numbers = {getattr(resource, f"RLIMIT_{name.upper()}"): value for name, value in limits.items()}
    monkeypatch.setattr(
        resource, "getrlimit", lambda number: (numbers.get(number, resource.RLIM_INFINITY), resource.RLIM_INFINITY)
    )


def test_the_address_space_leaves_what_libraries_do_not_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "cores", lambda: 2)
    assert limit.address_space_needed(0) == 2048 * 2**20
    _limited(monkeypatch, **{"as": 3 * 2**30, "stack": 8 * 2**20})
    assert limit.address_space_bytes() == 3 * 2**30
    assert limit.memory_limit(tmp_path) == (1424 * 2**20, "address space")
    _limited(monkeypatch, **{"as": 2**30})
    assert limit.memory_limit(tmp_path) == (0, "address space")
    _limited(monkeypatch)
    assert limit.address_space_bytes() is None
    _limited(monkeypatch, stack=64 * 2**20)
    assert limit.address_space_needed(10) == (2048 + 10 * 56) * 2**20


_NOTHING = "CapEff:\t0000000000000000\n"


def _processes(root: Path, *processes: tuple[int, int], capabilities: str = _NOTHING) -> Path:
    for number, (user, threads) in enumerate(processes, start=10):
        folder = root / f"proc/{number}"
        folder.mkdir(parents=True)
        (folder / "status").write_text(f"Name:\tx\nUid:\t{user}\t0\t0\t0\nThreads:\t{threads}\n")
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/status").write_text(capabilities)
    return root


def test_threads_left_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    root = _processes(tmp_path, (1000, 7), (0, 50), (1000, 5))
    _limited(monkeypatch, nproc=30)
    assert limit.thread_limit(root) == (18, "user")
    _limited(monkeypatch, nproc=10)
    assert limit.thread_limit(root) == (0, "user")
    _limited(monkeypatch)
    assert limit.thread_limit(root) is None


@pytest.mark.parametrize("capabilities", ["CapEff:\t0000000001000000\n", "CapEff:\t0000000000200000\n"])
def test_users_limits_do_not_bind_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capabilities: str) -> None:
    _limited(monkeypatch, nproc=3)
    root = _processes(tmp_path, (0, 7), capabilities=capabilities)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert limit.thread_limit(root) is None
    (root / "proc/self/status").write_text(_NOTHING)
    assert limit.thread_limit(root) == (3, "user")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert limit.thread_limit(root) is None


@pytest.mark.parametrize("user", [0, 1000])
def test_users_limits_bind_root_of_a_container_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    _limited(monkeypatch, nproc=30)
    monkeypatch.setattr(os, "getuid", lambda: user)
    root = _processes(tmp_path, (user, 7), capabilities="CapEff:\t000001ffffffffff\n")
    for text in ("0 1000 1\n1 100000 65536\n", "0 100000 65536\n"):
        (root / "proc/self/uid_map").write_text(text)
        assert limit.thread_limit(root) == (23, "user")
    (root / "proc/self/uid_map").write_text("         0          0 4294967295\n")
    assert limit.thread_limit(root) is None


def test_the_lower_limit_of_threads_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    root = _processes(tmp_path, (1000, 7))
    (root / "proc/11/status").mkdir(parents=True)  # that of a process that has just ended cannot be read
    _machine(root, "0::/\n", {"sys/fs/cgroup/pids.max": "50", "sys/fs/cgroup/pids.current": "30"})
    for allowed, expected in ((30, (20, "cgroup")), (20, (13, "user"))):
        _limited(monkeypatch, nproc=allowed)
        assert limit.thread_limit(root) == expected


@pytest.mark.parametrize("version", [1, 2])
def test_threads_left_to_the_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    _limited(monkeypatch)
    cgroup, folder = ("0::/a/b\n", "a") if version == 2 else ("3:pids:/a/b\n", "pids/a")
    files = {"b/pids.max": "max\n", "b/pids.current": "3\n", "pids.max": "50\n", "pids.current": "20\n"}
    root = _machine(tmp_path, cgroup, {f"sys/fs/cgroup/{folder}/{name}": text for name, text in files.items()})
    assert limit.thread_limit(root) == (30, "cgroup")
    (root / f"sys/fs/cgroup/{folder}/pids.current").write_text("60")
    assert limit.thread_limit(root) == (0, "cgroup")
