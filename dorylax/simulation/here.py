"""Scenarios of runs on the real clock, all parts of which share one machine that was measured."""

from __future__ import annotations

import functools
import math
from typing import Any

from dorylax.calibration.reference import PROCESSES, REFERENCES, THREADS, WORKERS
from dorylax.calibration.small_runs import Small
from dorylax.config import RunConfig
from dorylax.cost import Cluster
from dorylax.pipeline.config import PipelineConfig
from dorylax.simulation.inputs import Inputs
from dorylax.simulation.one_machine import NO_SLOWDOWN, Slowdown, on_one_machine
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError

_ROUNDS = 20
_NEARLY = 0.01


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
    slow = NO_SLOWDOWN if cluster.measured is None else slowdown(cluster, config.pipeline)
    return _scenario(name, config, cluster, slow)


def slowdown(cluster: Cluster, pipeline: PipelineConfig) -> Slowdown:
    """How much longer tasks of a run take than the same work by itself: the calibration's reference runs say so.

    Args:
        cluster: of a measured machine.
        pipeline: of the run.
    """
    found = _slowdown(cluster, THREADS if pipeline.hosts == "inline" else PROCESSES)
    if pipeline.tensor.backend == "inline":
        return found
    return found._replace(tensor=_slowdown(cluster, WORKERS).tensor)


@functools.cache
def _slowdown(cluster: Cluster, of: Small) -> Slowdown:
    """With which a reference run's tasks take on average what was measured.

    Where tasks slow each other down, as those of processes do, longer ones meet more others: so the run is simulated again
    with what was found, and half of what is missing is put right, until nearly nothing is.
    """
    measured = cluster.measured
    assert measured is not None
    around = measured.at("task", part="around").median
    settings = {
        "data.name": "communities",
        "data.size": of.size,
        "model.name": "gcn",
        "model.hidden_features": of.hidden,
        "model.dropout": 0.5,
        **{f"pipeline.{key}": value for key, value in of.settings.items()},
        **{f"tensor.{key}": value for key, value in of.tensor.to_dict().items()},
    }
    config, inputs, slow = RunConfig.resolve(settings), Inputs(), NO_SLOWDOWN
    for _ in range(_ROUNDS):
        tasks = simulate(_scenario("reference", config, cluster, slow), inputs=inputs).tasks
        errors = []
        for name, reference in REFERENCES.items():
            if reference.of != of:
                continue
            spans = [one for one in tasks if one.resource == reference.resource]
            expected = sum(task.seconds for task in spans) / sum(task.number for task in spans)
            taken = measured.at("reference", tasks=name).median
            if reference.resource == "network":
                missing = (taken - expected) / 2
                slow = slow._replace(message_wait=max(0.0, slow.message_wait + missing))
            else:
                expected -= around
                key = reference.resource
                slow = slow._replace(**{key: getattr(slow, key) * math.sqrt(taken / expected)})
            errors.append(abs(taken / expected - 1))
        if max(errors) < _NEARLY:
            break
    return slow


def _scenario(name: str, config: RunConfig, cluster: Cluster, slow: Slowdown) -> Scenario:
    assert config.pipeline is not None
    pipeline, shared = on_one_machine(config.pipeline, cluster, slow)
    return Scenario(name, "functions", config.model_copy(update={"pipeline": pipeline}), None, shared)
