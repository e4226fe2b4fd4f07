"""What a mini-batch of sampled neighbours holds, by what is known of a graph's degrees.

Targets lie on the server that trains on them. Of every vertex that is reached so many neighbours are sampled, or all where
there are fewer (GraphSAGE, NeurIPS '17, algorithm 2), once: who is reached again keeps them. An edge leads to another server
with the probability of the graph's cut, wherever it begins, and to the vertices of a server in proportion to their degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dorylax.graph.degree_statistics import DegreeStatistics


class Hop(NamedTuple):
    """The vertices within so many edges of the targets, those that are nearer included.

    Attributes:
        edges: sampled of the vertices that the hop before was the first to reach.
        own: how many different vertices are on the targets' server.
        others: how many are on all other servers.
    """

    edges: float
    own: float
    others: float

    @property
    def vertices(self) -> float:
        """All different ones."""
        return self.own + self.others


def hops(degrees: DegreeStatistics, servers: int, targets: int, fanouts: Sequence[int]) -> tuple[Hop, ...]:
    """A mini-batch, from its targets outwards: one hop more than there are fan-outs.

    Args:
        degrees: of the graph.
        servers: P ≥ 1, with equally many vertices.
        targets: ≥ 1, at most those of a server.
        fanouts: of each hop how many neighbours are sampled at most, ≥ 1.
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
        # Of the edges that leave one of the others, an equal share comes back to the targets' server.
        own = onwards * (new_own * (1 - cut) + new_others * cut / peers)
        to_own += own
        to_others += onwards * (new_own + new_others) - own
        reached = degrees.touched(rows, to_own)
        hop = Hop(edges, reached + targets * (1 - reached / rows), peers * degrees.touched(rows, to_others / peers))
        new_own, new_others = hop.own - found[-1].own, hop.others - found[-1].others
        found.append(hop)
    return tuple(found)
