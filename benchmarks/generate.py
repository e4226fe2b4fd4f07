"""How fast `communities` is generated: edges per second and peak memory, graph and features together.

    python benchmarks/generate.py                                    # medium and reddit-small
    python benchmarks/generate.py --sizes reddit-large               # 1.3 billion edges, about 10 GB

Edges are directed, as in the paper's Table 1. Each size runs in a process of its own, so that peaks are its own.
"""

from __future__ import annotations

import time

from dorylax.graph import datasets
from harness.child import in_child
from harness.command_line import parsed, parser_of
from harness.measure import peak_bytes


def measure(size: str) -> None:
    start = time.perf_counter()
    data = datasets.load("communities", size=size)
    seconds = time.perf_counter() - start
    rate = data.graph.num_edges / seconds / 1e6
    print(
        f"{size:<13} {data.graph.num_vertices:>11,} vertices {data.graph.num_edges:>14,} edges {seconds:>8.1f} s "
        f"{rate:>6.1f} M edges/s {peak_bytes() / 2**30:>6.1f} GiB",
        flush=True,
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", default=["medium", "reddit-small"])
    for size in parsed(parser, sizes=["tiny"]).sizes:
        in_child(measure, size)


if __name__ == "__main__":
    main()
