from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.calibrations import measured
from support.calm import calm

from dorylax.calibration.steps import summary
from dorylax.clock import VirtualClock
from dorylax.cost import DEFAULT_CLUSTER, INSTANCES, Cluster, RowsRead
from dorylax.cost.measured_speeds import MeasuredSpeeds
from dorylax.cost.time_model import times_of

SERVER = replace(INSTANCES["c7g.2xlarge"], flops=40e9, memory_bandwidth=5e9)
GATHERS = {(16, 1000): 8e9, (16, 16_000): 2e9, (64, 1000): 32e9, (64, 16_000): 8e9}


def speeds(server=SERVER) -> MeasuredSpeeds:
    found = measured()
    gathers = [
        summary("gather", [speed] * 2, width=width, rows_bytes=size, threads=1)
        for (width, size), speed in GATHERS.items()
    ]
    rest = [one for one in found.results if one.kind != "gather"]
    return MeasuredSpeeds(replace(found, results=(*gathers, *rest)), server)


@pytest.mark.parametrize(
    ("rows", "speed"),
    [
        (RowsRead(4 * 16, 1000), 8e9),
        (RowsRead(4 * 64, 16_000), 8e9),
        # Half of the way from 1,000 to 16,000 is 4,000, as a factor; from 16 to 64 it is 32.
        (RowsRead(4 * 16, 4000), 4e9),
        (RowsRead(4 * 32, 1000), 16e9),
        (RowsRead(4 * 32, 4000), 8e9),
        # Beyond what was measured it is as at the end.
        (RowsRead(4, 10), 8e9),
        (RowsRead(4000, 10**9), 8e9),
    ],
)
def test_between_what_was_measured(rows: RowsRead, speed: float) -> None:
    assert 1000 / speeds().reading(1000, rows) == pytest.approx(speed)


@given(row_bytes=st.integers(1, 10**4), held_bytes=st.integers(1, 10**6))
def test_no_speed_is_beyond_those_that_were_measured(row_bytes: int, held_bytes: int) -> None:
    speed = 1 / speeds().reading(1, RowsRead(row_bytes, held_bytes))
    assert min(GATHERS.values()) * 0.999 < speed < max(GATHERS.values()) * 1.001


def test_rows_one_after_the_other_are_copied() -> None:
    assert speeds().reading(1000, None) == pytest.approx(1000 / 20e9)


def test_each_part_of_a_stage_has_its_speed() -> None:
    """A lone thread multiplies at 60, does 5 of other operations, and moves 8 (all thousand millions in a second)."""
    lone = speeds(replace(SERVER, lone_thread=1.5))
    assert lone.stage(3e9, 1e9, 4e9, 1) == pytest.approx(2 / 60 + 1 / 5 + 4 / 8)


def test_several_threads_do_what_was_measured_with_as_many() -> None:
    """Others are taken to be as fast as those of which the number is nearest."""
    both = speeds(replace(SERVER, threads=2, lone_thread=1.5))
    assert both.stage(3e9, 1e9, 4e9, 2) == pytest.approx(2 / 80 + 1 / 10 + 4 / 16)
    many = speeds(replace(SERVER, threads=8))
    assert many.stage(3e9, 1e9, 4e9, 4) == pytest.approx(2 / 160 + 1 / 20 + 4 / 32)


def crowded(*gathers: tuple[int, int, float], **changes: object) -> MeasuredSpeeds:
    """Two threads that ask memory for twice what it gives, where `gathers` are what both read together."""
    server = replace(SERVER, **{"threads": 2, "lone_thread": 1.0, "total_memory_bandwidth": 5e9, **changes})
    found = measured()
    rows = [
        summary("gather", [speed] * 2, width=width, rows_bytes=size, threads=threads)
        for threads, entries in ((1, [(16, 1000, 8e9), (16, 16_000, 5e9)]), (2, gathers))
        for width, size, speed in entries
    ]
    rest = [one for one in found.results if one.kind != "gather"]
    return MeasuredSpeeds(replace(found, results=(*rows, *rest)), server)


@pytest.mark.parametrize(
    ("together", "part"),
    [
        (16e9, 0.0),  # twice what one reads: nobody waits
        (8e9, 1.0),  # no more than one reads: each takes twice as long, as with memory's bytes
        (32 / 3 * 1e9, 0.5),  # each takes one and a half times as long
        (20e9, 0.0),  # noise
        (6e9, 1.0),
    ],
)
def test_rows_that_caches_hold_are_held_back_less(together: float, part: float) -> None:
    rows = RowsRead(4 * 16, 1000)
    speeds = crowded((16, 1000, together), (16, 16_000, 5e9))
    assert speeds.held_back(rows) == pytest.approx(part)
    assert speeds.held_back(RowsRead(4 * 16, 16_000)) == pytest.approx(1.0)
    assert speeds.held_back(None) == 1.0


