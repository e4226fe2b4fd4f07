"""Settings that a Ray cluster determines for a run with servers or workers on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.cluster import nodes_of
from dorylax.ray_cluster.connection import connected


@contextlib.contextmanager
def on_cluster(config: PipelineConfig) -> Iterator[PipelineConfig]:
    """Connect this process to the Ray cluster of a run; without servers or workers on Ray, do nothing.

    Args:
        config: Settings of the pipeline.

    Yields:
        The configuration with the address of the cluster, so that all processes of the run connect to the same one, and
        with the number of workers if none is configured.

    Raises:
        ConfigError: Ray is not installed, or the cluster does not exist.
    """
    if not config.on_ray:
        yield config
        return
    with connected(config.ray) as ray:
        address = ray.get_runtime_context().gcs_address
        decided = config.model_copy(update={"ray": config.ray.model_copy(update={"address": address})})
        if config.tensor.backend == "ray" and config.tensor.workers is None:
            cpus = sum(node.cpus for node in nodes_of(ray))
            tensor = config.tensor.model_copy(update={"workers": usual_workers(config, cpus)})
            decided = decided.model_copy(update={"tensor": tensor})
        yield decided


def usual_workers(config: PipelineConfig, cpus: int) -> int:
    """Return the number of workers that use half of a cluster, or the CPUs left by servers if fewer.

    With hosts outside this process, the number is a multiple of the number of servers if possible.

    Args:
        config: Settings of the pipeline.
        cpus: Total CPUs of all nodes.
    """
    room = cpus / 2
    if config.hosts == "ray" and config.ray.cpus is not None:
        room = min(room, cpus - config.ray.cpus * (config.num_hosts or config.servers + config.parameter_servers))
    workers = int(room / (config.ray.worker_cpus or 1.0))
    if config.hosts != "inline":
        workers = workers // config.servers * config.servers
    return max(1, workers)


def cpus_of_workers(config: PipelineConfig) -> float:
    """Return the number of cluster CPUs used by the workers of all hosts; 0 if workers do not run on Ray.

    Args:
        config: Settings of the pipeline, as yielded by `on_cluster`.
    """
    if config.tensor.backend != "ray":
        return 0.0
    assert config.tensor.workers is not None
    of_each = -(-config.tensor.workers // config.servers)
    return of_each * config.servers * config.ray.worker_cpus
