"""Runs on clusters whose tasks slow each other down, and whose functions start cold."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest
from support.pipelines import make_pipeline, messy_data, one_compilation

from dorylax.cost import Cluster, clusters
from dorylax.pipeline import config as config_module
from dorylax.pipeline import prepare
from dorylax.pipeline.config import PipelineConfig
from dorylax.serverless.config import TensorConfig

EDGE_CHUNK = 40
CONTENDED = dataclasses.replace(clusters()["default"], contention=True)
compilation = one_compilation(40, EDGE_CHUNK)


@contextlib.contextmanager
def rented(cluster: Cluster) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (prepare, config_module):
            patch.setattr(module, "find_cluster", lambda _: cluster)
        yield


def config(mode: str) -> PipelineConfig:
    tensor = TensorConfig(placement="functions")
    return PipelineConfig(clock="virtual", servers=2, intervals=3, edge_chunk=EDGE_CHUNK, mode=mode, tensor=tensor)


@pytest.mark.parametrize("mode", ["pipe", "async"])
def test_a_run_that_goes_on_is_the_run_that_never_stopped(mode: str) -> None:
    """Functions that were warm are warm: else the first epoch would wait for them once more."""
    with rented(CONTENDED):
        pipeline, parts = make_pipeline("gcn", messy_data(32, 120), config(mode))
        with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as whole:
            whole.barrier(2)
            whole.run_epoch()
            middle = whole.run_epoch()
            saved = whole.save()
            assert saved is not None
            expected = [whole.run_epoch().seconds for _ in range(2)]
            end = whole.seconds
        trees = (middle.params, middle.opt_state, middle.state)
        with contextlib.closing(pipeline.start(*trees, epoch=2, saved=saved)) as again:
            assert [again.run_epoch().seconds for _ in range(2)] == expected
            assert again.seconds == end


def test_functions_start_cold_once() -> None:
    cluster = CONTENDED
    with rented(cluster):
        pipeline, parts = make_pipeline("gcn", messy_data(32, 120), config("pipe"))
        with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
            seconds = [run.run_epoch().seconds for _ in range(3)]
    assert seconds[0] > cluster.function.cold_start > max(seconds[1:])


def test_a_cluster_without_functions_trains_on_its_servers() -> None:
    losses = {}
    for functions in (100, 0):
        with rented(dataclasses.replace(CONTENDED, functions=functions)):
            pipeline, parts = make_pipeline("gcn", messy_data(32, 120), config("pipe"))
            with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
                losses[functions] = [run.run_epoch().loss for _ in range(3)]
                bill = run.bill()
                assert bill is not None
                assert (bill.requests > 0) == (functions > 0)
    assert losses[0] == pytest.approx(losses[100], rel=1e-5)
