"""A pipeline's configuration: what is filled in, and what each wrong one says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dorylax.pipeline.config import PipelineConfig
from dorylax.program import PASSES
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({}, (None, None, None, "per_epoch")),
        ({"mode": "no-pipe"}, (None, None, None, "per_epoch")),
        ({"mode": "async"}, (1, 0.8, "optimizer", "per_epoch")),
        ({"mode": "async", "update": "per_interval"}, (1, 0.8, "none", "per_interval")),
        (
            {"mode": "async", "staleness": 3, "freshness": 1, "predict_weights": "linear"},
            (3, 1.0, "linear", "per_epoch"),
        ),
    ],
)
def test_what_the_mode_fills_in(given: dict[str, Any], filled: tuple[Any, ...]) -> None:
    config = PipelineConfig(**given)
    assert (config.staleness, config.freshness, config.predict_weights, config.update) == filled
    assert PipelineConfig(**config.to_dict()) == config


@pytest.mark.parametrize(
    ("given", "price"),
    [
        ({}, 0.0),
        ({"mode": "no-pipe"}, 0.0),
        ({"mode": "async", "freshness": 0.8}, 0.1),
        ({"mode": "async", "freshness": 0, "stale_price": 3}, 1.5),
        ({"mode": "async", "freshness": 1, "stale_price": 3}, 0.0),
        ({"mode": "async", "stale_price": 0}, 0.0),
    ],
)
def test_what_is_stale_is_weighed_by_how_much_of_it_there_will_be(given: dict[str, Any], price: float) -> None:
    assert PipelineConfig(**given).expected_stale_price == pytest.approx(price)


def test_what_spares_shipping_is_done_where_tensors_are_shipped() -> None:
    assert PipelineConfig().passes == ("reorder", "prune", "settle", "hoist", "fuse")
    assert PipelineConfig(clock="virtual").passes == PASSES
    assert PipelineConfig(clock="virtual", mode="async").passes == PASSES


@pytest.mark.parametrize("name", ["fuse", "rematerialise"])
def test_a_pass_can_be_switched_off(name: str) -> None:
    left = tuple(one for one in PASSES if one != name)
    assert PipelineConfig(clock="virtual", **{name: False}).passes == left
    assert name not in PipelineConfig(**{name: False}).passes


def test_streaming_needs_calls_that_something_travels_to() -> None:
    streaming = TensorConfig(streaming=True)
    with pytest.raises(ConfigError, match=r"^tensor\.streaming = true needs tensor\.backend=local .*clock=virtual"):
        PipelineConfig(tensor=streaming)
    assert PipelineConfig(clock="virtual", tensor=streaming).tensor.streaming
    assert PipelineConfig(tensor=TensorConfig(backend="local", streaming=True)).tensor.streaming


def test_a_path_becomes_text() -> None:
    assert PipelineConfig(partition=Path("parts/four")) == PipelineConfig(partition="parts/four")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"servers": 0}, "servers must be ≥ 1, got 0"),
        ({"servers": 2.0}, "servers must be a whole number ≥ 1, got 2.0"),
        ({"intervals": 0}, "intervals must be ≥ 1, got 0"),
        ({"intervals": True}, "intervals must be a whole number ≥ 1, got true"),
        ({"intervals": None}, "intervals must be a whole number ≥ 1, got null"),
        ({"mode": "asynch"}, "mode must be one of no-pipe, pipe, async, got 'asynch' (did you mean async?)"),
        ({"mode": None}, "mode must be one of no-pipe, pipe, async, got null"),
        ({"mode": "async", "staleness": -1}, "staleness must be ≥ 0, got -1"),
        ({"staleness": 1}, "staleness = 1 needs pipeline.mode=async, got pipe: change one of them"),
        (
            {"mode": "no-pipe", "staleness": 0},
            "staleness = 0 needs pipeline.mode=async, got no-pipe: change one of them",
        ),
        (
            {"update": "per_interval"},
            "update = per_interval needs pipeline.mode=async, got pipe, whose update is per_epoch",
        ),
        ({"mode": "async", "freshness": 1.5}, "freshness must be ≥ 0 and ≤ 1, got 1.5"),
        ({"mode": "async", "freshness": "all"}, "freshness must be a number ≥ 0 and ≤ 1, got 'all'"),
        ({"freshness": 0.5}, "freshness = 0.5 needs pipeline.mode=async, got pipe: change one of them"),
        ({"freshness_of": "server"}, "freshness_of = server needs pipeline.mode=async, got pipe: change one of them"),
        ({"smoothing": 0.5}, "smoothing = 0.5 needs pipeline.mode=async, got pipe: change one of them"),
        ({"mode": "async", "smoothing": 1.0}, "smoothing must be ≥ 0 and < 1, got 1.0"),
        (
            {"mode": "async", "freshness": 0, "freshness_of": "server"},
            "freshness_of = server needs pipeline.freshness > 0, which says how much of it has to be fresh: give both",
        ),
        (
            {"mode": "async", "predict_weights": "adam"},
            "predict_weights must be one of none, linear, optimizer, got 'adam'",
        ),
        ({"predict_weights": "none"}, "predict_weights = none needs pipeline.mode=async, got pipe: change one of them"),
        (
            {"mode": "async", "update": "per_interval", "predict_weights": "linear"},
            "predict_weights = linear needs pipeline.update=per_epoch, got per_interval, whose versions are no epochs: "
            "change one of them",
        ),
        ({"gradient_share": 0.8}, "gradient_share = 0.8 needs pipeline.mode=async, got pipe: change one of them"),
        ({"ahead_share": 0.5}, "ahead_share = 0.5 needs pipeline.mode=async, got pipe: change one of them"),
        ({"mode": "async", "gradient_share": 0}, "gradient_share must be > 0 and ≤ 1, got 0"),
        ({"stability_gate": False}, "stability_gate = False needs pipeline.mode=async, got pipe: change one of them"),
        (
            {"mode": "async", "update": "per_interval", "stability_gate": False},
            "stability_gate = False needs pipeline.update=per_epoch, got per_interval, which has no step of an epoch: "
            "change one of them",
        ),
        (
            {"mode": "async", "oscillation_limit": 1},
            "oscillation_limit is no longer a setting: pipeline.stability_gate takes its place: leave it out, or give "
            "pipeline.stability_gate=false where the limit was 1",
        ),
        ({"mode": "async", "ahead_share": -1}, "ahead_share must be ≥ 0 and ≤ 1, got -1"),
        (
            {"mode": "async", "staleness": 1, "update": "per_interval", "gradient_share": 0.8},
            "gradient_share = 0.8 needs pipeline.update=per_epoch, got per_interval, which has no step of an epoch: "
            "change one of them",
        ),
        (
            {"mode": "async", "update": "per_interval", "ahead_share": 0},
            "ahead_share = 0.0 needs pipeline.update=per_epoch, got per_interval, which has no step of an epoch: "
            "change one of them",
        ),
        (
            {"mode": "async", "staleness": 0, "gradient_share": 0.8},
            "gradient_share = 0.8 needs pipeline.staleness ≥ 1, got 0, with which whoever is late is waited for: "
            "change one of them",
        ),
        ({"mode": "async", "update": "each"}, "update must be one of per_epoch, per_interval, got 'each'"),
        (
            {"interval_step_scaling": False},
            "interval_step_scaling = false needs pipeline.update=per_interval: change one of them",
        ),
        (
            {"mode": "async", "interval_step_scaling": False},
            "interval_step_scaling = false needs pipeline.update=per_interval: change one of them",
        ),
        ({"mode": "async", "interval_step_scaling": 1}, "interval_step_scaling must be true or false, got 1"),
        ({"sync_every": 0}, "sync_every must be ≥ 1, got 0"),
        ({"parameter_servers": 0}, "parameter_servers must be ≥ 1, got 0"),
        ({"hosts": "process"}, "hosts must be one of inline, processes, ray, got 'process' (did you mean processes?)"),
        (
            {"hosts": "processes", "clock": "virtual"},
            "hosts = processes needs pipeline.clock=real, got virtual, which simulates servers in one process: change one "
            "of them",
        ),
        ({"clock": "wall"}, "clock must be one of real, virtual, got 'wall'"),
        (
            {"cluster": "large"},
            "cluster = large needs pipeline.clock=virtual, got real, or tensor.backend=local or emulator or aws or ray, "
            "which is billed by its prices: change one of them",
        ),
        (
            {"partitioner": "metiss"},
            "partitioner must be one of metis, ldg, range, random, got 'metiss' (did you mean metis?)",
        ),
        ({"balance": "rows"}, "balance must be one of vertices, edges, got 'rows'"),
        ({"partition": ""}, "partition must not be empty"),
        (
            {"partition": "parts", "partitioner": "ldg"},
            "partition is made already, so pipeline.partitioner says nothing: leave one of them out",
        ),
        (
            {"partition": "parts", "balance": "edges"},
            "partition is made already, so pipeline.balance says nothing: leave one of them out",
        ),
        ({"graph_threads": 0}, "graph_threads must be ≥ 1, got 0"),
        ({"edge_chunk": 0}, "edge_chunk must be ≥ 1, got 0"),
        ({"stale_price": 2.0}, "stale_price = 2.0 needs pipeline.mode=async, got pipe: change one of them"),
        ({"mode": "async", "stale_price": -1}, "stale_price must be ≥ 0, got -1"),
        ({"switch_margin": 0.1}, "switch_margin = 0.1 needs pipeline.mode=async, got pipe: change one of them"),
        ({"mode": "async", "switch_margin": 0.0}, "switch_margin must be > 0 and < 1, got 0.0"),
        ({"mode": "async", "switch_margin": float("nan")}, "switch_margin must be finite, got nan"),
    ],
)
def test_wrong_values_name_their_key(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PipelineConfig(**given)
    assert str(caught.value) == f"pipeline.{message}"
    assert caught.value.key == f"pipeline.{message.partition(' ')[0]}"


def test_an_unknown_cluster() -> None:
    with pytest.raises(ConfigError, match=r"^pipeline\.cluster cannot be used: .*'defalt': did you mean default\?"):
        PipelineConfig(clock="virtual", cluster="defalt")


def test_functions_of_aws_reach_servers_at_one_address_or_at_each_node_s() -> None:
    for hosts in ("inline", "processes"):
        with pytest.raises(ConfigError, match=r"tensor\.host must be the address by which functions find this machine"):
            PipelineConfig(hosts=hosts, tensor=TensorConfig(backend="aws"))
        assert (
            PipelineConfig(hosts=hosts, tensor=TensorConfig(backend="aws", host="10.0.0.1")).tensor.host == "10.0.0.1"
        )
    assert PipelineConfig(hosts="ray", tensor=TensorConfig(backend="aws")).tensor.host is None
    with pytest.raises(
        ConfigError, match=r"tensor\.host = 10\.0\.0\.1 is the address of one machine, .*: leave it out"
    ):
        PipelineConfig(hosts="ray", tensor=TensorConfig(backend="aws", host="10.0.0.1"))
