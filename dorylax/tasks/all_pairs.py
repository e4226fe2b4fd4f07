"""Ranks links among all pairs: each link competes with every other target that its source might have had.

Drawn pairs are mostly far apart, and easy to tell from links; here a model must find a link among all V vertices. Scores are
computed for a block of sources at a time, so that no array of size V² exists.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dorylax.graph.graph import Graph
from dorylax.graph.link_splits import Links
from dorylax.metrics.catalogue import ranks_among
from dorylax.tasks.links import Decoder, dot_product


class Ranked(NamedTuple):
    """Ranks of links.

    Attributes:
        ranks: Rank of each link, from 1, with ties counted half: float64 `[N]`. Undirected links are ranked from both ends:
            `[2 N]`, first all ranks from their sources.
    """

    ranks: np.ndarray

    @property
    def mrr(self) -> float:
        """Mean of 1/rank."""
        return float(np.mean(1 / self.ranks))

    def hits_at(self, k: int) -> float:
        """Share of links with rank at most `k`."""
        return float(np.mean(self.ranks <= k))


def rank_among_all(
    rows: Float[np.ndarray | Array, "V D"],
    links: Links,
    known: Graph,
    *,
    decoder: Decoder = dot_product,
    block: int = 256,
) -> Ranked:
    """Rank each link among all targets of its source, excluding the source and other known links ("filtered").

    Args:
        rows: The model's rows of vertices.
        links: Links and other pairs; those labelled 1 are ranked.
        known: The whole graph, whose links are excluded from the competition.
        decoder: Computes a logit from two rows.
        block: Number of links scored at a time, each against V vertices.

    Raises:
        ValueError: There are no links.
    """
    joined = links.labels == 1
    sources, targets = links.sources[joined], links.targets[joined]
    if not len(sources):
        raise ValueError("there is no link to rank: links has no label 1")
    if known.symmetric:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
    table = jnp.asarray(rows)
    score = jax.jit(jax.vmap(lambda row: decoder(jnp.broadcast_to(row, table.shape), table)))
    ranks = [
        _ranks(np.asarray(score(table[sources[first : first + block]])), sources, targets, first, known)
        for first in range(0, len(sources), block)
    ]
    return Ranked(np.concatenate(ranks))


def _ranks(
    scores: np.ndarray, sources: np.ndarray, targets: np.ndarray, first: int, known: Graph
) -> Float[np.ndarray, " B"]:
    outgoing = known.outgoing
    offsets, neighbours = np.asarray(outgoing.offsets), np.asarray(outgoing.neighbours)
    found = []
    for row, source, target in zip(scores, sources[first:], targets[first:], strict=False):
        others = np.ones(len(row), bool)
        others[neighbours[offsets[source] : offsets[source + 1]]] = False
        others[[source, target]] = False
        found.append(ranks_among(row[[target]], np.sort(row[others]))[0])
    return np.array(found)
