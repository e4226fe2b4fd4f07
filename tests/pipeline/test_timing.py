"""A run of timing alone takes, costs and does what the run with numbers does; also on clusters whose tasks contend."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.graphs import summary_of
from support.pipelines import MODELS, make_pipeline, messy_data, one_compilation

from dorylax.cost import INSTANCES, Cluster, clusters
from dorylax.pipeline import config as config_module
from dorylax.pipeline import prepare, timing
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.timeline import Span
from dorylax.pipeline.timing import timed_pipeline
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError

EPOCHS = 3
EDGE_CHUNK = 40
compilation = one_compilation(40, EDGE_CHUNK)


class Told(NamedTuple):
    """What a run tells of itself."""

    seconds: list[float]
    servers: list[Any]
    bill: Any
    counters: dict[str, Any]
    lags: dict[str, int]
    spans: list[Span]
    losses: list[float]


def told(pipeline: Pipeline) -> Told:
    spans: list[Span] = []
    with contextlib.closing(
        pipeline.start(pipeline.parts.params, None, pipeline.parts.state, trace=spans.append)
    ) as run:
        epochs = [run.run_epoch() for _ in range(EPOCHS)]
        servers = [dataclasses.asdict(one) for epoch in epochs for one in epoch.servers]
        seconds, losses = [epoch.seconds for epoch in epochs], [epoch.loss for epoch in epochs]
        return Told(seconds, servers, run.bill(), run.counters(), run.rows_by_lag(), spans, losses)


CONTENDED = {name: dataclasses.replace(cluster, contention=True) for name, cluster in clusters().items()}
CLUSTERS: dict[str, Cluster] = {
    "default": clusters()["default"],
    "contention": CONTENDED["default"],
    "few cold functions": dataclasses.replace(CONTENDED["gcn-amazon"], functions=2),
    "servers alone": dataclasses.replace(CONTENDED["default"], functions=0),
    "GPUs": dataclasses.replace(CONTENDED["default"], functions=0, graph_server=INSTANCES["p3.2xlarge"]),
}
MODES = st.one_of(
    st.sampled_from([{"mode": "no-pipe"}, {"mode": "pipe"}]),
    st.fixed_dictionaries(
        {
            "mode": st.just("async"),
            "staleness": st.integers(0, 2),
            "freshness": st.sampled_from([0.0, 0.8]),
            "stability_gate": st.just(False),  # what depends on numbers
        }
    ),
    st.fixed_dictionaries(
        {"mode": st.just("async"), "update": st.just("per_interval"), "staleness": st.integers(0, 1)}
    ),
)


@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "drifting", "BatchNorm"])
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    mode=MODES,
    cluster=st.sampled_from(list(CLUSTERS)),
    servers=st.integers(1, 3),
    intervals=st.integers(1, 3),
    parameter_servers=st.integers(1, 2),
    tensor=st.fixed_dictionaries({"autotune": st.booleans(), "streaming": st.booleans()}),
    passes=st.fixed_dictionaries({"fuse": st.booleans(), "rematerialise": st.booleans()}),
    seed=st.integers(0, 99),
)
def test_it_is_the_run_with_numbers(
    *, model, mode, cluster, servers, intervals, parameter_servers, tensor, passes, seed
):
    config = PipelineConfig(
        clock="virtual",
        servers=servers,
        intervals=intervals,
        parameter_servers=parameter_servers,
        edge_chunk=EDGE_CHUNK,
        tensor=TensorConfig(**tensor),
        **mode,
        **passes,
    )
    data = messy_data(32, 120)
    with rented(CLUSTERS[cluster]):
        whole, parts = make_pipeline(model, data, config, seed=seed)
        numbers = told(whole)
        times = told(timed_pipeline(parts, data, whole.pieces, config, seed=seed))
    assert all(map(math.isnan, times.losses))
    assert times._replace(losses=[]) == numbers._replace(losses=[])


@pytest.mark.parametrize("model", ["BatchNorm", *MODELS])
@pytest.mark.parametrize("mode", [{"mode": "pipe"}, {"mode": "async"}])
def test_counts_are_all_it_needs(model, mode):
    config = PipelineConfig(clock="virtual", servers=3, intervals=2, edge_chunk=EDGE_CHUNK, **mode)
    data = messy_data(32, 120)
    whole, parts = make_pipeline(model, data, config)
    summaries = [summary_of(shard) for shard in whole.pieces]
    with rented(CLUSTERS["contention"]):
        found = [told(timed_pipeline(parts, data, shards, config)) for shards in (whole.pieces, summaries)]
    assert found[0]._replace(losses=[]) == found[1]._replace(losses=[])


@contextlib.contextmanager
def rented(cluster: Cluster) -> Iterator[None]:
    """Whatever a configuration names, it is this cluster."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (prepare, config_module, timing):
            patch.setattr(module, "find_cluster", lambda _: cluster)
        yield


def test_it_needs_the_virtual_clock_and_a_shard_for_each_server():
    data = messy_data(32, 120)
    config = PipelineConfig(clock="virtual", servers=2, intervals=2, edge_chunk=EDGE_CHUNK)
    whole, parts = make_pipeline("gcn", data, config)
    with pytest.raises(ConfigError, match=r"pipeline.clock must be virtual where nothing is computed, got real"):
        timed_pipeline(parts, data, whole.pieces, config.model_copy(update={"clock": "real"}))
    with pytest.raises(ConfigError, match=r"pipeline.servers = 2, but there are shards of 1"):
        timed_pipeline(parts, data, whole.pieces[:1], config)


# Clusters whose tasks slow each other down, and whose functions start cold.


def config(mode: str) -> PipelineConfig:
    tensor = TensorConfig(placement="functions")
    return PipelineConfig(clock="virtual", servers=2, intervals=3, edge_chunk=EDGE_CHUNK, mode=mode, tensor=tensor)


@pytest.mark.parametrize("mode", ["pipe", "async"])
def test_a_run_that_goes_on_is_the_run_that_never_stopped(mode: str) -> None:
    """Functions that were warm are warm: else the first epoch would wait for them once more."""
    with rented(CONTENDED["default"]):
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
    cluster = CONTENDED["default"]
    with rented(cluster):
        pipeline, parts = make_pipeline("gcn", messy_data(32, 120), config("pipe"))
        with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
            seconds = [run.run_epoch().seconds for _ in range(3)]
    assert seconds[0] > cluster.function.cold_start > max(seconds[1:])


def test_a_cluster_without_functions_trains_on_its_servers() -> None:
    losses = {}
    for functions in (100, 0):
        with rented(dataclasses.replace(CONTENDED["default"], functions=functions)):
            pipeline, parts = make_pipeline("gcn", messy_data(32, 120), config("pipe"))
            with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
                losses[functions] = [run.run_epoch().loss for _ in range(3)]
                bill = run.bill()
                assert bill is not None
                assert (bill.requests > 0) == (functions > 0)
    assert losses[0] == pytest.approx(losses[100], rel=1e-5)
