"""The trace of a run while it trains: what is in the file when, and what is kept."""

from __future__ import annotations

import errno
import itertools
import json
import os
import tracemalloc
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.errors import RunWarning
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.timeline import Lanes, Span
from dorylax.pipeline.trace import LIMIT, Sampling, TraceWriter


def epoch_of(number: int, tasks: int = 3) -> Iterator[Span]:
    """An epoch of one second, and the step after it."""
    for k in range(tasks):
        yield Span("GA", "graph", 0, k, number, number + k / tasks, number + (k + 1) / tasks, 1)
    yield Span("WU", "parameters", 0, -1, -1, number + 1, number + 1, version=number + 1)


def train(writer: TraceWriter, epochs: range, tasks: int = 3) -> None:
    for number in epochs:
        for span in epoch_of(number, tasks):
            writer.add(span)
        writer.flush(number + 1)


def run(path: Path) -> None:
    """Nine epochs."""
    writer = begun(path)
    train(writer, range(9))
    writer.checkpoint(settled=True)
    writer.close()


def tasks_in(path: Path) -> list[tuple[str, int]]:
    """Name and epoch of each task; the file is strict JSON."""
    events = json.loads(path.read_text())["traceEvents"]
    return [(event["name"], event["args"]["epoch"]) for event in events if event["ph"] == "X"]


def expected(epochs: range) -> list[tuple[str, int]]:
    return [one for number in epochs for one in [("WU", -1), *[("GA", number)] * 3]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def begun(path: Path, kind: Any = "full", epochs: int = 0, *, continues: bool = True) -> TraceWriter:
    writer = TraceWriter.begin(path, kind, epochs=epochs, continues=continues)
    assert writer is not None
    return writer


def test_an_epoch_is_in_the_file_when_it_is_finished(path: Path) -> None:
    writer = begun(path)
    assert tasks_in(path) == []
    for span in (*epoch_of(0), *epoch_of(1)):
        writer.add(span)
    writer.flush(1)
    assert tasks_in(path) == [("WU", -1)] * 2 + expected(range(1))[1:]  # what is ahead waits
    writer.flush(2)
    assert tasks_in(path)[5:] == [("GA", 1)] * 3
    writer.close()
    writer.close()


def test_what_comes_after_an_epoch_is_in_the_file_at_a_checkpoint_of_it(path: Path) -> None:
    """A last step of the optimizer: its mark tells of the same epochs."""
    writer = begun(path)
    train(writer, range(3))
    writer.add(Span("WU", "parameters", 0, -1, -1, 3, 4, version=4))
    writer.checkpoint(settled=True)
    writer.close()
    assert tasks_in(path) == [*expected(range(3)), ("WU", -1)]
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["args"]["epochs"] for event in events if event["ph"] == "i"] == [1, 2, 3, 3]


def test_lanes_are_those_of_what_ran_at_a_time_whichever_epoch_it_was_of(path: Path) -> None:
    """Two threads, one of which is an epoch ahead: its tasks are written later, into the lane that they had."""
    writer = begun(path)
    for k in range(4):
        for epoch in (0, 1):
            writer.add(Span("GA", "graph", 0, k, epoch, k + epoch / 2, k + 1 + epoch / 2))
    writer.flush(1)
    writer.flush(2)
    writer.close()
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert [(event["args"]["epoch"], event["tid"]) for event in events] == [(0, 0)] * 4 + [(1, 1)] * 4


def test_going_on_it_is_what_it_would_have_been(path: Path, tmp_path: Path) -> None:
    """From a checkpoint, after which a killed process had gone on for a while; the second of two lanes was free last."""

    def both(writer: TraceWriter, epochs: range) -> None:
        for number in epochs:
            writer.add(Span("AV", "graph", 0, 0, number, number, number + 0.6))
            writer.add(Span("AV", "graph", 0, 1, number, number + 0.3, number + 1))
            writer.flush(number + 1)

    whole = begun(tmp_path / "whole.json")
    both(whole, range(3))
    whole.checkpoint(settled=True)
    both(whole, range(3, 6))
    whole.close()
    killed = begun(path)
    both(killed, range(3))
    killed.checkpoint(settled=True)
    both(killed, range(3, 5))
    resumed = begun(path, epochs=3)
    both(resumed, range(3, 6))
    resumed.close()
    assert path.read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert tasks_in(path) == [("AV", number) for number in range(6) for _ in range(2)]
    killed.close()


