from __future__ import annotations

import pytest

from dorylax.cost import Calls
from dorylax.pipeline.recorder import Counters
from dorylax.serverless.controller.call import Call, Outcome
from dorylax.serverless.task import TaskKey


@pytest.mark.parametrize(
    ("outcome", "billed", "counted"),
    [
        ("answered", True, {}),
        ("late", True, {"late": 1}),
        ("failed", True, {"retries": 1}),
        ("deadline", True, {"retries": 1}),
        ("throttled", False, {"throttled": 1}),
    ],
)
def test_whatever_the_cloud_began_is_billed_however_it_ended(
    outcome: Outcome, billed: bool, counted: dict[str, int]
) -> None:
    counters = Counters()
    counters.call(Call(TaskKey(0, 1, 2, 0), 0, 3.0, 3.25, outcome))
    assert counters.calls == (Calls(requests=1, milliseconds=250) if billed else Calls())
    assert {name: count for name, count in counters.to_dict().items() if count} == counted


def test_what_several_have_counted_adds_up() -> None:
    one = Counters(graph_tasks=1, rows_by_lag={"0": 2}, calls=Calls(1, 10), late=3)
    other = Counters(graph_tasks=4, rows_by_lag={"0": 1, "1": 5}, calls=Calls(2, 20))
    total = Counters()
    total.add(one)
    total.add(other)
    assert total == Counters(graph_tasks=5, rows_by_lag={"0": 3, "1": 5}, calls=Calls(3, 30), late=3)
    assert other.rows_by_lag == {"0": 1, "1": 5}
