"""Scenarios of runs on the real clock, all parts of which share one machine that was measured."""

from __future__ import annotations

import functools
from typing import Any

from dorylax.calibration.reference import REFERENCE, WORKER
from dorylax.config import RunConfig
from dorylax.cost import Cluster
from dorylax.serverless.config import TensorConfig
from dorylax.simulation.one_machine import NO_SLOWDOWN, Slowdown, on_one_machine
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError


def here(name: str, settings: dict[str, Any], cluster: Cluster) -> Scenario:
    """A run of this machine.

    Args:
        name: what it is called.
        settings: of the configuration, as `dorylax train` would take them on the machine.
        cluster: whose graph server the machine is, as `dorylax calibrate` has measured it.

    Raises:
        ConfigError: a setting is wrong, parts of the run are on other machines, or the machine was not measured.
        ScenarioError: there is no pipeline.
    """
    config = RunConfig.resolve(settings)
    if config.pipeline is None:
        raise ScenarioError(f"{name} has no pipeline: give a setting of it")
    return _scenario(name, config, cluster, NO_SLOWDOWN if cluster.measured is None else slowdown(cluster))


@functools.cache
def slowdown(cluster: Cluster) -> Slowdown:
    """How much longer tasks take within a pipeline than the same work by itself: the calibration's reference runs say so.

    Args:
        cluster: of a measured machine.
    """
    measured = cluster.measured
    assert measured is not None
    around = measured.at("task", part="around").median

    def ratio(tasks: str, tensor: TensorConfig, resource: str) -> float:
        settings = {
            "data.name": "communities",
            "data.size": REFERENCE.size,
            "model.name": "gcn",
            "model.hidden_features": REFERENCE.hidden,
            "model.dropout": 0.5,
            "pipeline.mode": "no-pipe",
            "pipeline.intervals": REFERENCE.intervals,
            **{f"tensor.{key}": value for key, value in tensor.to_dict().items()},
        }
        found = simulate(_scenario("reference", RunConfig.resolve(settings), cluster, NO_SLOWDOWN))
        spans = [task for task in found.tasks if task.resource == resource]
        expected = sum(task.seconds for task in spans) / sum(task.number for task in spans) - around
        return measured.at("reference", tasks=tasks).median / expected

    here, worker = TensorConfig(), WORKER
    return Slowdown(ratio("graph", here, "graph"), ratio("tensor", here, "tensor"), ratio("call", worker, "tensor"))


def _scenario(name: str, config: RunConfig, cluster: Cluster, slow: Slowdown) -> Scenario:
    assert config.pipeline is not None
    pipeline, shared = on_one_machine(config.pipeline, cluster, slow)
    return Scenario(name, "functions", config.model_copy(update={"pipeline": pipeline}), None, shared)
