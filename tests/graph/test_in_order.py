"""Results come in order, few of them wait, and what a thread raises is raised."""

from __future__ import annotations

import threading

import pytest

from dorylax.graph.in_order import in_order


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_are_in_the_order_of_items_and_few_are_made_before_they_are_taken(threads: int) -> None:
    begun = 0
    lock = threading.Lock()

    def work(item: int) -> int:
        nonlocal begun
        with lock:
            begun += 1
        return item * item

    for number, result in enumerate(in_order(work, range(50), threads)):
        assert result == number**2
        assert begun <= number + 1 + threads
    assert begun == 50


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
