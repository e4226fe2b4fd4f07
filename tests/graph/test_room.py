"""What cannot be held is said so before it is tried."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from dorylax.graph import validate
from dorylax.graph.validate import GraphError, check_disk, check_room
from dorylax.machine import Limit


@pytest.mark.parametrize(
    ("source", "holder"),
    [
        ("machine", "this machine"),
        ("cgroup", "the control group of this process"),
        ("address space", "the address space of this process (ulimit -v)"),
    ],
)
def test_more_than_there_is(monkeypatch: pytest.MonkeyPatch, source: str, holder: str) -> None:
    monkeypatch.setattr(validate, "memory_limit", lambda: Limit(2**31, source))
    check_room("x", 2**31)
    with pytest.raises(GraphError, match=f"^x takes 2,048.0 GiB of memory, and {re.escape(holder)} has 2.0 GiB$"):
        check_room("x", 2**41)
    with pytest.raises(GraphError, match=r"^takes"):
        check_room("", 2**41)


def test_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "memory_limit", lambda: None)
    check_room("x", 2**80)


def test_a_file_that_its_disk_has_no_room_for(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    check_disk(path, 1)
    with pytest.raises(OSError, match=r"takes 1,048,576\.0 GiB, and its disk has [\d.,]+ GiB left") as told:
        check_disk(path, 2**50)
    assert (told.value.errno, told.value.filename) == (errno.ENOSPC, str(path))
    with pytest.raises(FileNotFoundError) as told:
        check_disk(tmp_path / "no" / "a.npz", 1)
    assert told.value.filename == str(tmp_path / "no" / "a.npz")
