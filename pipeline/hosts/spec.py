"""Specifications of hosts in other processes, and the transport of a run."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pickle
import sys
from pathlib import Path
from typing import Any, Literal, final

import cloudpickle
import jax

from dorylax.clock import Clock
from dorylax.graph.sharded_data import ShardedData
from dorylax.metrics.evaluation import Evaluated, RowSums
from dorylax.net.keys import RunKeys
from dorylax.pipeline.hosts.messages import (
    AllowanceUpdate,
    Assembly,
    EpochReport,
    Evaluate,
    HostState,
    MemberSpec,
    RunState,
    Status,
)
from dorylax.pipeline.messages import Completed, PartsMessage, RowsMessage, Started, SumsMessage
from dorylax.pipeline.parameters.records import Pulled, Push, Step
from dorylax.pipeline.prepare import Job, Prepared, prepare
from dorylax.pipeline.staleness import Allowance
from dorylax.pipeline.transport.codec import Codec
from dorylax.pipeline.transport.zeromq import ZeroMqTransport
from dorylax.program.tracing.spec import DataSpec
from dorylax.store.arrays import Part

_TYPES = (
    *(RowsMessage, SumsMessage, PartsMessage, Started, Completed),
    *(Pulled, Push, Step),
    *(
        Status,
        AllowanceUpdate,
        Allowance,
        Assembly,
        MemberSpec,
        RunState,
        HostState,
        EpochReport,
        Evaluate,
        Evaluated,
        Part,
    ),
)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class RunSpec(Job):
    """Settings shared by all hosts of a run.

    Attributes:
        spec: Specification of the data.
        shards: Files of graph servers.
        sums: Reported sums of evaluations; None: hosts do not evaluate.
        sizes: Rows per call of a stage: vertices, edges.
        jax: Settings of JAX, keyed by setting.
        keys: Keys of the run, including the servers' secret.
        transport: Kind of transport between hosts.
        host: For tcp: address of the interface to listen on; on a Ray cluster the address of the node.
        sockets: For ipc: folder of the socket files. The driver removes it.
        traces: Whether hosts send spans to the driver.
        log_level: Level of the logger `dorylax` in the driver.
    """

    spec: DataSpec
    shards: ShardedData
    sums: RowSums | None
    sizes: tuple[int, int]
    jax: dict[str, Any]
    keys: RunKeys
    transport: Literal["ipc", "tcp"] = "ipc"
    host: str = ""
    sockets: Path | None = None
    traces: bool = False
    log_level: int = logging.WARNING

    @functools.cached_property
    def prepared(self) -> Prepared:
        """Plan of the model and its functions, equal on every host."""
        config = self.config
        return prepare(self.parts, self.spec, config.passes, loss=self.loss, stale_price=config.expected_stale_price)

    @functools.cached_property
    def evaluation(self) -> Prepared:
        """Plan and functions of the exact forward pass, equal on every graph server."""
        return prepare(self.parts, self.spec, self.config.passes, loss=None, workers=False)

    def open_transport(self, clock: Clock) -> ZeroMqTransport:
        """Create the transport of this process, on the loop of its clock."""
        return ZeroMqTransport(
            self.keys, self.transport, host=self.host, folder=self.sockets, codec=self.codec(), spawn=clock.spawn
        )

    def codec(self) -> Codec:
        """Return the codec of messages between hosts."""
        params = jax.tree.structure(self.parts.params)
        trees = {
            "params": params,
            "gradients": params,
            "opt_state": jax.tree.structure(jax.eval_shape(self.optimizer.init, self.parts.params)),
            "state": jax.tree.structure(self.parts.state),
        }
        return Codec(_TYPES, trees)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class HostSpec:
    """Specification of one host. `Assembly` has its servers, which may change with each generation.

    Attributes:
        run: Settings shared by all hosts.
        number: Number of the host.
        name: Name in messages: the servers of the host at the start of the run.
    """

    run: RunSpec
    number: int
    name: str

    def to_bytes(self) -> bytes:
        """Serialize for a private channel. The bytes hold secrets, and reading them runs code."""
        content: bytes = cloudpickle.dumps((sys.path, self.run.jax, cloudpickle.dumps(self)))
        return content

    @classmethod
    def from_bytes(cls, content: bytes) -> HostSpec:
        """Deserialize `to_bytes`. Applies the sender's import path and JAX settings before it creates modules and arrays."""
        places, settings, inner = pickle.loads(content)
        sys.path.extend(place for place in places if place not in sys.path)
        for name, value in settings.items():
            jax.config.update(name, value)
        spec = pickle.loads(inner)
        assert isinstance(spec, cls)
        return spec


def spread(servers: int, parameter_servers: int, hosts: int | None) -> list[tuple[MemberSpec, ...]]:
    """Assign servers to hosts.

    Args:
        servers: Number of graph servers.
        parameter_servers: Number of parameter servers.
        hosts: Number of hosts, which receive servers of both kinds in turn; None: one host per server.
    """
    graph = [MemberSpec("graph", server) for server in range(servers)]
    parameters = [MemberSpec("parameter", server) for server in range(parameter_servers)]
    if hosts is None:
        return [(member,) for member in (*graph, *parameters)]
    return [(*graph[host::hosts], *parameters[host::hosts]) for host in range(hosts)]
