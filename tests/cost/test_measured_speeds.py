from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.calibrations import measured

from dorylax.calibration.steps import summary
from dorylax.cost import INSTANCES, RowsRead
from dorylax.cost.measured_speeds import MeasuredSpeeds

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
    assert 1000 / speeds().bytes(1000, rows) * SERVER.memory_bandwidth == pytest.approx(speed)


@given(row_bytes=st.integers(1, 10**4), held_bytes=st.integers(1, 10**6))
def test_no_speed_is_beyond_those_that_were_measured(row_bytes: int, held_bytes: int) -> None:
    speed = SERVER.memory_bandwidth / speeds().bytes(1, RowsRead(row_bytes, held_bytes))
    assert min(GATHERS.values()) * 0.999 < speed < max(GATHERS.values()) * 1.001


def test_rows_one_after_the_other_are_copied() -> None:
    """20 GB/s by one thread; the description has 5."""
    assert speeds().bytes(1000, None) == pytest.approx(250)


def test_what_is_no_product_is_slower() -> None:
    """5 Gflops/s by one thread; the description has 40."""
    assert speeds().flops(1000, 0) == 1000
    assert speeds().flops(1000, 100) == pytest.approx(900 + 800)


def test_the_description_of_hyper_threads_is_of_two_on_a_core() -> None:
    """What was measured by one thread is the speed of a lone one, which the description only says by a factor."""
    hyper = replace(SERVER, threads_per_core=2, lone_thread=2.0)
    assert speeds(hyper).flops(1000, 1000) == pytest.approx(2 * speeds().flops(1000, 1000))
    assert speeds(hyper).bytes(1000, None) == pytest.approx(2 * speeds().bytes(1000, None))
