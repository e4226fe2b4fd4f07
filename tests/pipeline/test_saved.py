"""What is saved of a pipeline's servers, and put back."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from support import pipelines
from support.pipelines import messy_data, one_compilation

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.run import PipelineRun
from dorylax.pipeline.saved import Saved, restore_buffers, restore_controller, save_buffers, save_controller
from dorylax.serverless.config import TensorConfig

GRAPH = messy_data(32, 120)
EPOCHS = 2
compilation = one_compilation(32, 40)


def running(model: str = "sage", **options: Any) -> contextlib.AbstractContextManager[PipelineRun]:
    """`sage` takes maxima: its gradients are pushed, so that there are sums beside rows."""
    given = {"mode": "async", "staleness": 1, "servers": 2, "intervals": 2, "clock": "virtual", "edge_chunk": 40}
    return pipelines.running(model, GRAPH, PipelineConfig(**given | options))


def trained(run: PipelineRun) -> Saved:
    run.barrier(EPOCHS)
    for _ in range(EPOCHS):
        run.run_epoch()
    saved = run.save()
    assert saved is not None
    return saved


def servers(run: PipelineRun) -> list[Any]:
    return [host.server for host in run._member.hosts]


def test_what_is_put_back_is_what_was_saved_and_training_does_not_change_it() -> None:
    with running() as run:
        saved = trained(run)
        kinds = {name.split("/")[1].split(" ")[0] for name in saved.arrays}
        assert kinds == {"rows", "epochs", "times", "sums", "remembered", "stability"}
        before = {name: array.copy() for name, array in saved.arrays.items()}
        run.barrier(EPOCHS + 1)
        run.run_epoch()
        for name, array in saved.arrays.items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)
    with running() as other:
        restore_buffers(saved, servers(other))
        for name, array in save_buffers(servers(other)).items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("gcn", {}, r"of another pipeline: server 0/\S+ .* are in one of them only"),
        ("sage", {"servers": 1, "intervals": 4}, r"of another pipeline: server .* are in one of them only"),
        ("sage", {"intervals": 3}, r"of another pipeline: server 0/\w+ \d.* is int64\[\d+\] there, int64\[\d+\] here"),
    ],
)
def test_another_pipeline_s_is_refused(model: str, options: dict[str, Any], message: str) -> None:
    with running() as run:
        saved = trained(run)
    with running(model, **options) as other:
        before = save_buffers(servers(other))
        with pytest.raises(ValueError, match=message):
            restore_buffers(saved, servers(other))
        for name, array in save_buffers(servers(other)).items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_another_dtype_is_refused() -> None:
    with running() as run:
        saved = trained(run)
        name = next(name for name in saved.arrays if "rows" in name)
        halved = saved.arrays | {name: saved.arrays[name].astype(np.float16)}
        with pytest.raises(ValueError, match=rf"{name} is float16\[.* there, float32\[.* here"):
            restore_buffers(Saved(halved, saved.record), servers(run))


def test_what_a_controller_has_learnt_is_put_back_where_it_is_used() -> None:
    learning = {"tensor": TensorConfig(autotune=True, placement="functions")}
    with running(**learning) as run:
        saved = trained(run)
        records = [save_controller(server) for server in servers(run)]
        assert saved.record["controllers"] == records
        assert all(record["hedging"] and record["autotuner"] for record in records)
    changed = records[0] | {"autotuner": [1, *records[0]["autotuner"][1:]]}
    with running(**learning) as other:
        server = servers(other)[0]
        restore_controller(server, changed)
        assert save_controller(server) == changed
        assert server.controller.limit.slots == server.autotuner.limit
    with running(tensor=TensorConfig(relaunches=0, placement="functions")) as plain:
        restore_controller(servers(plain)[0], changed)
        assert save_controller(servers(plain)[0]) == {"hedging": None, "autotuner": None}
