from __future__ import annotations

from collections.abc import Iterator

import pytest

from dorylax.calibration.small_runs import TINY, WORKER, Small, mean_length, small_run
from dorylax.calibration.steps import quantity
from dorylax.pipeline.timeline import Resource, Span

A, B = quantity("task", part="inside"), quantity("task", part="around")


def span(seconds: float, resource: Resource) -> Span:
    return Span("any", resource, 0, 0, 1, 1.0, 1.0 + seconds)


def test_what_every_epoch_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def epochs(of: Small, number: int) -> Iterator[tuple[float, list[Span]]]:
        assert of == TINY
        for epoch in range(number):
            yield 3.0 + epoch, [span(1.0 + epoch, "graph"), span(5.0, "tensor")]

    monkeypatch.setattr(Small, "epochs", epochs)
    shows = {A: lambda _, spans: mean_length(spans, "graph"), B: lambda seconds, _: seconds}
    run = small_run("a run", TINY, 3, shows)
    assert run.label == "a run"
    for _ in range(2):
        assert run.measure() == {A: pytest.approx([1.0, 2.0, 3.0]), B: [3.0, 4.0, 5.0]}


def test_lengths_of_one_resource() -> None:
    spans = [span(1.0, "graph"), span(5.0, "tensor"), span(2.0, "graph")]
    assert mean_length(spans, "graph") == pytest.approx(1.5)


def test_epochs_are_those_after_the_first() -> None:
    numbers = []
    for seconds, spans in TINY.epochs(2):
        assert 0 < sum(one.end - one.start for one in spans) < seconds
        numbers.append({one.epoch for one in spans if one.resource == "graph"})
    assert numbers == [{1}, {2}]


def test_where_tensor_tasks_run_is_not_a_setting_of_the_pipeline() -> None:
    run = Small("tiny", 16, 2, processes=3, tensor=WORKER)
    assert run.settings == {"mode": "no-pipe", "intervals": 2, "servers": 3, "hosts": "processes"}
