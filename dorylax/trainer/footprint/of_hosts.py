"""What the processes of a run hold in memory whose servers are hosts; nothing is compiled to know it."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import jax
import optax

from dorylax.graph.abstract import AbstractData
from dorylax.graph.data_shape import DataShape
from dorylax.graph.sharded_data import ShardedData
from dorylax.machine import Limit, cores, memory_limit, resident_bytes
from dorylax.memory.estimate import Elsewhere, Estimate
from dorylax.memory.hosts import Cut, Program, cutting, graph_server, libraries, parameter_server
from dorylax.memory.phases import LIBRARIES, Phase, Process, phases
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.spec import MemberSpec, spread
from dorylax.pipeline.prepare import prepare, prepare_evaluation
from dorylax.pipeline.resources import Resources
from dorylax.program.model.base import ModelParts
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.step.objective import Objective


def estimate_hosts(
    config: PipelineConfig,
    parts: ModelParts,
    data: AbstractData,
    shape: DataShape,
    optimizer: optax.GradientTransformation,
    *,
    shards: ShardedData | None,
    row_normalise: bool,
) -> Estimate:
    """What the hosts and the driver would hold: of hosts on this machine together, of those on a cluster each by itself.

    Args:
        config: of the pipeline.
        parts: the model.
        data: shapes of the data set.
        shape: likewise, as the model reads it.
        optimizer: an optax transformation.
        shards: those of the hosts; None where the driver has the data set, and writes them.
        row_normalise: whether it then scales the features.

    Raises:
        SplitError: the model cannot be split.
    """
    here = config.hosts != "ray"
    hosts = spread(config.servers, config.parameter_servers, config.num_hosts)
    processes = len(hosts) + 1 if here else 1
    spec = DataSpec.of(data, parts.keywords)
    loss = Objective.of(None, data).rows
    program = Program(
        prepare(parts, spec, config.passes, loss=loss, stale_price=config.expected_stale_price).plan,
        prepare_evaluation(parts, spec, config.passes).plan,
    )
    if shards is None:
        cut = Cut.at_random(shape, config.servers, config.intervals)
    else:
        cut = Cut.of(shards.summary.shards)
    resources = Resources.of_host(config, config.ray.cpus or cores())
    parameters = _size(parts.params) + _size(jax.eval_shape(optimizer.init, parts.params))
    servers = {
        "graph": graph_server(shape, cut, program, config, resources),
        "parameter": parameter_server(parameters, config),
    }
    kinds = Counter(_composition(host) for host in hosts)
    of_kinds = {kind: _host(kind, servers, libraries(processes)) for kind in kinds}

    process = Process(resident_bytes(), 0)
    base = {LIBRARIES: process.libraries}
    before, holds = (), base
    if shards is None:
        (load, *_) = phases(shape, process, community=False, row_normalise=row_normalise, compiled=None)
        before, holds = (load, Phase("cut", base | cutting(shape))), base | {"data set": sum(shape.copy().values())}
    driver = Phase("driver", holds)
    if not here:
        room = None if config.ray.memory is None else Limit(config.ray.memory, "ray")
        elsewhere = Elsewhere(tuple(of_kinds.values()), room)
        return Estimate(shape, (*before, driver), memory_limit(), process, elsewhere=elsewhere)
    all_of = {_many(kinds[kind], phase.name): kinds[kind] * phase.total for kind, phase in of_kinds.items()}
    together = Phase("all processes", {**all_of, "driver": driver.total})
    return Estimate(shape, (*before, *of_kinds.values(), driver, together), memory_limit(), process)


def _composition(host: tuple[MemberSpec, ...]) -> tuple[int, int]:
    """How many graph servers and parameter servers live in it."""
    graph = sum(member.role == "graph" for member in host)
    return graph, len(host) - graph


def _host(kind: tuple[int, int], servers: dict[str, dict[str, int]], base: int) -> Phase:
    """A host of so many graph servers and parameter servers."""
    found = {LIBRARIES: base}
    for count, role in zip(kind, servers, strict=True):
        found |= {name: count * size for name, size in servers[role].items() if count}
    words = [_many(count, f"{role} server") for count, role in zip(kind, servers, strict=True) if count]
    return Phase(" and ".join(words), found)


def _many(count: int, name: str) -> str:
    return name if count == 1 else f"{count} × {name}"


def _size(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
