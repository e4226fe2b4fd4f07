from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.calm import calm

from dorylax.clock import VirtualClock
from dorylax.cost import DEFAULT_CLUSTER, INSTANCES, Machines, TimeModel, Variation
from dorylax.cost.machines import memory, network
from dorylax.cost.time_model import Streamed

CROWDED = replace(calm(DEFAULT_CLUSTER), contention=True)
SERVER = CROWDED.graph_server
FUNCTION = CROWDED.function
BANDWIDTHS = st.floats(1e6, 1e10)
COUNTS = st.integers(0, 300)


def ends(cluster, tasks, seed=0, servers=100):
    """When each of these tasks ends that begin together: functions of the time model to durations."""
    found = {}
    with VirtualClock() as clock:
        times = TimeModel(cluster, seed, Machines(cluster, clock, servers) if cluster.contention else None)

        async def one(k, task):
            await clock.sleep(task(times), (k,))
            found[k] = clock.now()

        async def all_of_them():
            await asyncio.gather(*(one(k, task) for k, task in enumerate(tasks)))

        clock.run(all_of_them())
    return [found[k] for k in range(len(tasks))]


@given(bandwidth=BANDWIDTHS, messages=COUNTS, functions=COUNTS, peers=st.integers(1, 300))
def test_a_network_gives_all_it_has_unless_functions_alone_cannot_take_it(bandwidth, messages, functions, peers):
    of_messages, of_functions = network(bandwidth, FUNCTION, peers)((messages, functions))
    given_away = messages * of_messages + functions * of_functions
    assert given_away <= bandwidth * (1 + 1e-9)
    if messages:
        assert given_away == pytest.approx(bandwidth)
        connections = min(messages, peers)
        assert of_messages * messages / connections >= of_functions * (1 - 1e-9) or not functions
    elif functions:
        assert of_functions == pytest.approx(min(bandwidth / functions, FUNCTION.bandwidth_among(functions)))


def test_messages_to_a_peer_share_a_connection():
    """However many there are, they take no more from functions than one."""
    slow = replace(FUNCTION, lone_bandwidth=1e9, crowding=0.0)
    assert network(9e8, slow, 2)((1, 1)) == pytest.approx((4.5e8, 4.5e8))
    assert network(9e8, slow, 2)((200, 1)) == pytest.approx((6e8 / 200, 3e8))


def test_the_papers_measure_of_a_functions_bandwidth():
    """Dorylus, section 6: 800 Mbit/s alone, 200 of each of 100."""
    assert FUNCTION.bandwidth_among(1) * 8 == pytest.approx(800e6)
    assert FUNCTION.bandwidth_among(100) * 8 == pytest.approx(200e6)


@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
def test_more_busy_threads_are_each_slower_and_together_no_slower(instance):
    lifts = [instance.lift(busy) for busy in range(1, instance.threads + 1)]
    assert lifts == sorted(lifts, reverse=True)
    assert lifts[-1] == pytest.approx(1.0)
    together = [busy * lift for busy, lift in enumerate(lifts, 1)]
    assert together == sorted(together)
    read = [busy * memory(instance)([busy])[0] for busy in range(1, instance.threads + 1)]
    assert all(more >= less * (1 - 1e-9) for less, more in pairwise(read))
    assert read[-1] <= instance.total_memory_bandwidth * (1 + 1e-9)


def test_threads_that_share_a_core_by_hand():
    """8 threads on 4 cores: 4 have their own; of 6, 4 share 2 cores and 2 have their own."""
    assert [SERVER.lift(busy) for busy in (1, 4, 6, 8)] == pytest.approx([1.6, 1.6, (4 + 2 * 1.6) / 6, 1.0])


TASKS = {
    "graph": lambda times: times.graph_task((1,), flops=3e9, bytes=2e8),
    "tensor": lambda times: times.tensor_task((1,), flops=4e9, bytes_in=1e7, bytes_out=3e6),
    "cold": lambda times: times.tensor_task((1,), flops=4e9, bytes_in=1e7, bytes_out=3e6, cold=True),
    "streaming": lambda times: times.tensor_task(
        (1,), flops=4e9, bytes_in=1e7, bytes_out=3e6, streamed=Streamed(5e6, 2e9)
    ),
    "late": lambda times: times.tensor_task((1,), flops=2e6, bytes_in=1e7, bytes_out=3e6, streamed=Streamed(5e6, 1e6)),
    "message": lambda times: times.message((1,), bytes=2e7),
    "to a parameter server": lambda times: times.message((1,), bytes=2e7, receiver=("parameter", 0)),
}


