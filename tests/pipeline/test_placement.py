"""Placements in runs: no bit of the weights depends on them, decisions follow measurements, and resumed runs agree."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import yaml
from support import pipelines
from support.pipelines import messy_data, one_compilation

from dorylax.cost.placement import Room, StageTimes
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.placement import Placement
from dorylax.serverless.config import PlacementKind, TensorConfig

GRAPH = messy_data(32, 120)
compilation = one_compilation(32, 40)
# Servers so slow that functions pay, although a call takes 10 ms on top.
SLOW = {"name": "r5.xlarge", "threads": 2, "flops": 1e4, "memory_bandwidth": 1e5}


def cluster(folder: Path, **described: Any) -> str:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump({"name": "slow", "graph_server": SLOW, **described}))
    return str(file)


def config(placement: PlacementKind, **options: Any) -> PipelineConfig:
    given = {"servers": 2, "intervals": 2, "clock": "virtual", "edge_chunk": 40}
    return PipelineConfig(**{**given, **options}, tensor=TensorConfig(placement=placement, **options.pop("tensor", {})))


def trained(model: str, how: PipelineConfig, epochs: int) -> tuple[list[bytes], list[int]]:
    """The weights after all epochs, and calls of functions by epoch."""
    with pipelines.running(model, GRAPH, how) as run:
        run.barrier(epochs)
        calls, weights = [], []
        for _ in range(epochs):
            before = run.calls.requests
            record = run.run_epoch()
            calls.append(run.calls.requests - before)
            weights = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(record.params)]
    return weights, calls


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_weights_do_not_depend_on_the_placement(model: str, tmp_path: Path) -> None:
    """`gat` has stages of edges, which auto may send to functions, too."""
    described = cluster(tmp_path)
    found = {kind: trained(model, config(kind, cluster=described), 3) for kind in ("auto", "servers", "functions")}
    assert found["servers"][0] == found["functions"][0] == found["auto"][0]
    assert not any(found["servers"][1])
    assert all(found["functions"][1])
    assert all(found["auto"][1])


@pytest.mark.parametrize("placement", ["servers", "auto"])
def test_weights_are_those_of_worker_processes(placement: PlacementKind) -> None:
    """On the real clock auto tries both places of each stage."""
    given = {"clock": "real", "parameter_servers": 1}
    local = {"backend": "local", "workers": 1}
    wanted, _ = trained("gcn", PipelineConfig(servers=2, intervals=2, edge_chunk=40, tensor=TensorConfig(**local)), 3)
    how = PipelineConfig(
        servers=2, intervals=2, edge_chunk=40, **given, tensor=TensorConfig(placement=placement, **local)
    )
    found, calls = trained("gcn", how, 3)
    assert found == wanted
    assert any(calls) == (placement == "auto")


def test_without_functions_that_pay_all_stages_stay() -> None:
    assert not any(trained("gcn", config("auto"), 2)[1])


def crowded(folder: Path) -> PipelineConfig:
    """Functions that are far slower together than their description says of one: found out by measuring."""
    return config("auto", cluster=cluster(folder, contention=True, function={"lone_bandwidth": 2e3, "cold_start": 0.0}))


def test_measurements_change_the_decision(tmp_path: Path) -> None:
    calls = trained("gcn", crowded(tmp_path), 6)[1]
    assert calls[:3] == [16, 16, 16]
    assert calls[3:] == [4, 2, 2]  # of one server, one stage still pays


@pytest.mark.parametrize(("slow", "stays"), [(1, True), (2, False)])
def test_one_slow_epoch_keeps_no_stage_from_functions(slow: int, stays: bool) -> None:
    """Late cold starts, say. The time model then stands in for the epochs that are not measured yet."""
    stage = SimpleNamespace(index=0, kind="stage")
    model = SimpleNamespace(
        stages={0: StageTimes(calls=4, server_seconds=1.0, function_seconds=0.5, function_dollars=1e-6)},
        room=Room(threads=1, slots=4, rent=0.0),
        graph_seconds=1.0,
        weight=0.0,
        synchronous=True,
        settling=0,
        dollars=lambda _: 1e-6,
    )
    placement, there = Placement(model), []  # type: ignore[arg-type]
    for epoch in range(slow + 3):
        there.append(placement.on_functions(stage, epoch, 1, now=float(epoch), synchronous=True))  # type: ignore[arg-type]
        placement.measured(stage, 9.0 if 1 <= epoch <= slow else 0.5, on_functions=there[-1])  # type: ignore[arg-type]
    assert there == [True] * (slow + 1) + [stays] * 2


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_resumed_run_decides_as_an_uninterrupted_one(stop: int, tmp_path: Path) -> None:
    def spans(first: int, last: int, **options: Any) -> tuple[list[Any], Any, Any]:
        seen: list[Any] = []
        with pipelines.running("gcn", GRAPH, crowded(tmp_path), epoch=first, trace=seen.append, **options) as run:
            for epoch in range(first, last):
                run.barrier(epoch + 1)
                record = run.run_epoch()
            saved = run.save()
        return [tuple(span) for span in seen if span.epoch >= stop], record, saved

    whole, *_ = spans(0, 6)
    _, record, saved = spans(0, stop)
    trees = jax.tree.map(np.asarray, (record.params, record.opt_state, record.state))
    assert spans(stop, 6, trees=trees, saved=saved)[0] == whole
