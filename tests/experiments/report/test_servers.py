"""What a report says of servers: which is late, which the busiest, and only what there is to say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support.reports import seconds, servers, sweep

from dorylax.experiments.analysis import RunHistory
from dorylax.experiments.report.inside import Loads, server_tables
from dorylax.runs.result import EpochRecord
from dorylax.store.servers import GraphServerMetrics

RUN = sweep().runs[0]
SECONDS = seconds(RUN)


def history(epochs: int) -> RunHistory:
    records = [EpochRecord(epoch, 1.0, None, None, None, SECONDS) for epoch in range(epochs)]
    return RunHistory(RUN, records, {})


def loads(count: int, *, waits: dict[int, float] | None = None, **fields: Any) -> Loads:
    """So many graph servers, alike but for how long they wait for rows; and a parameter server."""
    late, _, parameter = servers(0, SECONDS, {"0": 5})
    graph = [
        dataclasses.replace(late, server=number, rows_seconds=(waits or {}).get(number, late.rows_seconds), **fields)
        for number in range(count)
    ]
    found = Loads.of(history(1), [*graph, parameter])
    return found


def test_sums_are_over_the_epochs_that_the_file_has() -> None:
    """It begins with a later epoch where it was damaged and the run went on."""
    lines = [line for epoch in (1, 2, 3) for line in servers(epoch, SECONDS, {"0": 6, "1": 2})]
    found = Loads.of(history(4), lines)
    assert found is not None
    first, second = (found.graph.loc[server] for server in (0, 1))
    assert (first["busy"], second["busy"]) == pytest.approx((0.25, 0.5))
    assert (first["queue"], first["queue_max"]) == (0.5, 2)
    waits = {wait: first[wait] for wait in ("gate", "rows", "weights")}
    assert waits == pytest.approx({"gate": 0.1 * SECONDS, "rows": 0.2 * SECONDS, "weights": 0.01 * SECONDS})
    assert (first["messages"], first["message_bytes"]) == (6, 1_500_000)
    assert first["rows_by_lag"] == {"0": 18, "1": 6}
    assert (first["in_vain"], second["in_vain"]) == ({}, {"late": 3})
    parameter = found.parameters.loc[0]
    assert parameter["busy"] == pytest.approx(0.01)
    assert parameter["pushes"] == 16
    assert found.epoch_seconds == pytest.approx(SECONDS)


def test_means_of_queues_are_over_tasks() -> None:
    one, _, _ = servers(0, SECONDS, {})
    assert isinstance(one, GraphServerMetrics)
    other = dataclasses.replace(
        one, epoch=1, graph_tasks=30, graph_queue_mean=2.5, tensor_tasks=0, tensor_calls_mean=0.0
    )
    found = Loads.of(history(2), [one, other])
    assert found is not None
    assert tuple(found.graph.loc[0][["queue", "queue_max", "calls", "calls_max"]]) == (2.0, 2, 1.25, 3)


@pytest.mark.parametrize(
    ("waits", "late"), [({}, None), ({2: 0.38 * SECONDS}, None), ({2: 0.1 * SECONDS}, 2), ({1: 0.8 * SECONDS}, None)]
)
def test_who_is_late_waits_less_than_the_others(waits: dict[int, float], late: int | None) -> None:
    found = loads(4, waits=waits)
    assert found.late == late
    table, _ = server_tables({"": found})
    assert (f"server {late} is late" in table.note) == (late is not None)
    assert ("no server is late" in table.note) == (late is None)


def test_one_server_is_not_late() -> None:
    found = loads(1)
    table, _ = server_tables({"": found})
    assert "late" not in table.note
    assert list(table.frame["server"]) == ["0"]


def test_columns_that_would_say_nothing_are_left_out() -> None:
    graph, parameters = server_tables({"": loads(2, calls={"answered": 8})})
    assert "calls in vain" not in graph.frame
    assert "pulls held" in parameters.frame


def test_of_many_servers_those_that_wait_least_are_listed() -> None:
    waits = dict.fromkeys(range(40, 56), 0.01 * SECONDS)
    table, _ = server_tables({"": loads(64, waits=waits)})
    assert list(table.frame["server"]) == [str(number) for number in range(40, 56)]
    assert "Of more than 16 servers" in table.note
