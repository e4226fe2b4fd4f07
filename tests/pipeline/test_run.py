"""What may be asked of a run between two epochs, and what it gives."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
import pytest
from support import pipelines
from support.pipelines import messy_data, one_compilation

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.recorder import Trace
from dorylax.pipeline.run import PipelineRun
from dorylax.pipeline.timeline import Span

GRAPH = messy_data(32, 120)
compilation = one_compilation(32, 40)


def running(
    epoch: int = 0, saved: Any = None, trees: Any = None, trace: Trace | None = None, **options: Any
) -> contextlib.AbstractContextManager[PipelineRun]:
    given = {"mode": "async", "intervals": 3, "clock": "virtual", "edge_chunk": 40}
    config = PipelineConfig(**given | options)
    return pipelines.running("gcn", GRAPH, config, epoch=epoch, trees=trees, saved=saved, trace=trace)


def test_the_seconds_of_epochs_add_up_to_those_of_the_run_and_are_billed() -> None:
    with running(mode="pipe") as run:
        run.barrier(3)
        records = [run.run_epoch() for _ in range(3)]
        assert [record.epoch for record in records] == [0, 1, 2]
        assert min(record.seconds for record in records) > 0
        assert sum(record.seconds for record in records) == pytest.approx(run.seconds)
        assert run.counters()["virtual_seconds"] == run.seconds
        bill, prices = run.bill(), run.prices
    assert bill is not None
    assert prices is not None
    per_hour = prices.graph_server.price + prices.parameter_server.price
    assert bill.graph_servers + bill.parameter_servers == pytest.approx(per_hour * run.seconds / 3600)


def test_on_the_real_clock_nothing_is_billed_unless_prices_are_named() -> None:
    with running(mode="pipe", clock="real") as run:
        run.barrier(1)
        run.run_epoch()
        assert (run.prices, run.bill()) == (None, None)
        assert "virtual_seconds" not in run.counters()


def test_from_a_switch_on_every_epoch_is_synchronous() -> None:
    """As many rows are stale as before it, and no more."""
    with running(staleness=1) as run:
        run.run_epoch()
        first = run.synchronise()
        for _ in range(1, first):
            run.run_epoch()
        before = dict(run.rows_by_lag())
        run.barrier(first + 2)
        for _ in range(2):
            run.run_epoch()
        after = run.rows_by_lag()
        saved = run.save()
    assert {lag: rows for lag, rows in after.items() if lag != "0"} == {
        lag: rows for lag, rows in before.items() if lag != "0"
    }
    assert after["0"] > before.get("0", 0)
    assert saved is not None
    assert saved.record["synchronous"]
    assert saved.arrays == {}


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_going_on_it_tells_what_comes_then_in_the_time_of_the_run(clock: Any) -> None:
    """What is computed once has been told by the process before."""
    first: list[Span] = []
    with running(mode="pipe", clock=clock, trace=first.append) as run:
        run.barrier(1)
        last = run.run_epoch()
        saved = run.save()
    assert {span.epoch for span in first} == {-1, 0}
    trees = jax.tree.map(np.asarray, (last.params, last.opt_state, last.state))
    second: list[Span] = []
    with running(mode="pipe", clock=clock, epoch=1, saved=saved, trees=trees, trace=second.append) as again:
        assert again.seconds >= saved.record["clock"] > 0
        again.barrier(2)
        again.run_epoch()
    assert {span.epoch for span in second} == {-1, 1}
    assert [span.name for span in second if span.epoch == -1] == ["WU"]
    assert min(span.start for span in second) >= max(span.end for span in first)


def test_a_run_whose_task_has_failed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise ArithmeticError("gather")

    closed: list[bool] = []
    with running(mode="pipe") as run:
        run.barrier(1)
        run.run_epoch()
        run.barrier(2)
        run._cleanup.callback(closed.append, True)
        monkeypatch.setattr(GraphServer, "finish", broken)
        with pytest.raises(ArithmeticError, match="gather"):
            run.run_epoch()
        assert closed == [True]
