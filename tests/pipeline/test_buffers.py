from __future__ import annotations

import asyncio

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph import Graph
from dorylax.graph.cutting import Cutting
from dorylax.graph.partition import lay_out, partition
from dorylax.graph.shard import Shard
from dorylax.pipeline.buffers import MergeBuffer, RowBuffer
from dorylax.pipeline.stamps import NEVER, Reads, reads


def cut(servers: int = 3, intervals: int = 3) -> tuple[Graph, tuple[Shard, ...]]:
    graph = messy_graph(40, 160)
    layout = lay_out(graph, partition(graph, servers, method="random"), intervals)
    return graph.reorder(layout.order), tuple(Cutting(graph, layout))


def ghost_block(shard: Shard) -> tuple[int, int, int]:
    """An interval of a peer with ghosts here: its number, and where they lie in a buffer."""
    bounds = shard.ghost_bounds["in"]
    number = int(np.flatnonzero(np.diff(bounds))[0])
    num_rows = shard.last - shard.first
    return number, num_rows + int(bounds[number]), num_rows + int(bounds[number + 1])


def test_an_older_message_never_replaces_newer_rows() -> None:
    _, pieces = cut()
    buffer = RowBuffer(pieces[0], "in", (), np.float32)
    number, first, last = ghost_block(pieces[0])
    for epoch in (1, 2, 1):  # the last one comes again, late
        asyncio.run(buffer.receive(number, np.full(last - first, float(epoch)), epoch))
    assert set(buffer.rows[first:last].tolist()) == {2.0}
    assert buffer.stamps.epochs[buffer.bounds.index((first, last))] == 2


def test_rows_that_are_given_back_stay_away_when_a_message_comes_again() -> None:
    _, pieces = cut()
    buffer = RowBuffer(pieces[0], "in", (2,), np.float32)
    number, first, last = ghost_block(pieces[0])
    asyncio.run(buffer.receive(number, np.ones((last - first, 2), np.float32), -1))
    buffer.release()
    asyncio.run(buffer.receive(number, np.ones((last - first, 2), np.float32), -1))
    assert (buffer.rows.nbytes, buffer.rows.shape, buffer.rows.dtype) == (0, (0, 2), np.float32)


@pytest.mark.parametrize(
    ("counts", "epochs", "expected"),
    [
        ([2, 0, 3], [4, 1, 3], Reads(3, (3, 2))),
        ([2, 1, 3], [5, 8, 5], Reads(5, (5, 0, 0, 1))),
        ([0, 0, 0], [0, 0, 0], Reads(0, ())),
    ],
)
def test_what_is_read_is_counted_by_epoch(counts: list[int], epochs: list[int], expected: Reads) -> None:
    """Blocks of which nothing is read do not count."""
    assert reads(np.asarray(counts), np.asarray(epochs)) == expected


