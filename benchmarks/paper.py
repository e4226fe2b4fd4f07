"""The cells of tables 3 and 4 of the Dorylus paper, simulated, and the effect of each parameter of the time model.

    python benchmarks/paper.py                              # time and value on functions, relative to servers alone
    python benchmarks/paper.py --vary --rows gcn-amazon     # also with each parameter a quarter less and more

A row takes a minute, Friendster's five; with --vary, up to twice that for each parameter. Printed with each row: the seconds
that its simulations took here, and the peak of memory so far. All else is deterministic.
Intervals that may run ahead begin together, and use the network together until they have spread after about eight epochs:
--epochs 12 has that, too.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dorylax.cost.cluster_file import changed
from dorylax.simulation.paper import TABLES_3_4, Row, dollars_of_paper, relative
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import BACKENDS, Backend, Scenario
from harness.command_line import parsed, parser_of, write_json
from harness.measure import GIB, peak_bytes

PARAMETERS: Mapping[str, str] = {
    "cluster.graph_server.flops": "fitted",
    "cluster.graph_server.memory_bandwidth": "fitted",
    "cluster.graph_server.network_bandwidth": "Amazon EC2: the baseline",
    "cluster.graph_server.row_latency": "AnandTech, July 2017: 89 to 91 ns on Skylake-SP",
    "cluster.graph_server.overhead": "assumption",
    "cluster.graph_server.lone_thread": "assumption",
    "cluster.graph_server.total_memory_bandwidth": "assumption, by data sheets",
    "cluster.function.flops": "fitted",
    "cluster.function.lone_bandwidth": "the paper: 800 Mbit/s",
    "cluster.function.crowding": "the paper: 200 Mbit/s of each of 100",
    "cluster.function.overhead": "assumption",
    "cluster.function.variation.sigma": "assumption",
    "cluster.function.price_per_gb_second": "AWS Lambda",
    "cluster.latency": "assumption",
    "gpu.memory_bandwidth": "fitted",
    "gpu.flops": "assumption",
    "gpu.pcie_bandwidth": "assumption",
    "gpu.launch": "assumption",
    "graph.cut_ratio": "fitted",
    "graph.degree_spread": "assumption",
}
"""Where each comes from. The fitted ones on GCN-reddit-small and GCN-amazon; of GAT, the servers' flops on reddit-small."""

_STEP = 0.25


class Cell(NamedTuple):
    """Time and value on functions relative to another backend.

    Attributes:
        time, value: simulated.
        published_time, published_value: the paper's.
    """

    time: float
    value: float
    published_time: float
    published_value: float


def main() -> None:
    parser = parser_of(__doc__)
    names = [row.name for row in TABLES_3_4]
    parser.add_argument("--rows", choices=names, nargs="+", default=names)
    parser.add_argument("--epochs", type=int, default=2, help="to simulate; the first, with cold starts, is left out")
    parser.add_argument("--vary", action="store_true", help="each parameter, a quarter less and a quarter more")
    parser.add_argument("--parameters", choices=PARAMETERS, nargs="+", default=list(PARAMETERS))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, rows=["gcn-reddit-small"], epochs=1, parameters=["graph.cut_ratio"])
    found: dict[str, Any] = {}
    for row in TABLES_3_4:
        if row.name not in arguments.rows:
            continue
        begin = time.perf_counter()
        base = cells(row, arguments.epochs)
        seconds = time.perf_counter() - begin
        print(f"{row.name}: simulated in {seconds:.1f} s; peak {peak_bytes() / GIB:.2f} GiB", flush=True)
        found[row.name] = {"cells": _content(base), "varied": {}, "seconds": seconds}
        for other, cell in base.items():
            print(
                f"{row.name:<18}functions / {other}: T {cell.time:.3f} (published {cell.published_time:.3f}, "
                f"{_off(cell.time, cell.published_time)}), V {cell.value:.3f} ({cell.published_value:.3f}, "
                f"{_off(cell.value, cell.published_value)})",
                flush=True,
            )
        for key, sign in _variations(arguments):
            varied = cells(row, arguments.epochs, key, 1 + sign * _STEP)
            found[row.name]["varied"][f"{key} {sign:+d}"] = _content(varied)
            changes = [
                f"T/{other} {_off(cell.time, base[other].time)}, V/{other} {_off(cell.value, base[other].value)}"
                for other, cell in varied.items()
            ]
            print(f"    {key} {sign * _STEP:+.0%} ({PARAMETERS[key]}): {', '.join(changes)}", flush=True)
        write_json(arguments.json, {"schema": 1, "rows": found})


def _variations(arguments: Any) -> Iterator[tuple[str, int]]:
    if arguments.vary or arguments.tiny:
        for key in arguments.parameters:
            yield from ((key, -1), (key, 1))


def cells(row: Row, epochs: int, key: str | None = None, factor: float = 1.0) -> dict[str, Cell]:
    """The cells of a row, by what functions are compared with.

    Args:
        row: which.
        epochs: to simulate.
        key: a parameter that is other than it is; None: all are as they are.
        factor: so many times.
    """
    ours: dict[Backend, tuple[float, float]] = {}
    for backend in BACKENDS:
        ours[backend] = _simulated(_varied(row.scenario(backend), key, factor), epochs)
    made: dict[str, Cell] = {}
    for other in BACKENDS[1:]:
        simulated, published = relative(ours, other), relative(row.published, other)
        assert simulated is not None
        assert published is not None
        made[other] = Cell(*simulated, *published)
    return made


@functools.cache
def _simulated(scenario: Scenario, epochs: int) -> tuple[float, float]:
    """Seconds and dollars. Kept, since most parameters leave one backend or two as they are."""
    found = simulate(scenario, epochs=epochs)
    return found.seconds, dollars_of_paper(found)


def _varied(scenario: Scenario, key: str | None, factor: float) -> Scenario:
    gpu = scenario.cluster.graph_server.gpu is not None
    if key is None:
        return scenario
    section, _, rest = key.partition(".")
    if section == "graph":
        assert scenario.graph is not None
        graph = dataclasses.replace(scenario.graph, **{rest: factor * getattr(scenario.graph, rest)})
        return dataclasses.replace(scenario, graph=graph)
    path = f"graph_server.gpu.{rest}" if section == "gpu" else rest
    if gpu != (section == "gpu") and path.startswith("graph_server.") and "network" not in path:
        return scenario  # a GPU's servers have other speeds than these
    if path.startswith("function.") and not scenario.cluster.functions:
        return scenario
    value = factor * functools.reduce(getattr, path.split("."), scenario.cluster)
    value = max(1.0, value) if path.endswith("lone_thread") else value
    return dataclasses.replace(scenario, cluster=changed(scenario.cluster, {path: value}))


def _content(found: Mapping[str, Cell]) -> dict[str, Any]:
    return {other: cell._asdict() for other, cell in found.items()}


def _off(ours: float, other: float) -> str:
    return f"{100 * (ours / other - 1):+.0f} %"


if __name__ == "__main__":
    main()
