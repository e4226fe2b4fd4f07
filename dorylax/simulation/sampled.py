"""Training on mini-batches of sampled neighbours by CPU servers, as AliGraph does (VLDB '19): the paper's peer in Table 5.

Every server has its share of the vertices, their features and their edges. Each of its threads does a mini-batch at a time.
It samples neighbors, hop by hop. It fetches the features of all vertices found, from its own server or from their owners,
whose memory and network this takes. It computes a GCN of two layers forwards and backwards, and sends its gradient to a
parameter server, which updates the weights immediately and sends them back. No thread waits for another.

A mini-batch follows from the graph's degrees. Neighbors of each reached vertex are sampled once (GraphSAGE, NeurIPS '17,
algorithm 2). An edge leads to another server with the probability of the graph's cut, and to a server's vertices in
proportion to their degrees.

Assumptions, since nothing is published about the runs of Table 5: `TARGETS` and `FANOUTS` are GraphSAGE's; two thirds of the
vertices are trained on; a sampled neighbor costs a line of cache; rows of other servers are not cached; servers are as fast
as those that Dorylus's program was fitted on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import NamedTuple, final

from dorylax.clock import VirtualClock
from dorylax.cost import Calls
from dorylax.cost.machines import Place
from dorylax.cost.time_model import times_of
from dorylax.graph.degree_statistics import DegreeStatistics
from dorylax.simulation.result import Simulated, Utilisation
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError

TARGETS, FANOUTS = 512, (25, 10)
"""Targets of a mini-batch, and neighbors of a target and of each of those, as in GraphSAGE's program and section 4."""
_TRAINED = 2 / 3
_BATCHES = 8
"""Simulated mini-batches per thread; the others of an epoch take as long."""
_NUMBER, _INDEX, _LINE = 4, 4, 64
"""Bytes of a float32, of a vertex's number, and of a line of cache."""


def simulate_sampled(
    scenario: Scenario, *, epochs: int = 3, on_epoch: Callable[[int], None] | None = None
) -> Simulated:
    """Simulate sampled training on a scenario's servers; an epoch is one pass over all vertices of the training set.

    Args:
        scenario: The run, on servers and functions, which stay unused; of its model only the hidden width counts.
        epochs: Number of epochs to simulate (≥ 1), at most those of the run.
        on_epoch: Called after each epoch with the number of finished epochs.

    Raises:
        ScenarioError: The scenario has a data set instead of sizes.
    """
    if scenario.graph is None:
        raise ScenarioError(f"sampled training is simulated by sizes: give {scenario.name} a graph in place of data")
    alone, clock = scenario.on("cpu"), VirtualClock()
    pipeline = alone.pipeline
    epochs = min(epochs, alone.config.train.epochs)
    trained = math.ceil(_TRAINED * scenario.graph.vertices / pipeline.servers)
    batches = math.ceil(trained / TARGETS)
    simulated = min(batches, _BATCHES * alone.cluster.graph_server.tasks)
    seconds = list[float]()
    with clock:
        servers = _Servers(alone, scenario.graph, min(TARGETS, trained), clock)
        for epoch in range(epochs):
            seconds.append(clock.run(servers.train(simulated)))
            if on_epoch is not None:
                on_epoch(epoch + 1)
    # Threads serve requests of other servers in addition to their mini-batches.
    busy = min(1.0, servers.busy / (sum(seconds) * pipeline.servers * servers.threads))
    return Simulated(
        name=alone.name,
        backend="cpu",
        cluster=alone.cluster,
        servers=pipeline.servers,
        parameter_servers=pipeline.parameter_servers,
        intervals=pipeline.intervals,
        prepare=0.0,
        epochs=tuple(one * batches / simulated for one in seconds),
        settling=1,
        calls=(Calls(),) * (1 + epochs),
        total_epochs=alone.config.train.epochs,
        tasks=(),
        utilisation=Utilisation(busy, 0.0, 0.0),
    )


