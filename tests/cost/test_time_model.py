from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.calm import calm

from dorylax.clock import VirtualClock
from dorylax.cost import DEFAULT_CLUSTER, INSTANCES, Cluster, Machines, RowsRead, TimeModel, clusters
from dorylax.cost.time_model import Streamed

AMOUNT = st.floats(0, 1e15)
KEY = st.lists(st.integers(-(2**70), 2**70), max_size=4).map(tuple)
Key = tuple[int, ...]
TASKS: dict[str, Callable[[TimeModel, Key, float, float], float]] = {
    "graph": lambda model, key, flops, size: model.graph_task(key, flops=flops, bytes=size),
    "tensor in": lambda model, key, flops, size: model.tensor_task(key, flops=flops, bytes_in=size, bytes_out=7.0),
    "tensor out": lambda model, key, flops, size: model.tensor_task(key, flops=flops, bytes_in=7.0, bytes_out=size),
    "message": lambda model, key, _, size: model.message(key, bytes=size),
    "update": lambda model, key, _, size: model.update(key, bytes=size),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


@every_task
@given(key=KEY, seed=st.integers(0, 2**31 - 1), flops=AMOUNT, size=AMOUNT, more=AMOUNT)
def test_times_are_positive_and_grow_with_the_work(*, task, key, seed, flops, size, more):
    model = TimeModel(DEFAULT_CLUSTER, seed)
    assert 0 < task(model, key, flops, size) <= task(model, key, flops, size + more)
    assert task(model, key, flops, size) <= task(model, key, flops + more, size)


@given(keys=st.lists(KEY, max_size=6), seed=st.integers(0, 100), order=st.randoms(use_true_random=False))
def test_times_do_not_depend_on_what_else_is_asked(keys, seed, order):
    asked = [(task, key) for task in TASKS.values() for key in keys]
    first = TimeModel(DEFAULT_CLUSTER, seed)
    times = {n: task(first, key, 1e6, 1e6) for n, (task, key) in enumerate(asked)}
    places = list(range(len(asked))) * 2
    order.shuffle(places)
    second = TimeModel(DEFAULT_CLUSTER, seed)
    assert all(asked[n][0](second, asked[n][1], 1e6, 1e6) == times[n] for n in places)


def test_seeds_and_keys_and_kinds_differ():
    models = [TimeModel(DEFAULT_CLUSTER, seed) for seed in (0, 1)]
    factors = {
        task(model, key, 1e6, 1e6) / task(TimeModel(calm(DEFAULT_CLUSTER), 0), key, 1e6, 1e6)
        for model in models
        for key in [(0,), (1,)]
        for name, task in TASKS.items()
        if name != "tensor out"  # the same kind as "tensor in"
    }
    assert len(factors) == 16


def test_what_the_parts_are():
    """By hand, on round numbers."""
    server = replace(
        INSTANCES["c5.xlarge"], flops=1e9, memory_bandwidth=1e8, network_bandwidth=1e7, overhead=0.5, threads=3
    )
    function = replace(DEFAULT_CLUSTER.function, memory_mb=3538, flops=1e9, network_bandwidth=1e6, overhead=0.25)
    model = TimeModel(calm(Cluster("round", server, replace(server, overhead=2.0), function, 4, latency=0.125)), 0)
    assert model.graph_task((), flops=3e9, bytes=2e8) == pytest.approx(0.5 + 3 + 2)
    assert model.tensor_task((), flops=4e9, bytes_in=1e6, bytes_out=3e6) == pytest.approx(0.25 + 2 + 4)
    # The second half of the rows takes 0.5 s to fetch, the first 1 s to compute; or 2 s, with little to compute.
    late = model.tensor_task((), flops=4e9, bytes_in=1e6, bytes_out=3e6, streamed=Streamed(0.5e6, 2e9))
    assert late == pytest.approx(0.25 + 0.5 + 1 + 1 + 3)
    late = model.tensor_task((), flops=4e8, bytes_in=4e6, bytes_out=3e6, streamed=Streamed(2e6, 2e8))
    assert late == pytest.approx(0.25 + 2 + 2 + 0.1 + 3)
    assert model.message((), bytes=2e7) == pytest.approx(0.125 + 2)
    assert model.update((), bytes=10**8) == pytest.approx(2 + 7)


@pytest.mark.parametrize("amount", [-1.0, float("nan")])
def test_negative_work_is_refused(amount):
    model = TimeModel(DEFAULT_CLUSTER, 0)
    with pytest.raises(ValueError, match=r"^bytes must be ≥ 0, got"):
        model.message((), bytes=amount)
    with pytest.raises(ValueError, match=r"^flops must be ≥ 0, got"):
        model.graph_task((), flops=amount, bytes=0.0)
    with pytest.raises(ValueError, match=r"^bytes_out must be ≥ 0, got"):
        model.tensor_task((), flops=0.0, bytes_in=0.0, bytes_out=amount)
    with pytest.raises(ValueError, match=r"^bytes must be ≥ 0, got"):
        model.update((), bytes=amount)


def test_a_third_of_the_papers_tensor_task_is_communication():
    """Dorylus, section 7: with an uncontended network; its first layer on reddit-small, 1457 rows."""
    cluster = clusters()["gcn-reddit-small"]
    alone = replace(cluster, function=replace(cluster.function, network_bandwidth=100e6))
    arithmetic, communication = (
        TimeModel(calm(alone), 0).tensor_task((), **work)
        for work in (
            {"flops": 2.0 * 1457 * 602 * 128, "bytes_in": 0.0, "bytes_out": 0.0},
            {"flops": 0.0, "bytes_in": 3.5e6, "bytes_out": 1.5e6},
        )
    )
    assert 0.2 < communication / (arithmetic + communication) < 0.5


@pytest.mark.parametrize("contention", [False, True])
def test_narrow_rows_take_their_latency(contention: bool) -> None:
    """A row of 100 bytes at 1 GB/s takes 100 ns by its bytes; more only if its latency is longer."""
    server = replace(DEFAULT_CLUSTER.graph_server, memory_bandwidth=1e9, lone_thread=1.0, total_memory_bandwidth=0.0)

    def seconds(latency: float, rows: RowsRead | None) -> float:
        cluster = calm(
            replace(DEFAULT_CLUSTER, graph_server=replace(server, row_latency=latency), contention=contention)
        )
        clock = VirtualClock()
        with clock:
            model = TimeModel(cluster, 0, Machines(cluster, clock, 1) if contention else None)
            assert model.by_rows == (latency > 0)
            duration = model.graph_task((0,), flops=0.0, bytes=1e6, rows=rows)
            clock.run(clock.sleep(duration, (0,)))
            return clock.now() - cluster.graph_server.overhead

    narrow, wide = RowsRead(100, 10**6), RowsRead(1000, 10**6)
    assert seconds(0.0, narrow) == pytest.approx(1e-3)
    assert seconds(250e-9, narrow) == pytest.approx(2.5e-3)
    assert seconds(250e-9, wide) == pytest.approx(1e-3)
    assert seconds(250e-9, None) == pytest.approx(1e-3)
