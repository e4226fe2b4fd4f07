"""A server's shard on disk: a folder of arrays (`dorylax.graph.array_folder`) of its part of the graph and of its rows.

    bounds            int64 [5]: the server; its first and last row, its first and last edge in the laid-out graph
    intervals         int64 [2, k+1]: `Shard.bounds`, `Shard.edge_bounds`
    <d>_offsets, <d>_neighbours, <d>_ghosts, <d>_ghost_bounds, <d>_sends, <d>_sent
                      for d = in and out; without those of out where both directions are the same, in a symmetric graph
    pushes, pushed
    identity          a value: `sharded_data.ShardsSummary.identity` of the summary that it belongs to
    row_<name>        rows of the server's vertices or edges; any number of them

`sends` (int64 [M, 3]: interval, peer, rows) and `pushes` (int64 [M, 2]: peer, rows) are the lengths of the pieces whose
concatenations are `sent` and `pushed`. Earlier versions stored a shard as one `.npz` archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from dorylax.graph.array_folder import open_arrays
from dorylax.graph.compressed import Adjacency
from dorylax.graph.graph_arrays import save_arrays
from dorylax.graph.shard import Direction, Sends, Shard
from dorylax.graph.stored import StoredArrays
from dorylax.graph.validate import GraphError

_ROWS = "row_"
_DIRECTIONS: tuple[Direction, ...] = ("in", "out")


def write_shard(path: Path, shard: Shard, rows: Mapping[str, np.ndarray], *, identity: str) -> None:
    """Write a shard, and arrays with a row for each of its vertices or in-edges, to a folder.

    `identity` is that of the summary that the shard belongs to.
    """
    arrays = {
        "bounds": np.array([shard.server, shard.first, shard.last, shard.first_edge, shard.last_edge], np.int64),
        "intervals": np.array([shard.bounds, shard.edge_bounds], np.int64),
    }
    for direction in _DIRECTIONS:
        adjacency = shard.incoming if direction == "in" else shard.outgoing
        if direction == "out" and adjacency is shard.incoming:
            break
        arrays[f"{direction}_offsets"] = np.asarray(adjacency.offsets)
        arrays[f"{direction}_neighbours"] = np.asarray(adjacency.neighbours)
        arrays[f"{direction}_ghosts"] = shard.ghosts[direction]
        arrays[f"{direction}_ghost_bounds"] = shard.ghost_bounds[direction]
        sends = [(k, peer, sent) for k, each in enumerate(shard.sends[direction]) for peer, sent in each]
        arrays[f"{direction}_sends"] = _table([(k, peer, len(sent)) for k, peer, sent in sends], 3)
        arrays[f"{direction}_sent"] = _joined(sent for _, _, sent in sends)
    arrays["pushes"] = _table([(peer, len(pushed)) for peer, pushed in shard.pushes], 2)
    arrays["pushed"] = _joined(pushed for _, pushed in shard.pushes)
    arrays["identity"] = np.array(identity)
    save_arrays(path, arrays | {f"{_ROWS}{name}": values for name, values in rows.items()})


def read_shard(path: Path, *, identity: str, verify: bool = True) -> tuple[Shard, dict[str, np.ndarray]]:
    """Read a shard and the further rows in its folder, or in the archive of an earlier version.

    Raises a GraphError if the shard is damaged, is something else, or belongs to a summary of another identity.
    """
    with open_arrays(path, verify=verify) as stored:
        stored.require("bounds", "intervals", "identity")
        if (found := str(stored.fetch("identity"))) != identity:
            raise GraphError(
                f"{path} belongs to another partition (identity {found!r}, expected {identity!r}): make the partition again"
            )
        shard = _shard(stored)
        names = [name for name in stored.names if name.startswith(_ROWS)]
        return shard, {name.removeprefix(_ROWS): stored.fetch(name) for name in names}


def _shard(stored: StoredArrays) -> Shard:
    bounds, (own, edges) = stored.fetch("bounds"), stored.fetch("intervals")
    if bounds.shape != (5,) or len(own) < 2 or (own[-1], edges[-1]) != (bounds[2] - bounds[1], bounds[4] - bounds[3]):
        raise GraphError("is no shard: its bounds contradict each other")
    server, first, last, first_edge, last_edge = map(int, bounds)
    directions = _DIRECTIONS if "out_offsets" in stored else ("in",)
    adjacencies = {d: Adjacency(stored.fetch(f"{d}_offsets"), stored.fetch(f"{d}_neighbours")) for d in directions}
    ghosts = {d: (stored.fetch(f"{d}_ghosts"), stored.fetch(f"{d}_ghost_bounds")) for d in directions}
    sends = {d: _sends(stored, d, len(own) - 1) for d in directions}
    return Shard(
        server=server,
        rows=(first, last),
        edges=(first_edge, last_edge),
        bounds=tuple(own.tolist()),
        edge_bounds=tuple(edges.tolist()),
        incoming=adjacencies["in"],
        outgoing=adjacencies[directions[-1]],
        ghosts={"in": ghosts["in"][0], "out": ghosts[directions[-1]][0]},
        ghost_bounds={"in": ghosts["in"][1], "out": ghosts[directions[-1]][1]},
        sends={"in": sends["in"], "out": sends[directions[-1]]},
        pushes=tuple((int(peer), rows) for (peer,), rows in _cut(stored.fetch("pushes"), stored.fetch("pushed"))),
    )


def _sends(stored: StoredArrays, direction: Direction, intervals: int) -> Sends:
    found: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(intervals)]
    for (interval, peer), rows in _cut(stored.fetch(f"{direction}_sends"), stored.fetch(f"{direction}_sent")):
        found[interval].append((int(peer), rows))
    return tuple(map(tuple, found))


def _cut(table: np.ndarray, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each line of a table all but the last number, and as many rows as that says."""
    return list(zip(table[:, :-1], np.split(rows, np.cumsum(table[:-1, -1])) if len(table) else (), strict=True))


def _table(lines: list[tuple[int, ...]], width: int) -> np.ndarray:
    return np.array(lines, np.int64).reshape(-1, width)


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *parts])