def test_where_the_clock_begins_anew_times_go_on(path: Path) -> None:
    first = begun(path)
    train(first, range(3))
    first.close()
    second = begun(path, epochs=3, continues=False)
    for span in epoch_of(0):
        second.add(span._replace(epoch=max(span.epoch, -1) if span.epoch < 0 else 3))
    second.flush(4)
    second.close()
    starts = [event["ts"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert min(starts[12:]) == 3e6


def test_off_is_no_trace_and_drops_what_is_done_again(path: Path) -> None:
    assert TraceWriter.begin(path, "off", epochs=0, continues=True) is None
    assert not path.exists()
    writer = begun(path)
    train(writer, range(5))
    writer.close()
    assert TraceWriter.begin(path, "off", epochs=3, continues=True) is None
    assert tasks_in(path) == expected(range(3))


def test_a_sample_has_whole_epochs_in_so_many_bytes(path: Path) -> None:
    limit = 20_000
    writer = TraceWriter(path, Sampling(limit), epochs=0, continues=True)
    train(writer, range(2000))
    writer.close()
    assert path.stat().st_size <= limit
    epochs = [epoch for _, epoch in tasks_in(path) if epoch >= 0]
    assert all(epochs.count(epoch) == 3 for epoch in set(epochs))
    assert 10 < len(set(epochs)) < 100
    assert max(epochs) > 500
    names = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "M"]
    assert len(names) == 4


def test_half_an_epoch_ahead_is_no_part_of_a_sample(path: Path) -> None:
    """The stretch ends when some intervals are in the next epoch; the names of their lanes are not lost."""
    writer = TraceWriter(path, Sampling(12_000), epochs=0, continues=True)
    for number in range(40):
        for span in (*epoch_of(number), Span("AV", "tensor", 0, 0, number + 1, number, number + 1)):
            writer.add(span)
        writer.flush(number + 1)
    writer.close()
    events = json.loads(path.read_text())["traceEvents"]
    epochs = [event["args"]["epoch"] for event in events if event["ph"] == "X" and event["args"]["epoch"] >= 0]
    assert len(set(epochs)) > 3
    for epoch in set(epochs) - {0}:
        assert epochs.count(epoch) == 4
    lanes = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert {event["tid"] for event in events if event["ph"] == "X"} <= lanes | {300_000}


def test_memory_is_bounded_however_long_a_run_is(path: Path) -> None:
    writer = TraceWriter(path, Sampling(200_000), epochs=0, continues=True)
    train(writer, range(20), tasks=50)
    tracemalloc.start()
    try:
        train(writer, range(20, 600), tasks=50)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        writer.close()
    assert kept < 100_000  # the tasks of those epochs would be 7 MB


@pytest.mark.parametrize("failing", range(1, 7))
def test_a_full_disk_ends_the_trace_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """At the header, and at both writes of epochs."""
    calls, pwrite = [0], os.pwrite

    def full(*arguments: Any) -> int:
        calls[0] += 1
        if calls[0] == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(*arguments)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.warns(RunWarning, match=r"trace.json cannot be written \(No space left on device\): the run") as seen:
        run(path)
    assert len(seen) == 1
    if failing == 1:
        assert not path.exists()
        return
    done = (failing - 2) // 2
    assert tasks_in(path) == expected(range(done))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = begun(path, epochs=9)
        train(again, range(9, 11))
        again.close()
    assert tasks_in(path) == expected(range(done)) + expected(range(9, 11))


def test_a_disk_that_does_not_sync_ends_the_trace_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for end in (lambda writer: writer.checkpoint(settled=True), TraceWriter.close):
        monkeypatch.setattr(os, "fsync", broken)
        writer = begun(path)
        train(writer, range(2))
        with pytest.warns(RunWarning, match=r"Input/output error"):
            end(writer)
        train(writer, range(2, 4))
        writer.close()
        assert tasks_in(path) == expected(range(2))
        monkeypatch.undo()


@pytest.mark.parametrize("word", ["pid", "tid", "name", "process_name", "ts", "epochs", "bytes"])
def test_a_run_goes_on_with_a_trace_that_is_damaged(path: Path, word: str) -> None:
    run(path)
    path.write_text(path.read_text().replace(f'"{word}"', f'"{word.upper()}"'))
    writer = begun(path, "sample", epochs=9)
    train(writer, range(9, 11))
    writer.close()
    assert tasks_in(path)[-8:] == expected(range(9, 11))


def test_where_no_file_can_be_it_is_said_once(path: Path) -> None:
    path.mkdir()
    with pytest.warns(RunWarning, match="Is a directory") as seen:
        run(path)
    assert len(seen) == 1
    with pytest.warns(RunWarning, match="Is a directory"):
        TraceWriter.begin(path, "off", epochs=0, continues=True)


def traced(sampling: Sampling, epochs: int, size: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Which epochs of a run are, each of which takes so many bytes; and what was told of them."""
    found, told, total = [], [], 0
    for epoch in range(epochs):
        if not sampling.wants(epoch):
            continue
        if not sampling.takes(total + size):
            break
        total += size
        found.append(epoch)
        told.append((epoch + 1, total))
        sampling.wrote(*told[-1])
    return found, told


def test_a_run_of_usual_length_is_traced_whole() -> None:
    """300 epochs at 4 servers of 8 intervals take about 0.1 MB each."""
    assert traced(Sampling(), 300, 110_000)[0] == list(range(300))


def test_later_there_are_stretches_and_gaps_as_long_as_all_before() -> None:
    found, told = traced(Sampling(6400), 100_000, 100)
    assert found[:20] == [*range(16), 32, 33, 68, 69]
    assert all(epoch + 1 in found or epoch - 1 in found for epoch in found)
    assert found[-1] > 50_000
    assert told[-1][1] <= 6400


def test_an_epoch_that_alone_is_too_large_is_the_last() -> None:
    sampling = Sampling(1000)
    sampling.wrote(1, 100)
    assert sampling.wants(1)
    assert not sampling.takes(1001)
    assert not any(sampling.wants(epoch) for epoch in range(1, 99))


@given(st.integers(64, 10_000), st.lists(st.tuples(st.integers(1, 3000), st.booleans()), max_size=300))
def test_it_is_never_larger_however_large_epochs_are_and_often_it_is_gone_on_with(
    limit: int, epochs: list[tuple[int, bool]]
) -> None:
    told = [(0, 0)]
    sampling = Sampling(limit)
    for epoch, (size, resumed) in enumerate(epochs):
        sampling = replayed(limit, told) if resumed else sampling
        total = told[-1][1] + size
        if sampling.wants(epoch) and sampling.takes(total):
            told.append((epoch + 1, total))
            sampling.wrote(*told[-1])
    assert told[-1][1] <= limit


@given(st.integers(64, 10_000), st.integers(1, 300), st.integers(0, 300))
def test_it_goes_on_as_if_it_had_never_stopped(limit: int, size: int, stop: int) -> None:
    sampling = Sampling(limit)
    _, told = traced(sampling, stop, min(size, limit))
    resumed = replayed(limit, told)
    later = range(stop, stop + 300)
    assert [resumed.wants(epoch) for epoch in later] == [sampling.wants(epoch) for epoch in later]


def replayed(limit: int, told: list[tuple[int, int]]) -> Sampling:
    sampling = Sampling(limit)
    for epochs, size in told:
        sampling.wrote(epochs, size)
    return sampling


def test_the_setting_says_how_large_it_is() -> None:
    assert f"in {LIMIT // 2**20} MiB at most" in str(PipelineConfig.model_fields["trace"].description)


def task(start: float, end: float, server: int = 0) -> Span:
    return Span("AV", "tensor", server, 0, 0, start, end)


def shown(lanes: Lanes, spans: Iterable[Span]) -> list[dict[str, Any]]:
    return [event for span in spans for event in lanes.events(span)]


def complete(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def test_every_task_with_server_interval_epoch_and_kind() -> None:
    (event,) = complete(shown(Lanes(), [Span("GA", "graph", 1, 9, 3, 0.5, 0.75, 4)]))
    assert event["name"] == "GA"
    assert (event["ts"], event["dur"]) == (500_000, 250_000)
    assert event["args"] == {"server": 1, "interval": 9, "epoch": 3, "kind": "graph", "task": 4}


def test_servers_and_lanes_have_names() -> None:
    spans = [Span("GA", "graph", 0, 0, 0, 0, 1), Span("WU", "parameters", 0, -1, -1, 1, 2, version=3)]
    events = shown(Lanes(), spans)
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"graph server 0", "graph 0", "parameter server 0", "parameters 0"}
    assert [event["args"].get("version") for event in complete(events)] == [None, 3]


def test_more_than_a_thousand_at_a_time_are_still_of_one_resource() -> None:
    """Functions of a cloud are so many."""
    spans = [task(0, 1 + k) for k in range(1500)] + [Span("SC → 1", "network", 0, 0, 0, 0, 1501)]
    events = shown(Lanes(), spans)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [names[event["tid"]].split()[0] for event in complete(events)] == ["tensor"] * 1500 + ["network"]


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**10)), max_size=40), st.floats(1e-10, 1e-3))
def test_in_a_lane_nothing_overlaps_and_there_are_no_more_than_are_needed(
    pairs: list[tuple[int, int]], unit: float
) -> None:
    """To the nanosecond, however times are rounded, of tasks that come in the order in which they end."""
    spans = sorted((task(unit * min(pair), unit * max(pair)) for pair in pairs), key=lambda span: span.end)
    lanes: dict[int, list[tuple[int, int]]] = {}
    for event in complete(shown(Lanes(), spans)):
        start = round(1000 * event["ts"])
        lanes.setdefault(event["tid"], []).append((start, start + round(1000 * event["dur"])))
    for found in lanes.values():
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(found))
    every = [times for found in lanes.values() for times in found]
    assert len(lanes) <= max((sum(a <= start <= b for a, b in every) for start, _ in every), default=0)
