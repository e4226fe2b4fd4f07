"""How fast `communities` is generated: edges per second and peak memory, graph and features together.

    python benchmarks/generate.py                                    # medium and reddit-small
    python benchmarks/generate.py --sizes reddit-large               # 1.3 billion edges, about 10 GB

Edges are directed, as in the paper's Table 1. Each size runs in a process of its own, so that peaks are its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

from dorylax.graph import datasets


def measure(size: str) -> None:
    start = time.perf_counter()
    data = datasets.load("communities", size=size)
    seconds = time.perf_counter() - start
    gibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rate = data.graph.num_edges / seconds / 1e6
    print(
        f"{size:<13} {data.graph.num_vertices:>11,} vertices {data.graph.num_edges:>14,} edges {seconds:>8.1f} s "
        f"{rate:>6.1f} M edges/s {gibibytes:>6.1f} GiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["medium", "reddit-small"])
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for size in arguments.sizes:
        if arguments.here:
            measure(size)
        else:
            subprocess.run([sys.executable, __file__, "--here", "--sizes", size], check=True)


if __name__ == "__main__":
    main()