class Network:
    """Merge buffers of all servers, whose intervals push `weight[epoch, edge]` to the sources of their in-edges."""

    def __init__(self, seed: int, servers: int = 3, intervals: int = 3) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph, self.pieces = cut(servers, intervals)
        self.weight = self.rng.integers(-8, 8, (6, self.graph.num_edges)).astype(np.float64)
        self.buffers = [MergeBuffer(shard, (), np.float64) for shard in self.pieces]
        self.epochs = np.full((servers, intervals), -1)
        self.messages: list[tuple[int, int, np.ndarray, np.ndarray, np.ndarray]] = []

    def push(self, server: int, interval: int) -> None:
        """An interval comes to its next epoch; what is then due goes on its way."""
        shard, buffer = self.pieces[server], self.buffers[server]
        self.epochs[server, interval] += 1
        epoch = int(self.epochs[server, interval])
        transposed = shard.transposed(interval)
        assert transposed.edges is not None
        edges = shard.first_edge + shard.edge_bounds[interval] + transposed.edges
        values = np.concatenate([[0.0], np.cumsum(self.weight[epoch, edges])])
        asyncio.run(buffer.publish(interval, np.diff(values[transposed.offsets]), epoch))
        ghosts, epochs = buffer.due(interval)
        again, _ = buffer.due(interval)
        assert not len(again)
        sums = buffer.ghost_sums(ghosts)
        rows = shard.ghosts["in"][ghosts]
        for owner, peer in enumerate(self.pieces):
            mine = (peer.first <= rows) & (rows < peer.last)
            if mine.any():
                owned = shard.ghosts["in"]
                start = int(np.searchsorted(owned, peer.first))
                self.messages.append((server, owner, ghosts[mine] - start, epochs[mine], sums[mine]))

    def deliver(self, message: tuple[int, int, np.ndarray, np.ndarray, np.ndarray]) -> None:
        sender, owner, *content = message
        asyncio.run(self.buffers[owner].receive(sender, *content))

    def total(self, server: int) -> np.ndarray:
        """What the server's own rows sum up to."""
        rows, shard = self.pieces[server].merge().rows, self.pieces[server]
        entries = [
            rows.neighbours[rows.offsets[row] : rows.offsets[row + 1]] for row in range(shard.last - shard.first)
        ]
        return np.asarray([self.buffers[server].rows[mine].sum() for mine in entries])


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_merged_sums_are_those_of_all_edges(servers: int) -> None:
    """Against a sum over edges, when all intervals have pushed an epoch, in any order, and messages come in any order and
    twice.
    """
    network = Network(servers, servers)
    pairs = [(server, interval) for server in range(servers) for interval in range(3)]
    for epoch in range(3):
        for place in network.rng.permutation(len(pairs)):
            network.push(*pairs[place])
        repeated = [*network.messages, *network.messages]
        for place in network.rng.permutation(len(repeated)):
            network.deliver(repeated[place])
        expected = np.bincount(
            network.graph.incoming.neighbours, network.weight[epoch], minlength=network.graph.num_vertices
        )
        for server, shard in enumerate(network.pieces):
            np.testing.assert_array_equal(network.total(server), expected[shard.first : shard.last])
            for interval in range(3):
                found = network.buffers[server].reads(interval)
                assert len(found.rows) <= 1  # all of the same epoch
                assert found.oldest == (epoch if found.rows else 0)
                assert sum(found.rows) == network.buffers[server].entries(interval)


def test_what_is_merged_is_as_new_as_its_stamps_say() -> None:
    """Intervals run ahead of each other and messages are late: every sum is one of contributions from its stamp on."""
    network = Network(0)
    for _ in range(200):
        server, interval = network.rng.integers(0, 3, 2)
        if network.epochs[server, interval] < network.epochs.min() + 2 and network.epochs[server, interval] < 5:
            network.push(int(server), int(interval))
        if network.messages and network.rng.random() < 0.7:
            network.deliver(network.messages[network.rng.integers(len(network.messages))])  # and again some time
    assert network.epochs.max() == 5
    sources = network.graph.incoming.neighbours
    checked = 0
    for server, shard in enumerate(network.pieces):
        buffer, parts = network.buffers[server], shard.merge()
        for peer, first, last in parts.received:
            sender = network.pieces[peer]
            ghosts = sender.ghosts["in"]
            rows = ghosts[(shard.first <= ghosts) & (ghosts < shard.last)]
            for place, row in zip(range(first, last), rows, strict=True):
                stamp = int(buffer.received_epochs[place - parts.starts[-1]])
                if stamp == NEVER:
                    continue
                # Each contributing interval gave one of its epochs from the stamp on.
                possible = {0.0}
                for start, stop in zip(sender.edge_bounds[:-1], sender.edge_bounds[1:], strict=True):
                    edges = np.arange(sender.first_edge + start, sender.first_edge + stop)
                    mine = edges[sources[edges] == row]
                    options = {float(network.weight[epoch, mine].sum()) for epoch in range(stamp, 6)}
                    possible = {one + other for one in possible for other in options}
                assert float(buffer.rows[place]) in possible
                checked += 1
    assert checked > 20
