from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.calibrations import TINY, measured

from dorylax.calibration import machine
from dorylax.calibration.machine import doubts, measure, processor, threads_per_core
from dorylax.calibration.steps import Step, quantity, summary
from dorylax.cost.measured import KINDS, Measured

ROUNDS = 2


@pytest.fixture(scope="module")
def found() -> tuple[Measured, list[tuple[int, int, str]]]:
    """What a calibration of two cores finds, and what it tells meanwhile."""
    told: list[tuple[int, int, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DORYLAX_CORES", "2")
        patch.setattr(machine, "ROUNDS", ROUNDS)
        result = measure(lambda *words: told.append(words), TINY)
    return result, told


def test_every_kind_is_measured_wherever_it_is_to_be(found) -> None:
    result, _ = found
    points = {kind: [tuple(one.point.values()) for one in result.of(kind)] for kind in KINDS}
    assert points["gather"] == [(w, b, t) for w in TINY.widths for b in TINY.rows_bytes for t in (1, 2)]
    assert points["product"] == [(16, 8, 4, t) for t in ((1, 2) if hasattr(os, "sched_setaffinity") else (2,))]
    assert points["memory"] == [(1,), (2,)]
    assert points["task"] == [("inside",), ("around",)]
    assert (
        points["elementwise"]
        == points["stage"]
        == [(t,) for t in ((1, 2) if hasattr(os, "sched_setaffinity") else (2,))]
    )
    assert points["latency"] == points["transfer"] == [("ipc",), ("tcp",)]
    assert sum(map(len, points.values())) == len(result.results)
    assert result.cores == 2
    for one in result.results:
        assert list(one.point) == list(KINDS[one.kind].at)
        assert one.repeats >= 2


def test_units_are_as_they_are_called(found) -> None:
    """To orders of magnitude: bytes, not elements or megabytes; seconds, not their reciprocal."""
    result, _ = found
    for one in result.results:
        low, high = {"bytes/s": (1e4, 1e12), "flops/s": (1e4, 1e14), "seconds": (1e-7, 1.0)}[KINDS[one.kind].unit]
        assert low < one.median < high, one


def test_it_tells_what_is_next(found) -> None:
    _, told = found
    labels = [label for _, _, label in told]
    assert [done for done, _, _ in told] == list(range(len(told)))
    assert {total for _, total, _ in told} == {len(told)}
    assert "gather, width 41, 0.015625 MiB of rows, threads: 2" in labels
    steps = labels[: len(labels) // ROUNDS]
    assert labels == ROUNDS * steps
    assert len(set(steps)) == len(steps)


def test_what_is_measured_in_a_slow_moment_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = iter([2.0, 0.5, 1.0])  # of three rounds

    def steps(*_: object) -> list[Step]:
        return [Step("any", lambda: {quantity("memory", threads=1): [next(speeds)] * 5})]

    for module, name in (
        ("speeds", "gathers"),
        ("speeds", "products"),
        ("loopback", "requests"),
    ):
        monkeypatch.setattr(getattr(machine, module), name, lambda *_: [])
    monkeypatch.setattr(machine, "_tasks", lambda _: {})
    monkeypatch.setattr(machine.speeds, "copies", steps)
    (one,) = measure(lambda *_: None, TINY).results
    assert (one.kind, one.point, one.median, one.repeats) == ("memory", {"threads": 1}, 1.0, 15)


def test_a_quiet_machine_is_not_in_doubt() -> None:
    assert doubts(measured()) == []
    assert doubts(measured(others=None)) == []


def test_a_loaded_machine_is_in_doubt() -> None:
    (doubt,) = doubts(measured(others=0.31))
    assert doubt.startswith("other processes used 31 % of the cores meanwhile")
    shaky = summary("memory", [1e9, 2e9, 3e9], threads=1)
    (doubt,) = doubts(measured(results=(*measured().results, shaky)))
    assert doubt.startswith(
        "1 of 18 measurements vary by more than 25 % between their quartiles, memory (threads 1) by 50 %"
    )


@pytest.mark.parametrize(("text", "count"), [("0\n", 1), ("0,32\n", 2), ("0-1\n", 2), ("0-3,8\n", 5)])
def test_threads_of_a_core(tmp_path: Path, text: str, count: int) -> None:
    assert threads_per_core(tmp_path) == 1
    folder = tmp_path / "sys/devices/system/cpu/cpu0/topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text(text)
    assert threads_per_core(tmp_path) == count


def test_the_processors_name(tmp_path: Path) -> None:
    assert processor(tmp_path)  # whatever Python knows
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name\t: Some CPU @ 2 GHz\n\nmodel name : other\n")
    assert processor(tmp_path) == "Some CPU @ 2 GHz"
