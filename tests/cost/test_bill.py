from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.cost import DEFAULT_CLUSTER, Bill, Calls, clusters


def test_calls_are_billed_by_the_millisecond_rounded_up():
    calls = Calls()
    for seconds in (0.0101, 2.007, 0.001, 1e-5, 0.0):
        calls.add(seconds)
    assert calls == Calls(requests=5, milliseconds=11 + 2007 + 1 + 1 + 0)


def test_value_is_per_second_and_dollar():
    bill = Bill(
        0.0, 0.0, 0.0, 0, graph_servers=0.5, parameter_servers=0.25, function_time=0.125, function_requests=1.125
    )
    assert bill.value(4.0) == 0.125
    assert bill.value(0.125) == 4.0
    assert bill.value(0.0) is None
    assert replace(bill, function_requests=-0.875).value(4.0) is None


@given(durations=st.lists(st.floats(0, 900), max_size=20), order=st.randoms(use_true_random=False))
def test_the_order_of_calls_changes_nothing(durations, order):
    first, second = Calls(), Calls()
    for seconds in durations:
        first.add(seconds)
    order.shuffle(durations)
    for seconds in durations:
        second.add(seconds)
    assert first == second
    assert first.requests == len(durations)
    assert sum(durations) * 1e3 - 1e-3 <= first.milliseconds <= sum(durations) * 1e3 + len(durations)


def test_by_hand():
    function = replace(
        DEFAULT_CLUSTER.function, memory_mb=2048, price_per_gb_second=0.25, price_per_million_requests=8.0
    )
    cluster = replace(
        DEFAULT_CLUSTER,
        graph_server=replace(DEFAULT_CLUSTER.graph_server, price=2.0),
        parameter_server=replace(DEFAULT_CLUSTER.parameter_server, price=10.0),
        function=function,
    )
    calls = Calls(requests=500_000, milliseconds=3500)
    bill = Bill.of(cluster, seconds=1800.0, graph_servers=4, parameter_servers=2, calls=calls)
    assert bill == Bill(
        graph_server_seconds=7200.0,
        parameter_server_seconds=3600.0,
        gb_seconds=7.0,
        requests=500_000,
        graph_servers=4.0,
        parameter_servers=10.0,
        function_time=1.75,
        function_requests=4.0,
    )
    assert bill.total == 19.75


@given(
    cluster=st.sampled_from(list(clusters().values())),
    seconds=st.floats(0, 1e6),
    servers=st.integers(1, 64),
    parameter_servers=st.integers(1, 16),
    requests=st.integers(0, 10**7),
    milliseconds=st.integers(0, 10**10),
)
def test_it_adds_up_and_every_server_counts(*, cluster, seconds, servers, parameter_servers, requests, milliseconds):
    calls = Calls(requests, milliseconds)
    bill = Bill.of(cluster, seconds=seconds, graph_servers=servers, parameter_servers=parameter_servers, calls=calls)
    hours = seconds / 3600
    dollars = (
        hours * (servers * cluster.graph_server.price + parameter_servers * cluster.parameter_server.price)
        + milliseconds / 1000 * cluster.function.memory_mb / 1024 * cluster.function.price_per_gb_second
        + requests / 1e6 * cluster.function.price_per_million_requests
    )
    assert bill.total == pytest.approx(dollars, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "seconds", "servers", "dollars"),
    [("gcn-reddit-large", 1290.5, 12, 1.85), ("gcn-amazon", 710.2, 8, 0.68), ("gcn-friendster", 1990.8, 32, 15.3)],
)
def test_the_papers_bills_of_servers_alone(name, seconds, servers, dollars):
    """Dorylus, tables 3 and 4, CPU only; parameter servers are not billed there."""
    bill = Bill.of(clusters()[name], seconds=seconds, graph_servers=servers, parameter_servers=0, calls=Calls())
    assert bill.total == pytest.approx(dollars, abs=0.06)


def test_the_papers_price_of_a_function():
    """Dorylus, section 7: 192 MB cost $0.01125 an hour."""
    bill = Bill.of(
        clusters()["gcn-amazon"],
        seconds=0.0,
        graph_servers=8,
        parameter_servers=4,
        calls=Calls(requests=1_000_000, milliseconds=3_600_000),
    )
    assert bill.function_time == pytest.approx(0.01125, rel=1e-4)
    assert bill.function_requests == 0.20
