"""What a Ray cluster decides for a run that has servers or workers on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.connection import connected
from dorylax.ray_cluster.nodes import nodes_of


@contextlib.contextmanager
def on_cluster(config: PipelineConfig) -> Iterator[PipelineConfig]:
    """Connects this process to the cluster of a run; without servers or workers on Ray it does nothing.

    Args:
        config: of the pipeline.

    Yields:
        The configuration with what the cluster decides: its address, so that all processes of the run find the same one,
        and where none is given the number of workers.

    Raises:
        ConfigError: Ray is not installed, or there is no such cluster.
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
    """How many workers take half of a cluster, or less where servers leave less; as many for each server that is on Ray.

    Args:
        config: of the pipeline.
        cpus: of all nodes together.
    """
    room = cpus / 2
    if config.hosts == "ray" and config.ray.cpus is not None:
        room = min(room, cpus - config.ray.cpus * (config.num_hosts or config.servers + config.parameter_servers))
    workers = int(room / (config.ray.worker_cpus or 1.0))
    if config.hosts != "inline":
        workers = workers // config.servers * config.servers
    return max(1, workers)


def cpus_of_workers(config: PipelineConfig) -> float:
    """CPUs that the workers of all hosts take of the cluster; 0 where they live elsewhere.

    Args:
        config: of the pipeline, as `on_cluster` gives it.
    """
    if config.tensor.backend != "ray":
        return 0.0
    assert config.tensor.workers is not None
    of_each = -(-config.tensor.workers // config.servers)
    return of_each * config.servers * config.ray.worker_cpus
