"""What is told of the effort of tasks before they run."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from support.pipelines import OfFunction, make_model, messy_data, optimizer

from dorylax import ops
from dorylax.clock.real import Threads
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.stages import stage_cost, stage_effort
from dorylax.program.model.flax_nnx import take_apart

DATA = messy_data()


def halved(params: Any, graph: Any, x: Any) -> Any:
    """Rows that are halved until they are short, however long that takes."""
    row = lambda r: lax.while_loop(lambda h: (h * h).sum() > 0.1, lambda h: h * 0.5, r)  # noqa: E731
    return ops.gather(graph, jax.vmap(row)(lax.stop_gradient(x)) @ params["w"])


WEIGHT = np.full((DATA.num_features, DATA.num_classes), 0.1, np.float32)


@pytest.mark.parametrize(
    ("model", "known"), [(lambda: make_model("gcn", DATA), True), (lambda: OfFunction(halved, {"w": WEIGHT}), False)]
)
def test_tasks_tell_their_effort(monkeypatch: pytest.MonkeyPatch, model: Any, known: bool) -> None:
    asked: dict[str, list[Any]] = defaultdict(list)
    run_work = Threads.run

    async def run(self: Threads, work: Any, *, seconds: Any, order: Any, effort: int | None = None) -> Any:
        asked[self.name.split()[0]].append(effort)
        return await run_work(self, work, seconds=seconds, order=order, effort=effort)

    monkeypatch.setattr(Threads, "run", run)
    parts = take_apart(model())
    config = PipelineConfig(servers=2, intervals=3)
    pipeline = Pipeline.of(parts, DATA, optimizer(), config)
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as training:
        training.run_epoch()
    assert asked["graph"]
    assert asked["tensor"]
    assert all(effort is None or effort > 0 for efforts in asked.values() for effort in efforts)
    assert (None not in asked["graph"] + asked["tensor"]) == known


def test_the_effort_of_a_stage_counts_padding() -> None:
    """What a call takes does not depend on how many of its rows are real."""
    parts = take_apart(make_model("gcn", DATA))
    plan = Pipeline.of(parts, DATA, optimizer(), PipelineConfig(servers=1, intervals=2)).prepared.plan
    for step in plan.steps:
        if step.kind == "stage":
            cost = stage_cost(step, 40)
            assert stage_effort(step, 40) == cost.flops + cost.bytes_in + cost.bytes_out
