"""What a run would take on one machine, whose parts share it: its configuration, as the virtual clock has it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from dorylax.cost import Cluster
from dorylax.cost.one_machine import OneMachine
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.resources import Resources, graph_hosts
from dorylax.settings.errors import ConfigError


class Slowdown(NamedTuple):
    """How many times as long tasks take within a pipeline as the same work by itself: see `OneMachine`.

    Attributes:
        graph, tensor: of the run's graph tasks, and of its tensor tasks or calls of workers.
        message_wait: seconds that a message between processes takes besides.
    """

    graph: float = 1.0
    tensor: float = 1.0
    message_wait: float = 0.0


NO_SLOWDOWN = Slowdown()


def on_one_machine(
    pipeline: PipelineConfig, cluster: Cluster, slowdown: Slowdown = NO_SLOWDOWN
) -> tuple[PipelineConfig, Cluster]:
    """A pipeline on the virtual clock, and the cluster on which it takes what the given one takes on the real clock.

    Args:
        pipeline: as it would run; tensor tasks `inline` or in `local` workers, servers in one process or in processes.
        cluster: whose graph server the machine is (docs/clock.md, "Measuring a machine").
        slowdown: of its tasks.

    Raises:
        ConfigError: the machine was not measured, or parts of the run are on others.
    """
    tensor, threads = pipeline.tensor, cluster.graph_server.threads
    if cluster.measured is None:
        raise ConfigError.of(
            "pipeline.cluster", f"{cluster.name} is no machine that was measured: give the file of `dorylax calibrate`"
        )
    if tensor.backend not in ("inline", "local"):
        raise ConfigError.of("tensor.backend", f"must be inline or local on one machine, got {tensor.backend}")
    if pipeline.hosts == "ray":
        raise ConfigError.of("pipeline.hosts", "must be inline or processes on one machine, got ray")
    processes, measured = pipeline.hosts == "processes", cluster.measured
    if processes:
        found = Resources.of_host(pipeline, threads)
        found = found._replace(workers=found.workers * pipeline.servers)
    else:
        found = Resources.of(pipeline, None, threads)
    here = tensor.backend == "inline"
    alone = threads // graph_hosts(pipeline) if processes else threads
    machine = OneMachine(
        tensor_threads=max(1, alone) if here else 1,
        workers=found.workers,
        processes=processes,
        request_seconds=tensor.latency,
        link_bandwidth=tensor.bandwidth or 0.0,
        graph_slowdown=slowdown.graph,
        tensor_slowdown=slowdown.tensor,
        message_wait=slowdown.message_wait,
    )
    around = measured.at("task", part="around").median
    inside = measured.at("task", part="tensor") if here else measured.at("call", transport="ipc")
    slow = machine.tensor_slowdown
    function = dataclasses.replace(
        cluster.function,
        overhead=around + slow * inside.median,
        lone_bandwidth=measured.at("fetch", transport="ipc").median / slow,
        cold_start=0.0,
        variation=cluster.graph_server.variation,
    )
    of_server = around + machine.graph_slowdown * measured.at("task", part="inside").median
    server = dataclasses.replace(cluster.graph_server, overhead=of_server)
    virtual = {
        "backend": "inline",
        "workers": None,
        "slots": found.slots,
        "relaunches": 0 if here else tensor.relaunches,
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
    return config, dataclasses.replace(
        cluster,
        contention=True,
        graph_server=server,
        functions=found.slots,
        function=function,
        one_machine=machine,
    )
