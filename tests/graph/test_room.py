"""What cannot be held is said so before it is tried."""

from __future__ import annotations

import re

import pytest

from dorylax.graph import room
from dorylax.graph.room import check_room
from dorylax.graph.validate import GraphError
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
    monkeypatch.setattr(room, "memory_limit", lambda: Limit(2**31, source))
    check_room("x", 2**31)
    with pytest.raises(GraphError, match=f"^x takes 2,048.0 GiB of memory, and {re.escape(holder)} has 2.0 GiB$"):
        check_room("x", 2**41)
    with pytest.raises(GraphError, match=r"^takes"):
        check_room("", 2**41)


def test_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "memory_limit", lambda: None)
    check_room("x", 2**80)