def test_alone_a_task_takes_the_sum_of_its_parts():
    function = FUNCTION.overhead + 1.3e7 / 100e6 + 4e9 / (FUNCTION.flops * FUNCTION.virtual_cpus)
    expected = {
        "graph": SERVER.overhead + 3e9 / (1.6 * SERVER.flops) + 2e8 / (1.6 * SERVER.memory_bandwidth),
        "tensor": function,
        "cold": function + FUNCTION.cold_start,
        "streaming": function - 0.05,  # to fetch what comes late, while it computes for longer
        "late": FUNCTION.overhead + 1.3e7 / 100e6 + 1e6 / (FUNCTION.flops * FUNCTION.virtual_cpus),
        "message": CROWDED.latency + 2e7 / SERVER.network_bandwidth,
        "to a parameter server": CROWDED.latency + 2e7 / CROWDED.parameter_server.network_bandwidth,
    }
    assert {name: ends(CROWDED, [task])[0] for name, task in TASKS.items()} == pytest.approx(expected)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@given(seed=st.integers(0, 1000))
def test_alone_a_slow_task_takes_so_many_times_as_long(*, task, seed):
    variation = Variation(0.3, 0.2, 5.0)
    varied = replace(
        CROWDED, graph_server=replace(SERVER, variation=variation), function=replace(FUNCTION, variation=variation)
    )
    kind = "message" if task in (TASKS["message"], TASKS["to a parameter server"]) else "tensor"
    kind = "graph" if task is TASKS["graph"] else kind
    factor = variation.factor(seed, kind, (1,))
    median, found = ends(CROWDED, [task])[0], ends(varied, [task], seed)[0]
    assert found >= factor * median * (1 - 1e-9)
    if factor >= 1:
        assert found == pytest.approx(factor * median)


@pytest.mark.parametrize("count", [1, 3, 20])
def test_messages_of_one_server_share_its_network(count):
    """To different servers: the sender's network is what they share."""
    tasks = [lambda times, k=k: times.message((k,), bytes=1e7, receiver=("graph", 1 + k)) for k in range(count)]
    assert ends(CROWDED, tasks) == pytest.approx([CROWDED.latency + count * 1e7 / SERVER.network_bandwidth] * count)


def test_messages_between_different_servers_share_nothing():
    tasks = [
        lambda times, k=k: times.message((k,), bytes=1e7, sender=("graph", 2 * k), receiver=("graph", 2 * k + 1))
        for k in range(4)
    ]
    assert ends(CROWDED, tasks) == pytest.approx([CROWDED.latency + 1e7 / SERVER.network_bandwidth] * 4)


def test_messages_to_one_server_share_its_network_too():
    tasks = [
        lambda times, k=k: times.message((k,), bytes=1e7, sender=("graph", 1 + k), receiver=("graph", 0))
        for k in (0, 1)
    ]
    assert ends(CROWDED, tasks) == pytest.approx([CROWDED.latency + 2e7 / SERVER.network_bandwidth] * 2)


def test_functions_slow_each_other_down():
    """100 at 200 Mbit/s each are 20 Gbit/s: more than the server's 10."""
    tasks = [lambda times, k=k: times.tensor_task((k,), flops=0, bytes_in=1e6, bytes_out=0) for k in range(100)]
    assert ends(CROWDED, tasks) == pytest.approx([FUNCTION.overhead + 1e8 / SERVER.network_bandwidth] * 100)
    wide = replace(CROWDED, graph_server=replace(SERVER, network_bandwidth=1e11))
    assert ends(wide, tasks) == pytest.approx([FUNCTION.overhead + 1e6 / 25e6] * 100)


def test_a_gpu_computes_at_its_own_speed_and_messages_pass_its_bus():
    server = INSTANCES["p3.2xlarge"]
    gpu = server.gpu
    narrow = replace(server, gpu=replace(gpu, pcie_bandwidth=1e8), variation=Variation(0.0, 0.0, 1.0))
    cluster = replace(CROWDED, graph_server=narrow)
    (graph,) = ends(cluster, [TASKS["graph"]])
    assert graph == pytest.approx(gpu.launch + 3e9 / gpu.flops + 2e8 / gpu.memory_bandwidth)
    assert ends(cluster, [TASKS["message"]]) == pytest.approx([cluster.latency + 2e7 / 1e8])


def test_a_model_with_contention_needs_machines_and_no_other_has_some():
    with pytest.raises(ValueError, match="where the cluster has contention"):
        TimeModel(CROWDED, 0)
    with VirtualClock() as clock, pytest.raises(ValueError, match="and only there"):
        TimeModel(DEFAULT_CLUSTER, 0, Machines(DEFAULT_CLUSTER, clock, 2))
