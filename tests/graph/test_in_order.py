"""Results come in order, few of them wait, and what a thread raises is raised."""

from __future__ import annotations

import threading

import pytest

from dorylax.graph.rows import in_order


def test_an_error_is_raised_in_its_place_and_nothing_more_is_begun() -> None:
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        return 1 // (item - 3)

    results = in_order(work, range(1000), 2)
    assert [next(results) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert max(begun) < 10
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_who_stops_early_leaves_no_threads() -> None:
    results = in_order(str, range(1000), 2)
    assert next(results) == "0"
    results.close()
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]