@final
class _Servers:
    """All servers; `busy` is the time for which their threads have computed and read, in seconds."""

    def __init__(self, scenario: Scenario, graph: GraphSizes, targets: int, clock: VirtualClock) -> None:
        pipeline, cluster = scenario.pipeline, scenario.cluster
        self._clock = clock
        self._times = times_of(
            cluster, scenario.config.train.seed, clock, pipeline.servers + pipeline.parameter_servers
        )
        self._servers, self._parameter_servers = pipeline.servers, pipeline.parameter_servers
        self._hops = hops(graph.degrees, pipeline.servers, targets, FANOUTS)
        hidden = scenario.config.model.hidden_features
        assert hidden is not None  # a default, if not given
        self._widths = (graph.features, hidden, graph.classes)
        self._weights = _NUMBER * hidden * (graph.features + graph.classes)
        self._numbers = count()
        self.threads = cluster.graph_server.tasks
        self.busy = 0.0

    async def train(self, batches: int) -> float:
        """Run so many mini-batches on each server; return the seconds that they take."""
        begun = self._clock.now()
        todo = [iter(range(batches)) for _ in range(self._servers)]

        async def thread(server: int) -> None:
            for _ in todo[server]:
                await self._batch(server)

        await asyncio.gather(*(thread(server) for server in range(self._servers) for _ in range(self.threads)))
        return self._clock.now() - begun

    async def _batch(self, server: int) -> None:
        known = Hop(0.0, 0.0, 0.0)
        for hop, further in pairwise(self._hops):
            new = hop.own - known.own, hop.others - known.others
            each = further.edges / max(1.0, sum(new))  # in a tiny graph all may be known
            await self._fetch(server, *new, read=_LINE * each, sent=_INDEX * each)
            known = hop
        row, all_of = _NUMBER * self._widths[0], self._hops[-1]
        await self._fetch(server, all_of.own, all_of.others, read=row, sent=row)
        await self._work(server, *_amounts(self._hops, self._widths))
        graph: Place = ("graph", server)
        parameters: Place = ("parameter", server % self._parameter_servers)
        await self._message(graph, parameters, self._weights)
        key = (next(self._numbers),)
        await self._clock.sleep(self._times.update(key, bytes=self._weights), key)
        await self._message(parameters, graph, self._weights)

    async def _fetch(self, server: int, own: float, others: float, *, read: float, sent: float) -> None:
        """Read `read` bytes of each vertex on its server, and send `sent` bytes of it from there."""

        async def ask(peer: int) -> None:
            number = others / (self._servers - 1)
            await self._message(("graph", server), ("graph", peer), _INDEX * number)
            await self._work(peer, 0.0, read * number)
            await self._message(("graph", peer), ("graph", server), sent * number)

        peers = [peer for peer in range(self._servers) if peer != server and others]
        await asyncio.gather(self._work(server, 0.0, read * own), *map(ask, peers))

    async def _work(self, server: int, flops: float, bytes: float) -> None:
        key, begun = (next(self._numbers),), self._clock.now()
        await self._clock.sleep(self._times.graph_task(key, flops=flops, bytes=bytes, server=server), key)
        self.busy += self._clock.now() - begun

    async def _message(self, sender: Place, receiver: Place, bytes: float) -> None:
        key = (next(self._numbers),)
        await self._clock.sleep(self._times.message(key, bytes=bytes, sender=sender, receiver=receiver), key)


def _amounts(found: tuple[Hop, ...], widths: tuple[int, int, int]) -> tuple[float, float]:
    """Operations of a mini-batch, forwards and backwards, and bytes that it reads along edges."""
    (targets, near, far), (features, hidden, classes) = found, widths
    # Both products and the gradients of both matrices; of rows only the hidden ones have gradients.
    products = 2 * 2 * near.vertices * features * hidden + 3 * 2 * targets.vertices * hidden * classes
    # Hidden rows are those of the near vertices, targets included; their sums are read back along the same edges.
    along = (near.edges + far.edges) * features + 2 * near.edges * hidden
    return products + along, _NUMBER * along


class Hop(NamedTuple):
    """The distinct vertices within a number of edges of the targets.

    Attributes:
        edges: Edges sampled at the vertices that the previous hop reached first.
        own, others: Numbers of vertices on the targets' server, and on all other servers.
    """

    edges: float
    own: float
    others: float

    @property
    def vertices(self) -> float:
        """Number of vertices on all servers."""
        return self.own + self.others


def hops(degrees: DegreeStatistics, servers: int, targets: int, fanouts: Sequence[int]) -> tuple[Hop, ...]:
    """Return the hops of a mini-batch, from its targets outwards: one more than there are fan-outs.

    Args:
        degrees: Statistics of the graph.
        servers: P ≥ 1, with equally many vertices.
        targets: Number of targets (≥ 1, at most the vertices of a server).
        fanouts: Most neighbors to sample at each hop (≥ 1).
    """
    rows, peers = degrees.num_vertices // servers, max(1, servers - 1)
    cut = degrees.cut_ratio * (1 - 1 / servers)
    found = [Hop(0.0, float(targets), 0.0)]
    new_own, new_others = float(targets), 0.0
    to_own = to_others = 0.0  # edges so far
    for place, fanout in enumerate(fanouts):
        each = onwards = degrees.sampled(fanout, along_edges=place > 0)
        if place:
            # One of the d edges of a vertex leads back; of those that edges lead to, E[min(d, fanout) / d] is this.
            back = degrees.sampled(fanout, along_edges=False) * degrees.num_vertices / degrees.num_edges
            onwards = max(0.0, each - back)
        edges = each * (new_own + new_others)
        # The edges that leave another server lead to all others equally, including the targets' server.
        own = onwards * (new_own * (1 - cut) + new_others * cut / peers)
        to_own += own
        to_others += onwards * (new_own + new_others) - own
        reached = degrees.touched(rows, to_own)
        hop = Hop(edges, reached + targets * (1 - reached / rows), peers * degrees.touched(rows, to_others / peers))
        new_own, new_others = hop.own - found[-1].own, hop.others - found[-1].others
        found.append(hop)
    return tuple(found)