@pytest.mark.parametrize(("together", "part"), [(32 / 3 * 1e9, 0.0), (64 / 9 * 1e9, 0.5), (16 / 3 * 1e9, 1.0)])
def test_of_threads_that_share_a_core(together: float, part: float) -> None:
    """Both take half as long again whatever they do; and three times as long where they read what memory gives alone."""
    speeds = crowded((16, 1000, together), (16, 16_000, 5e9), threads_per_core=2, lone_thread=1.5)
    assert speeds.held_back(RowsRead(4 * 16, 1000)) == pytest.approx(part)


def test_where_nobody_has_measured_all_threads_memory_holds_everything_back() -> None:
    assert crowded().held_back(RowsRead(4 * 16, 1000)) == 1.0
    assert speeds().held_back(RowsRead(4 * 16, 1000)) == 1.0  # memory gives what all ask for


def test_widths_that_lack_a_size_are_left_out() -> None:
    found = crowded((16, 1000, 16e9), (16, 16_000, 5e9), (64, 1000, 1e9))
    assert found.held_back(RowsRead(4 * 64, 1000)) == pytest.approx(0.0)


def _cluster() -> Cluster:
    """Servers with two cores."""
    box = {"name": "this-machine", "threads": 2, "overhead": 1e-3, "threads_per_core": 1, "lone_thread": 1.0}
    speeds = {"flops": 10e9, "memory_bandwidth": 5e9, "total_memory_bandwidth": 8e9}
    server = replace(DEFAULT_CLUSTER.graph_server, **box, **speeds)
    return replace(calm(replace(DEFAULT_CLUSTER, graph_server=server)), contention=True, measured=measured())


def ends(cluster, *tasks):
    """When each of these tasks ends that begin together."""
    with VirtualClock() as clock:
        times = times_of(cluster, 0, clock, 2)

        async def one(k, task):
            await clock.sleep(task(times), (k,))
            return clock.now()

        async def all_of_them():
            return await asyncio.gather(*(one(k, task) for k, task in enumerate(tasks)))

        return clock.run(all_of_them())


def test_tasks_of_a_measured_machine_take_what_was_measured():
    """A stage by its parts, rows along edges by width and number, others copied."""
    cluster = _cluster()
    stage = lambda times: times.graph_task((0,), flops=12e9, elementwise=2e9, bytes=8e9)  # noqa: E731
    assert ends(cluster, stage) == pytest.approx([1e-3 + 1 + 0.4 + 1])
    copy = lambda times: times.graph_task((0,), flops=0, bytes=20e9)  # noqa: E731
    assert ends(cluster, copy) == pytest.approx([1.001])
    gather = lambda times: times.graph_task((0,), flops=0, bytes=5e9, rows=RowsRead(400, 9000))  # noqa: E731
    assert ends(cluster, gather) == pytest.approx([1.001])
    # Another server in its place was not measured.
    other = replace(cluster, graph_server=replace(cluster.graph_server, name="c5.xlarge"))
    assert ends(other, copy) == pytest.approx([1e-3 + 4])


def test_threads_that_read_what_caches_hold_do_not_wait_for_memory():
    """Two threads take as long as two were measured to take together: what memory gives matters where it is read."""
    cluster = _cluster()
    rest = tuple(one for one in cluster.measured.results if one.kind != "gather")
    gathers = tuple(
        summary("gather", [speed] * 3, width=100, rows_bytes=size, threads=threads)
        for threads, size, speed in ((1, 1000, 50e9), (2, 1000, 80e9), (1, 9000, 5e9), (2, 9000, 6e9))
    )
    server = replace(cluster.graph_server, total_memory_bandwidth=6e9)
    cluster = replace(cluster, graph_server=server, measured=replace(cluster.measured, results=gathers + rest))

    def gather(times, size, bytes):
        return times.graph_task((0,), flops=0, bytes=bytes, rows=RowsRead(400, size))

    overhead = 1e-3
    for size, alone, together in ((1000, 50e9, 80e9), (9000, 5e9, 6e9)):
        one = partial(gather, size=size, bytes=alone)  # a second alone
        assert ends(cluster, one) == pytest.approx([overhead + 1])
        assert ends(cluster, one, one) == pytest.approx([overhead + 2 * alone / together] * 2, rel=5e-3)
