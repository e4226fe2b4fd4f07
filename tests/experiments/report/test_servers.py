"""What a report says of servers: which is late, which the busiest, and only what there is to say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support.reports import seconds, servers, sweep

from dorylax.experiments.analysis import RunHistory
from dorylax.experiments.report import figures
from dorylax.experiments.report.page import NARROW, WIDE
from dorylax.experiments.report.servers import Loads, server_figure, server_tables
from dorylax.runs.result import EpochRecord
from dorylax.runs.servers import GraphServerMetrics

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
    first, second = found.graph
    assert first.busy == pytest.approx(0.25)
    assert second.busy == pytest.approx(0.5)
    assert first.queue == (0.5, 2)
    assert first.waits == pytest.approx({"gate": 0.1 * SECONDS, "rows": 0.2 * SECONDS, "weights": 0.01 * SECONDS})
    assert (first.messages, first.message_bytes) == (6, 1_500_000)
    assert first.rows_by_lag == {"0": 18, "1": 6}
    assert (first.in_vain, second.in_vain) == ({}, {"late": 3})
    (parameter,) = found.parameters
    assert parameter.busy == pytest.approx(0.01)
    assert parameter.counts["pushes"] == 16
    assert found.epoch_seconds == pytest.approx(SECONDS)


def test_means_of_queues_are_over_tasks() -> None:
    one, _, _ = servers(0, SECONDS, {})
    assert isinstance(one, GraphServerMetrics)
    other = dataclasses.replace(
        one, epoch=1, graph_tasks=30, graph_queue_mean=2.5, tensor_tasks=0, tensor_calls_mean=0.0
    )
    found = Loads.of(history(2), [one, other])
    assert found.graph[0].queue == (2.0, 2)
    assert found.graph[0].calls == (1.25, 3)


@pytest.mark.parametrize(
    ("waits", "late"), [({}, None), ({2: 0.38 * SECONDS}, None), ({2: 0.1 * SECONDS}, 2), ({1: 0.8 * SECONDS}, None)]
)
def test_who_is_late_waits_less_than_the_others(waits: dict[int, float], late: int | None) -> None:
    found = loads(4, waits=waits)
    assert (None if found.late is None else found.late.server) == late
    ((_, table), _) = server_tables({"": found})
    assert (f"server {late} is late" in table.note) == (late is not None)
    assert ("none is late" in table.note) == (late is None)


def test_one_server_is_neither_late_nor_drawn() -> None:
    found = loads(1)
    assert server_figure({"": found}, "") is None
    ((_, table), _) = server_tables({"": found})
    assert "late" not in table.note
    assert [row[0] for row in table.rows] == ["0"]


def test_columns_that_would_say_nothing_are_left_out() -> None:
    ((_, graph), (_, parameters)) = server_tables({"": loads(2, calls={"answered": 8})})
    assert not {"rows by lag", "calls in vain"} & set(graph.columns)
    assert "of these held" in parameters.columns
    assert {len(row) for row in graph.rows} == {len(graph.columns)}


def test_of_many_servers_those_that_wait_least_are_listed() -> None:
    waits = dict.fromkeys(range(40, 56), 0.01 * SECONDS)
    ((_, table), _) = server_tables({"": loads(64, waits=waits)})
    assert [row[0] for row in table.rows] == [str(number) for number in range(40, 56)]
    assert "Of more than 16 servers" in table.note


@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("idle", [False, True])
def test_a_figure_of_any_number_of_servers(width: float, *, idle: bool) -> None:
    nothing = dict.fromkeys(("graph_seconds", "gate_seconds", "weights_seconds"), 0.0) if idle else {}
    found = {
        f"variant {count}": loads(count, waits=dict.fromkeys(range(count), 0.0), **nothing) for count in (1, 2, 64)
    }
    figure = server_figure(found, "0-")
    assert "variant 1:" not in figure.text
    image = figures.svg(figure.draw, width)
    assert image.startswith("<svg")
    assert ">variant 64<" in image
