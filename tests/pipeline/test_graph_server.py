"""For whom it is urgent what a graph server sends: what is held back, and what is acknowledged at once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from support.pipelines import running, small_data

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.run import PipelineRun
from dorylax.pipeline.transport.base import Waiting
from dorylax.pipeline.transport.in_process import InProcessTransport


def rows_sent(
    patch: pytest.MonkeyPatch, model: str, **options: Any
) -> tuple[dict[tuple[int, ...], list[Waiting]], Any]:
    """By server, peer, publication and epoch: for whom the rows of intervals were urgent, in order; and the plan."""
    found = defaultdict[tuple[int, ...], list[Waiting]](list)
    post = InProcessTransport.post

    def posts(transport: InProcessTransport, *args: Any, waiting: Waiting, **named: Any) -> None:
        sender, receiver, kind, payload = args
        if kind == "rows" and payload.epoch >= 0:
            found[sender.index, receiver.index, payload.publication, payload.epoch].append(waiting)
        post(transport, *args, waiting=waiting, **named)

    patch.setattr(InProcessTransport, "post", posts)
    config = PipelineConfig(servers=2, intervals=3, clock="virtual", **options)
    run: PipelineRun
    with running(model, small_data(), config) as run:
        for _ in range(2):
            run.run_epoch()
        plan = run._member.hosts[0].server.context.plan  # type: ignore[attr-defined]
    return found, plan


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_rows_of_a_synchronous_epoch_wait_for_the_last_of_them(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, plan = rows_sent(monkeypatch, model)
    order = [number for step in plan.epoch for number in step.publishes]
    assert found
    for (server, peer, publication, epoch), waiting in found.items():
        later = order[order.index(publication) + 1 :]
        urgent = "receiver" if any((server, peer, number, epoch) in found for number in later) else "sender"
        assert waiting == ["nobody"] * (len(waiting) - 1) + [urgent]


def test_rows_that_may_be_read_before_the_others_are_there_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = rows_sent(monkeypatch, "gcn", mode="async", staleness=1, stability_gate=False)
    assert {one for (*_, epoch), waiting in found.items() if epoch > 0 for one in waiting} == {"receiver", "sender"}


def test_where_one_task_goes_at_a_time_all_are_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = rows_sent(monkeypatch, "gcn", mode="no-pipe")
    assert {one for waiting in found.values() for one in waiting} == {"sender"}
