"""Servers as processes of their own: what they cost, what they send, what they hold, and how far they scale.

    python benchmarks/cluster.py                                           # all, 25 minutes on two cores
    python benchmarks/cluster.py --only overhead --servers 2 4
    python benchmarks/cluster.py --only memory --size reddit-large         # 20 minutes, 7 GB of disk
    python benchmarks/cluster.py --only scaling --out scaling              # 8 minutes; scaling.svg
    python benchmarks/cluster.py --only sweep                              # 5 minutes; needs dorylax[ray]

**overhead**: `pipeline.hosts=processes` beside as many servers in one process, on the graph of the flagship study and on
one of 10 million edges (width 128): in as many processes as servers (`num_hosts`), the parameter server beside a graph
server, and by default, with a process more for it. All train the same GCN with dropout, some epochs each in turn, each as
often the first; medians of seconds per epoch, and of seconds of processor time of all processes. In the same turns, the same
boundary rows are handed over by the same transport between as many processes that compute nothing: the same bytes in the
same number of messages. Beside that: what left the sockets of hosts in messages between graph servers, frames and headers,
and what `Program.cost()` says they send.

**memory**: the peak of each host and of the driver, sampled (PSS: of a page that processes share each counts its share),
beside that of the same run with all servers in one process. Hosts map a partition that `dorylax partition --out` has saved,
and the driver holds no graph. A run for which memory does not suffice is ended; how much it held then is the least that it
takes, so that what is said of hosts beside it is true; `--scale` takes a share of the graph for which it suffices.

**scaling**: epochs on 1 to 64 servers in virtual time (`pipeline.clock=virtual`), on one graph (strong), and on graphs with
as many vertices for each server (weak); synchronous, and with S = 1. The bottleneck is what most of the critical path was
on: graph threads, tensor workers, messages, or parameter servers.

**sweep**: the flagship study with `--hosts ray` over two nodes on this machine, one of which is killed once half of the runs
have ended, and the same on this machine alone: whether `results.csv` is the same, byte for byte.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.command_line import parsed, parser_of, write_json
from harness.hand_over import HandOver
from harness.host_memory import Peaks, peaks
from harness.scaled_size import name_of, program
from harness.server_scaling import RESOURCES, measure, plot
from harness.side_by_side import Side
from harness.sweep_on_nodes import compare

_GIB = 2**30
_MODES: dict[str, dict[str, Any]] = {"pipe": {"mode": "pipe"}, "async": {"mode": "async", "staleness": 1}}


def overhead(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Hosts beside servers that share a process."""
    from dorylax.graph.datasets import load

    edges, vertices = arguments.edges, arguments.edges // 100
    large = load("communities", size="medium", num_vertices=vertices, num_edges=edges)
    graphs = {
        "flagship": (load("communities", size=arguments.flagship), 16, 4, arguments.epochs),
        f"{edges:,} edges": (large, arguments.hidden, 8, max(1, arguments.epochs // 5)),
    }
    rows = []
    for name, (data, hidden, intervals, epochs) in graphs.items():
        for servers in arguments.servers:
            with contextlib.ExitStack() as stack:
                options: dict[str, Any] = {"servers": servers, "intervals": intervals}
                hosts = {"hosts": "processes"}
                sides = []
                for more in ({}, hosts | {"num_hosts": servers}, hosts):
                    sides.append(Side(data, hidden, **options, **more))
                    stack.callback(sides[-1].run.close)
                inline, *processes = sides
                messages = inline.boundary_rows()
                bare = HandOver(servers, messages)
                stack.callback(bare.close)
                for side in sides:
                    side.turn(epochs, counts=False)
                before = _between_graph_servers(processes[1], servers)
                handed = []
                for turn in range(arguments.rounds):
                    first = turn % len(sides)
                    for side in (*sides[first:], *sides[:first]):
                        side.turn(epochs, counts=True)
                    handed += [bare.turn() for _ in range(epochs)]
                sent = (_between_graph_servers(processes[1], servers) - before) / (arguments.rounds * epochs)
                row = {
                    "graph": name,
                    "servers": servers,
                    "processes": [1, servers, servers + 1],
                    "start": [side.start_seconds for side in sides],
                    "wall": [[turn.wall for turn in side.turns] for side in sides],
                    "cpu": [[turn.cpu for turn in side.turns] for side in sides],
                    "bare": handed,
                    "messages": len(messages),
                    "row_bytes": sum(size for _, _, size in messages),
                    "sent_bytes": sent,
                    "expected_bytes": inline.expected(),
                }
            rows.append(row)
            _print_overhead(row)
    return rows


def _between_graph_servers(side: Side, servers: int) -> int:
    kinds = ("rows", "sums", "parts")
    return sum(host[kind][1] for host in side.sent()[:servers] for kind in kinds if kind in host)


def _print_overhead(row: dict[str, Any]) -> None:
    inline, *others = zip(row["processes"], row["start"], row["wall"], row["cpu"], strict=True)
    _, start, alone, cpu = inline
    wall = statistics.median(alone)
    print(
        f"{row['graph']}, {row['servers']} servers in one process: {1e3 * wall:.1f} ms per epoch, processor time "
        f"{1e3 * statistics.median(cpu):.0f} ms; ready after {start:.1f} s"
    )
    for count, start, walls, cpu in others:
        pairs = statistics.median(b / a for a, b in zip(alone, walls, strict=True))
        median, fastest = statistics.median(walls), min(walls) / min(alone)
        print(
            f"    in {count} processes {1e3 * median:.1f} ms: {median / wall:.2f} × (pairs {pairs:.2f} ×; fastest "
            f"{fastest:.2f} ×), processor time {1e3 * statistics.median(cpu):.0f} ms; ready after {start:.1f} s"
        )
    print(
        f"    bare hand-over of {row['messages']} messages, {row['row_bytes'] / 1e6:.2f} MB: "
        f"{1e3 * statistics.median(row['bare']):.1f} ms\n"
        f"    from sockets {row['sent_bytes'] / 1e6:.3f} MB per epoch, by Program.cost() {row['expected_bytes'] / 1e6:.3f} "
        f"MB: {row['sent_bytes'] / max(1, row['expected_bytes']):.4f} ×",
        flush=True,
    )


def memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """Peaks of hosts and of the driver beside those of one process."""
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-cluster-")))
        folder.mkdir(parents=True, exist_ok=True)
        size = name_of(arguments.size, arguments.scale)
        dorylax = program(arguments.size, arguments.scale)
        partition, data = folder / f"{size}-on-4", ["--data", "communities", "--set", f"data.size={size}"]
        if (
            not partition.exists()
        ):  # ids of edges are for models that draw or take values per edge, which this one does not
            options = ["--servers", "4", "--method", arguments.method, "--no-edge-ids", "--out", str(partition)]
            made = peaks(["partition", *data, *options], dorylax)
            if not made.whole:
                raise SystemExit(
                    f"{size}: cutting it into shards does not fit here, it held {made.driver / _GIB:.2f} GiB"
                )
            print(f"{size}: cut into 4 shards in {made.seconds:.0f} s and {made.driver / _GIB:.2f} GiB", flush=True)
        words = ["train", "--no-save", "--json", *data, "--model", "gcn", "--epochs", "2"]
        for setting in (
            *(f"model.hidden_features={arguments.hidden}", "model.dropout=0", "pipeline.servers=4"),
            *(f"pipeline.partition={partition}", "train.eval_every=2"),
            "single.memory=ignore",  # what does not fit is ended where it is seen not to
        ):
            words += ["--set", setting]
        hosts = peaks([*words, "--set", "pipeline.hosts=processes"], dorylax)
        inline = peaks(words, dorylax)
    graph = [host / _GIB for host in hosts.hosts[:4]]
    others = ", ".join(f"{host / _GIB:.2f}" for host in hosts.hosts[4:])
    print(
        f"{size} on 4 servers: {_one_process(inline)}; hosts {', '.join(f'{host:.2f}' for host in graph)} GiB"
        f"{_share(inline, hosts)}; driver {hosts.driver / _GIB:.2f} GiB (aim: ≤ 1); others {others} GiB; "
        f"{inline.seconds:.0f} and {hosts.seconds:.0f} s{'' if hosts.whole else '; HOSTS DID NOT FIT and were ended'}",
        flush=True,
    )
    return {"size": size, "inline": inline._asdict(), "hosts": hosts._asdict()}


def _one_process(inline: Peaks) -> str:
    if inline.whole:
        return f"{inline.driver / _GIB:.2f} GiB in one process"
    return f"one process does not fit here: ended when it held {inline.driver / _GIB:.2f} GiB and wanted more"


def _share(inline: Peaks, hosts: Peaks) -> str:
    """The largest host's part of one process, of which what is known may be a lower bound."""
    if not hosts.whole:
        return ""
    share = f"{max(hosts.hosts[:4]) / inline.driver:.3f}"
    return f", the largest {share if inline.whole else f'less than {share}'} of it (aim: ≤ 0.35)"


def scaling(arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Virtual epochs on more and more servers."""
    found: dict[str, list[dict[str, Any]]] = {}
    print(f"{'':<14}{'servers':>7}{'vertices':>10}  s per epoch  ratio  {'MB sent':>8}  critical path", flush=True)
    for kind in ("strong", "weak"):
        for mode, options in _MODES.items():
            rows = found[f"{kind} {mode}"] = []
            for servers in arguments.scaling_servers:
                share = servers if kind == "weak" else max(arguments.scaling_servers)
                vertices = share * arguments.scaling_vertices
                row = measure(vertices, 20 * vertices, 64, epochs=3, servers=servers, intervals=4, **options)
                rows.append(row)
                path = ", ".join(f"{name} {row['path'][name]:4.0%}" for name in RESOURCES)
                print(
                    f"{kind + ' ' + mode:<14}{servers:>7}{vertices:>10,}  {row['epoch_seconds']:>11.3f}  "
                    f"{rows[0]['epoch_seconds'] / row['epoch_seconds']:>5.2f}  {row['message_bytes'] / 1e6:>8.1f}  {path}: "
                    f"{row['bottleneck']}",
                    flush=True,
                )
    if arguments.out:
        plot(arguments.out / "scaling.svg", found)
    return found


def sweep(arguments: argparse.Namespace) -> dict[str, Any]:
    """A study over nodes, one of which is lost."""
    from dorylax.machine import cores

    with tempfile.TemporaryDirectory(prefix="dx-") as folder:  # short: Ray's paths of sockets are limited
        found = compare(arguments.sweep, Path(folder), cores())
    print(
        f"{arguments.sweep}: {found.runs} runs, {found.seconds[0]:.0f} s on one machine, {found.seconds[1]:.0f} s over two "
        f"nodes, one of them killed after {found.killed_after} runs ({len(found.again)} run again); results.csv "
        f"{'is the same, byte for byte' if found.same else 'DIFFERS'}",
        flush=True,
    )
    for line in found.again:
        print(f"    {line}", flush=True)
    return {"sweep": arguments.sweep, "runs": found.runs, "seconds": found.seconds, "same": found.same}


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "overhead": overhead,
    "memory": memory,
    "scaling": scaling,
    "sweep": sweep,
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--out", type=Path, help="folder for cluster.json and scaling.svg")
    group = parser.add_argument_group("overhead")
    group.add_argument("--servers", type=int, nargs="+", default=[2, 4])
    group.add_argument("--flagship", default="small", help="size of the flagship's graph")
    group.add_argument("--edges", type=int, default=10_000_000, help="of the other graph, a hundred for each vertex")
    group.add_argument("--hidden", type=int, default=128, help="its width, and that of the model of --only memory")
    group.add_argument("--epochs", type=int, default=10, help="in a turn; a fifth on the other graph")
    group.add_argument("--rounds", type=int, default=7)
    group = parser.add_argument_group("memory")
    group.add_argument("--size", default="reddit-small", help="of `communities`")
    group.add_argument("--scale", type=float, default=1.0, help="share of that size's vertices and edges")
    group.add_argument("--method", default="range", help="of the partition")
    group.add_argument("--folder", type=Path, help="where the partition is kept; a temporary one by default")
    group = parser.add_argument_group("scaling")
    group.add_argument("--scaling-servers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    group.add_argument("--scaling-vertices", type=int, default=800, help="for each server of the largest number")
    group = parser.add_argument_group("sweep")
    group.add_argument("--sweep", default="flagship", help="as of experiments/run.py")
    tiny = {
        "servers": [2],
        "flagship": "tiny",
        "edges": 4000,
        "hidden": 8,
        "epochs": 1,
        "rounds": 1,
        "size": "tiny",
        "sweep": "smoke",
    }
    # That a node may be lost is tested by itself.
    tiny["only"] = [name for name in PARTS if name != "sweep"]
    arguments = parsed(parser, **tiny, scaling_servers=[1, 2], scaling_vertices=100)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    found = {name: PARTS[name](arguments) for name in arguments.only}
    write_json(arguments.out and arguments.out / "cluster.json", {"schema": 1} | found)


if __name__ == "__main__":
    main()
