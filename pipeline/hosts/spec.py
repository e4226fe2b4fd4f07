"""What a host in another process is made of, and the codec that all processes of a run share."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pickle
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import cloudpickle
import jax
import optax

from dorylax.graph.sharded_data import ShardedData
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.evaluation import Evaluated, RowSums
from dorylax.pipeline.hosts.messages import (
    Assembly,
    Beginning,
    Evaluate,
    News,
    Report,
    Standing,
    Told,
    Weights,
    Worked,
)
from dorylax.pipeline.messages import PartsMessage, RowsMessage, Started, SumsMessage, Walked
from dorylax.pipeline.parameters.messages import Arrived, Complete, Pulled, Push, Update
from dorylax.pipeline.prepare import Prepared, PreparedPlan, prepare, prepare_evaluation
from dorylax.pipeline.staleness import Allowance
from dorylax.pipeline.transport.codec import Codec
from dorylax.program.model.base import ModelParts
from dorylax.program.model.loss import RowFunction
from dorylax.program.tracing.spec import DataSpec
from dorylax.runs.parts import Part
from dorylax.serverless.data.keys import RunKeys

_TYPES = (
    *(RowsMessage, SumsMessage, PartsMessage, Started, Walked),
    *(Pulled, Push, Complete, Arrived, Update),
    *(News, Told, Allowance, Assembly, Standing, Weights, Beginning, Report, Worked, Evaluate, Evaluated, Part),
)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class RunSpec:
    """What all hosts of a run know.

    Attributes:
        parts: the model.
        loss: `(output, labels) -> [V]`.
        spec: of the data.
        optimizer: an optax transformation.
        config: how to run.
        seed: of dropout and latencies.
        shards: the files of graph servers.
        sums: what evaluations report; None: nothing evaluates.
        sizes: rows of each call of a stage: vertices, edges.
        jax: settings of JAX, by name.
        keys: of the run, the servers' secret among them.
        transport: how hosts talk.
        host: of tcp: the address of the interface to listen on; on a Ray cluster that of the process's node.
        sockets: of ipc: the folder of the sockets' files, which the driver removes, whatever becomes of hosts.
        traces: whether the driver is told of spans.
        log_level: of the logger `dorylax`, as in the driver.
    """

    parts: ModelParts
    loss: RowFunction
    spec: DataSpec
    optimizer: optax.GradientTransformation
    config: PipelineConfig
    seed: int
    shards: ShardedData
    sums: RowSums | None
    sizes: tuple[int, int]
    jax: dict[str, Any]
    keys: RunKeys
    transport: Literal["ipc", "tcp"]
    host: str = "127.0.0.1"
    sockets: Path | None = None
    traces: bool = False
    log_level: int = logging.WARNING

    @functools.cached_property
    def prepared(self) -> Prepared:
        """The plan of the model and its functions, as every host makes them."""
        config = self.config
        return prepare(self.parts, self.spec, config.passes, loss=self.loss, stale_price=config.expected_stale_price)

    @functools.cached_property
    def evaluation(self) -> PreparedPlan:
        """Those of its exact forward pass, as every graph server makes them."""
        return prepare_evaluation(self.parts, self.spec, self.config.passes)

    def codec(self) -> Codec:
        """Of the messages between hosts."""
        params = jax.tree.structure(self.parts.params)
        trees = {
            "params": params,
            "gradients": params,
            "opt_state": jax.tree.structure(jax.eval_shape(self.optimizer.init, self.parts.params)),
            "state": jax.tree.structure(self.parts.state),
        }
        return Codec(_TYPES, trees)


class MemberSpec(NamedTuple):
    """One server of a run.

    Attributes:
        role: what kind.
        number: which of that kind.
    """

    role: Literal["graph", "parameter"]
    number: int

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"{self.role} server {self.number}"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class HostSpec:
    """What one host is given.

    Attributes:
        run: what all know.
        number: of the host.
        members: the servers that live in it.
    """

    run: RunSpec
    number: int
    members: tuple[MemberSpec, ...]

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return ", ".join(member.name for member in self.members)

    def to_bytes(self) -> bytes:
        """For a private channel: it holds secrets, and whoever reads it runs its code."""
        content: bytes = cloudpickle.dumps((sys.path, self.run.jax, cloudpickle.dumps(self)))
        return content

    @classmethod
    def from_bytes(cls, content: bytes) -> HostSpec:
        """What `to_bytes` gave. Sets up imports and JAX as they were there, before modules and arrays are made."""
        places, settings, inner = pickle.loads(content)
        sys.path.extend(place for place in places if place not in sys.path)
        for name, value in settings.items():
            jax.config.update(name, value)
        spec = pickle.loads(inner)
        assert isinstance(spec, cls)
        return spec


def spread(servers: int, parameter_servers: int, hosts: int | None) -> list[tuple[MemberSpec, ...]]:
    """Which servers live in which host.

    Args:
        servers: graph servers.
        parameter_servers: parameter servers.
        hosts: how many hosts; None: one for each server of either kind. Otherwise both kinds are dealt to them in turn.
    """
    graph = [MemberSpec("graph", server) for server in range(servers)]
    parameters = [MemberSpec("parameter", server) for server in range(parameter_servers)]
    if hosts is None:
        return [(member,) for member in (*graph, *parameters)]
    return [(*graph[host::hosts], *parameters[host::hosts]) for host in range(hosts)]
