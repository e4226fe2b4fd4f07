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
        ({"servers": 2.0}, "servers must be a whole number ≥ 1, got 2.0"),
        ({"stability_gate": False}, "stability_gate = False needs pipeline.mode=async, got pipe: change one of them"),
        (
            {"mode": "async", "update": "per_interval", "stability_gate": False},
            "stability_gate = False needs pipeline.update=per_epoch, got per_interval, which has no step of an epoch: "
            "change one of them",
        ),
    ],
)
def test_wrong_arguments_name_their_key(given: dict[str, Any], message: str) -> None:
    """As settings do: the other refusals are in tests/golden/snapshots/run.txt."""
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
