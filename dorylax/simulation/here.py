"""Scenarios of runs on the real clock whose parts are threads and processes of one measured machine."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

from dorylax.calibration.reference import PROCESSES, REFERENCES, THREADS, WORKERS, SmallRun
from dorylax.config import RunConfig
from dorylax.cost import Cluster
from dorylax.cost.one_machine import OneMachine
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.resources import Resources, graph_hosts
from dorylax.settings.errors import ConfigError
from dorylax.simulation.inputs import Inputs
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError

_ROUNDS = 20
_NEARLY = 0.01


class Slowdown(NamedTuple):
    """Ratio of the time of tasks within a pipeline to that of the same work alone (`OneMachine`).

    Attributes:
        graph: Ratio for graph tasks.
        tensor: Ratio for tensor tasks or calls of workers.
        message_wait: Additional seconds of a message between processes.
    """

    graph: float = 1.0
    tensor: float = 1.0
    message_wait: float = 0.0


NO_SLOWDOWN = Slowdown()


def here(name: str, settings: dict[str, Any], cluster: Cluster) -> Scenario:
    """Return the scenario of a run on this machine.

    Args:
        name: Name of the scenario.
        settings: Settings of the configuration, as for `dorylax train`.
        cluster: Its graph server is this machine, as measured by `dorylax calibrate`.

    Raises:
        ConfigError: A setting is wrong, parts of the run are on other machines, or the machine was not measured.
        ScenarioError: There is no pipeline.
    """
    config = RunConfig.resolve(settings)
    if config.pipeline is None:
        raise ScenarioError(f"{name} has no pipeline: give a setting of it")
    slow = NO_SLOWDOWN if cluster.measured is None else slowdown(cluster, config.pipeline)
    return _scenario(name, config, cluster, slow)


def slowdown(cluster: Cluster, pipeline: PipelineConfig) -> Slowdown:
    """Return the slowdown of a run's tasks on a measured machine, from the calibration's reference runs."""
    found = _slowdown(cluster, THREADS if pipeline.hosts == "inline" else PROCESSES)
    if pipeline.tensor.backend == "inline":
        return found
    return found._replace(tensor=_slowdown(cluster, WORKERS).tensor)


@functools.cache
def _slowdown(cluster: Cluster, of: SmallRun) -> Slowdown:
    """Return the slowdown with which the simulation of a reference run takes the measured mean times.

    Tasks that slow each other down meet more others if they are longer. So the run is simulated again with each result, and
    half of the error is corrected each time.
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


def on_one_machine(
    pipeline: PipelineConfig, cluster: Cluster, slowdown: Slowdown = NO_SLOWDOWN
) -> tuple[PipelineConfig, Cluster]:
    """Return a pipeline on the virtual clock, and the cluster on which it takes as long as the given one really takes.

    Args:
        pipeline: The real pipeline; tensor tasks `inline` or in `local` workers, servers in one process or in processes.
        cluster: Its graph server is the machine (docs/clock.md, "Measuring a machine").
        slowdown: Slowdown of its tasks.

    Raises:
        ConfigError: The machine was not measured, or parts of the run are on others.
    """
    tensor, threads, measured = pipeline.tensor, cluster.graph_server.threads, cluster.measured
    if measured is None:
        raise ConfigError.of(
            "pipeline.cluster", f"{cluster.name} is no machine that was measured: give the file of `dorylax calibrate`"
        )
    if tensor.backend not in ("inline", "local"):
        raise ConfigError.of("tensor.backend", f"must be inline or local on one machine, got {tensor.backend}")
    if pipeline.hosts == "ray":
        raise ConfigError.of("pipeline.hosts", "must be inline or processes on one machine, got ray")
    inline, processes = tensor.backend == "inline", pipeline.hosts == "processes"
    if processes:
        found = Resources.of_host(pipeline, threads)
        found = found._replace(workers=found.workers * pipeline.servers)
    else:
        found = Resources.of(pipeline, None, threads)
    alone = threads // graph_hosts(pipeline) if processes else threads
    machine = OneMachine(
        tensor_threads=max(1, alone) if inline else 1,
        workers=found.workers,
        processes=processes,
        request_seconds=tensor.latency,
        link_bandwidth=tensor.bandwidth or 0.0,
        graph_slowdown=slowdown.graph,
        tensor_slowdown=slowdown.tensor,
        message_wait=slowdown.message_wait,
    )
    around, inside = (measured.at("task", part=part).median for part in ("around", "inside"))
    call = measured.at("task", part="tensor") if inline else measured.at("call", transport="ipc")
    function = dataclasses.replace(
        cluster.function,
        overhead=around + slowdown.tensor * call.median,
        lone_bandwidth=measured.at("fetch", transport="ipc").median / slowdown.tensor,
        cold_start=0.0,
        variation=cluster.graph_server.variation,
    )
    server = dataclasses.replace(cluster.graph_server, overhead=around + slowdown.graph * inside)
    virtual = {
        "backend": "inline",
        "workers": None,
        "slots": found.slots,
        "relaunches": 0 if inline else tensor.relaunches,
        "latency": 0.0,
        "latency_sigma": 0.0,
        "bandwidth": None,
        "transport": "ipc",
    }
    config = pipeline.model_copy(
        update={
            "clock": "virtual",
            "hosts": "inline",
            "num_hosts": None,
            "graph_threads": found.graph_threads,
            "tensor": tensor.model_copy(update=virtual),
        }
    )
    shared = dataclasses.replace(
        cluster,
        contention=True,
        graph_server=server,
        functions=found.slots,
        function=function,
        one_machine=machine,
    )
    return config, shared
