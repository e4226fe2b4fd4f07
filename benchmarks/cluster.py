"""Servers as processes of their own: what they cost, send and hold.

    python benchmarks/cluster.py                                           # all, 20 minutes on two cores
    python benchmarks/cluster.py --only overhead --servers 2 4
    python benchmarks/cluster.py --only memory --size reddit-large         # 20 minutes, 7 GB of disk

**overhead**: `pipeline.hosts=processes` compared with as many servers in one process, on the graph of the flagship study
and on one of 10 million edges (width 128): in as many processes as servers (`num_hosts`), the parameter server in that of a
graph server, and by default, with a process more for it. All train the same GCN with dropout, some epochs each in turn, each
as often the first; medians of seconds per epoch, and of seconds of processor time of all processes. Also: the bytes that
left the sockets of hosts in messages between graph servers, frames and headers, and the bytes by `Program.cost()`.

**memory**: the peak of each host and of the driver, sampled (PSS: of a page that processes share each counts its share),
compared with the same run with all servers in one process. Hosts map a partition that `dorylax partition --out` has saved,
and the driver holds no graph. A run for which memory does not suffice is ended; its size then is the least that it takes,
so that the hosts' share of it is an upper bound.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optax
from flax import nnx

from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.program.model.flax_nnx import take_apart
from harness.command_line import parsed, parser_of, write_json
from harness.measure import GIB, cpu_seconds, proportional_bytes, watched

# isort: split
from support.processes import below


class Side:
    """A GCN with dropout, by Adam, on servers that live here or in processes of their own.

    Attributes:
        start_seconds: Until the first epoch could begin.
        wall, cpu: Seconds of an epoch, and of processor time of all processes, on average over each turn.
    """

    def __init__(self, data: Dataset, hidden: int, **options: Any) -> None:
        config = PipelineConfig(**options)
        parts = take_apart(GCN(data.num_features, hidden, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))
        kind: Any = Pipeline if config.hosts == "inline" else HostsPipeline
        self.pipeline = kind.of(parts, data, optax.adam(0.01), config)
        before = set(below(os.getpid()))
        begin = time.perf_counter()
        self.run = self.pipeline.start(parts.params, None, parts.state)
        self.start_seconds = time.perf_counter() - begin
        self._pids = [os.getpid(), *set(below(os.getpid())) - before]
        self._epochs = 0
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def turn(self, epochs: int, *, counts: bool) -> None:
        """Trains some epochs; none goes on while the other side has its turn."""
        self._epochs += epochs
        self.run.barrier(self._epochs)
        cpu, begin = cpu_seconds(self._pids), time.perf_counter()
        for _ in range(epochs):
            self.run.run_epoch()
        if counts:
            self.wall.append((time.perf_counter() - begin) / epochs)
            self.cpu.append((cpu_seconds(self._pids) - cpu) / epochs)

    def sent(self, servers: int) -> int:
        """Bytes that have left the sockets of hosts in messages between graph servers."""
        run = self.run  # the public interface does not count messages
        traffic = run._run(lambda: run._hosts.ask_all(run._hosts.members.all, "traffic"))
        return sum(host[kind][1] for host in traffic[:servers] for kind in ("rows", "sums", "parts") if kind in host)

    def expected(self) -> int:
        """Bytes that graph servers send each other in an epoch, by the program's cost."""
        pieces = self.pipeline.pieces
        ghosts = {direction: [len(piece.ghosts[direction]) for piece in pieces] for direction in ("in", "out")}
        intervals = sum(piece.num_intervals for piece in pieces)
        cost = self.pipeline.prepared.plan.program.cost(intervals=intervals, ghosts=ghosts)
        return int(cost.exchanged_epoch)


