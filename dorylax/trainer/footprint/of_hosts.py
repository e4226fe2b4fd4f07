"""Estimates the memory of a run's processes if its servers are hosts, and checks it before they start."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import optax

from dorylax.errors import RunError
from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.graph.sharded_data import ShardedData
from dorylax.machine import Limit, cores, memory_limit, resident_bytes
from dorylax.memory.estimate import Elsewhere, Estimate
from dorylax.memory.hosts import Cut, Program, cutting, graph_server, libraries, parameter_server, shared_by
from dorylax.memory.phases import LIBRARIES, Phase, Process, phases
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.spec import MemberSpec, spread
from dorylax.pipeline.resources import Resources
from dorylax.program.model.base import ModelParts
from dorylax.trainer.footprint.of_trainer import tree_bytes


def estimate_hosts(
    config: PipelineConfig,
    program: Program,
    parameters: int,
    shape: DataShape,
    shards: ShardedData | None,
    *,
    loads: bool = True,
    row_normalise: bool = False,
) -> Estimate:
    """Estimate the memory of hosts and driver without compiling: together on this machine, or each by itself on a cluster.

    Args:
        config: Configuration of the pipeline.
        program: Plans that graph servers run.
        parameters: Bytes of the parameters and of the optimizer's state.
        shape: Shape of the data set.
        shards: Existing shards; None: the driver has the data set and writes shards.
        loads: Whether the driver has yet to load it.
        row_normalise: Whether its features are then scaled.
    """
    here = config.hosts != "ray"
    hosts = Counter(map(_composition, spread(config.servers, config.parameter_servers, config.num_hosts)))
    processes = hosts.total() + 1 if here else 1
    cut = Cut.at_random(shape, config.servers, config.intervals) if shards is None else Cut.of(shards.summary.shards)
    resources = Resources.of_host(config, config.ray.cpus or cores())
    servers = {
        "graph": graph_server(shape, cut, program, config, resources),
        "parameter": parameter_server(parameters, config),
    }
    kinds = {kind: _host(kind, servers, libraries(processes)) for kind in hosts}
    process = Process(resident_bytes(), 0)
    more = None if shards is not None else cutting(shape, cut, config)
    before, data = _driver(shape, process, more, loads=loads, row_normalise=row_normalise)
    driver = Phase("driver", {LIBRARIES: shared_by(process.libraries, processes), **data})
    if not here:
        room = None if config.ray.memory is None else Limit(config.ray.memory, "ray")
        elsewhere = Elsewhere(tuple(kinds.values()), room)
        return Estimate(shape, (*before, driver), memory_limit(), process, elsewhere=elsewhere)
    together = {_many(hosts[kind], phase.name): hosts[kind] * phase.total for kind, phase in kinds.items()}
    running = Phase("all processes", {**together, "driver": driver.total})
    return Estimate(shape, (*before, *kinds.values(), driver, running), memory_limit(), process)


def check_hosts(
    config: PipelineConfig,
    program: Program,
    parts: ModelParts,
    optimizer: optax.GradientTransformation,
    data: Dataset | ShardedData,
) -> None:
    """Refuse hosts that do not fit into memory, before they start; arguments as for `estimate_hosts`.

    Raises:
        RunError: All processes together need more than there is, or one on a node more than `ray.memory`.
    """
    shards = data if isinstance(data, ShardedData) else None
    shape = data.summary.shape if isinstance(data, ShardedData) else DataShape.of(data)
    found = estimate_hosts(config, program, parameter_bytes(parts, optimizer), shape, shards, loads=False)
    if not found.fits:
        raise RunError(found.refusal(()))


def parameter_bytes(parts: ModelParts, optimizer: optax.GradientTransformation) -> int:
    """Bytes of the parameters and of the optimizer's state."""
    return tree_bytes((parts.params, jax.eval_shape(optimizer.init, parts.params)))


def _driver(
    shape: DataShape, process: Process, more: dict[str, int] | None, *, loads: bool, row_normalise: bool
) -> tuple[tuple[Phase, ...], dict[str, int]]:
    """Return the driver's phases before hosts start, and its remaining data; `more` is held while it cuts shards."""
    if more is None:
        return (), {}
    base: dict[str, Any] = {LIBRARIES: process.libraries}
    data = {"data set": sum(shape.copy().values())} if loads else {}  # otherwise already in memory
    cut = Phase("cut", base | data | more)
    if not loads:
        return (cut,), data
    load, *_ = phases(shape, process, community=False, row_normalise=row_normalise, compiled=None)
    return (load, cut), data


def _composition(host: tuple[MemberSpec, ...]) -> tuple[int, int]:
    """Return the numbers of a host's graph servers and parameter servers."""
    graph = sum(member.role == "graph" for member in host)
    return graph, len(host) - graph


def _host(kind: tuple[int, int], servers: dict[str, dict[str, int]], base: int) -> Phase:
    """Return the memory of a host with so many graph servers and parameter servers."""
    found = {LIBRARIES: base}
    for count, role in zip(kind, servers, strict=True):
        found |= {name: count * size for name, size in servers[role].items() if count}
    words = [_many(count, f"{role} server") for count, role in zip(kind, servers, strict=True) if count]
    return Phase(" and ".join(words), found)


def _many(count: int, name: str) -> str:
    return name if count == 1 else f"{count} × {name}"