def overhead(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Hosts compared with servers that share a process."""
    edges = arguments.edges
    large = load("communities", size="medium", num_vertices=edges // 100, num_edges=edges)
    graphs = {
        "flagship": (load("communities", size=arguments.flagship), 16, 4, arguments.epochs),
        f"{edges:,} edges": (large, arguments.hidden, 8, max(1, arguments.epochs // 5)),
    }
    rows = []
    for name in arguments.graphs or graphs:
        data, hidden, intervals, epochs = graphs[name]
        for servers in arguments.servers:
            with contextlib.ExitStack() as stack:
                sides = []
                ways = ({}, {"hosts": "processes", "num_hosts": servers}, {"hosts": "processes"})
                for options in ways[: 2 if arguments.tiny else 3]:
                    sides.append(Side(data, hidden, servers=servers, intervals=intervals, **options))
                    stack.callback(sides[-1].run.close)
                for side in sides:
                    side.turn(epochs, counts=False)
                before = sides[-1].sent(servers)
                for turn in range(arguments.rounds):
                    first = turn % len(sides)
                    for side in (*sides[first:], *sides[:first]):
                        side.turn(epochs, counts=True)
                row = {
                    "graph": name,
                    "servers": servers,
                    "processes": [1, servers, servers + 1][: len(sides)],
                    "start": [side.start_seconds for side in sides],
                    "wall": [side.wall for side in sides],
                    "cpu": [side.cpu for side in sides],
                    "sent_bytes": (sides[-1].sent(servers) - before) / (arguments.rounds * epochs),
                    "expected_bytes": sides[0].expected(),
                }
            rows.append(row)
            _print_overhead(row)
    return rows


def _print_overhead(row: dict[str, Any]) -> None:
    alone = row["wall"][0]
    base = statistics.median(alone)
    print(f"{row['graph']}, {row['servers']} servers")
    for count, start, walls, cpu in zip(*(row[name] for name in ("processes", "start", "wall", "cpu")), strict=True):
        pairs = statistics.median(b / a for a, b in zip(alone, walls, strict=True))
        print(
            f"    in {count} processes {1e3 * statistics.median(walls):.1f} ms an epoch: "
            f"{statistics.median(walls) / base:.2f} × one (pairs {pairs:.2f} ×; fastest {min(walls) / min(alone):.2f} ×), "
            f"processor time {1e3 * statistics.median(cpu):.0f} ms; ready after {start:.1f} s"
        )
    sent, expected = row["sent_bytes"], row["expected_bytes"]
    print(
        f"    from sockets {sent / 1e6:.3f} MB per epoch, by Program.cost() {expected / 1e6:.3f} MB: "
        f"{sent / max(1, expected):.4f} ×",
        flush=True,
    )


def memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """Peaks of hosts and of the driver compared with those of one process."""
    size = arguments.size
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-cluster-")))
        partition, data = folder / f"{size}-on-4", ["--data", "communities", "--set", f"data.size={size}"]
        if not partition.exists():
            # Ids of edges are for models that draw or take values per edge, which this one does not.
            options = ["--servers", "4", "--method", arguments.method, "--no-edge-ids", "--out", str(partition)]
            made = watched(["partition", *data, *options], proportional_bytes, guarded=True)
            if not made.whole:
                raise SystemExit(f"{size}: cutting it into shards does not fit here, it held {made.peak / GIB:.2f} GiB")
            print(f"{size}: cut into 4 shards in {made.seconds:.0f} s and {made.peak / GIB:.2f} GiB", flush=True)
        words = ["train", "--no-save", "--json", *data, "--model", "gcn", "--epochs", "2"]
        for setting in (
            *(f"model.hidden_features={arguments.hidden}", "model.dropout=0", "pipeline.servers=4"),
            *(f"pipeline.partition={partition}", "train.eval_every=2"),
            "single.memory=ignore",  # a run that does not fit is ended once that is seen
        ):
            words += ["--set", setting]
        hosts = watched([*words, "--set", "pipeline.hosts=processes"], proportional_bytes, guarded=True)
        inline = watched(words, proportional_bytes, guarded=True)
    graph, others = ([f"{host / GIB:.2f}" for host in some] for some in (hosts.others[:4], hosts.others[4:]))
    least, most = "" if inline.whole else "more than ", "" if inline.whole else "less than "
    print(
        f"{size} on 4 servers: {least}{inline.peak / GIB:.2f} GiB in one process; hosts {', '.join(graph)} GiB, the largest "
        f"{most}{max(hosts.others) / inline.peak:.3f} of it (aim: ≤ 0.35); driver {hosts.peak / GIB:.2f} GiB (aim: ≤ 1); "
        f"others {', '.join(others)} GiB; {inline.seconds:.0f} and {hosts.seconds:.0f} s"
        f"{'' if hosts.whole else '; HOSTS DID NOT FIT and were ended'}",
        flush=True,
    )
    return {"size": size, "inline": inline._asdict(), "hosts": hosts._asdict()}


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {"overhead": overhead, "memory": memory}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--hidden", type=int, default=128, help="width, but of the flagship's model")
    group = parser.add_argument_group("overhead")
    group.add_argument("--servers", type=int, nargs="+", default=[2, 4])
    group.add_argument("--graphs", nargs="+", help="of the two (both)")
    group.add_argument("--flagship", default="small", help="size of the flagship's graph")
    group.add_argument("--edges", type=int, default=10_000_000, help="of the other graph, a hundred for each vertex")
    group.add_argument("--epochs", type=int, default=10, help="in a turn; a fifth on the other graph")
    group.add_argument("--rounds", type=int, default=7)
    group = parser.add_argument_group("memory")
    group.add_argument("--size", default="reddit-small", help="of `communities`")
    group.add_argument("--method", default="range", help="of the partition")
    group.add_argument("--folder", type=Path, help="where the partition is kept; a temporary one by default")
    tiny: dict[str, Any] = {"servers": [1], "flagship": "tiny", "graphs": ["flagship"], "edges": 4000, "hidden": 8}
    tiny |= {"epochs": 1, "rounds": 1}
    # Memory takes processes by the dozen.
    arguments = parsed(parser, only=["overhead"], size="tiny", **tiny)
    write_json(arguments.json, {"schema": 2} | {name: PARTS[name](arguments) for name in arguments.only})


if __name__ == "__main__":
    main()
