"""How fast `communities` is generated: edges per second and peak memory, graph and features together.

    python benchmarks/generate.py                                    # medium and reddit-small
    python benchmarks/generate.py --sizes reddit-large               # 1.3 billion edges, about 10 GB
    python benchmarks/generate.py --sizes amazon --to /tmp --memory 2GiB            # written to a file, in parts
    python benchmarks/generate.py --sizes friendster --to /tmp --share 0.25 --set order=community

Edges are directed, as in the paper's Table 1. Each size runs in a process of its own, so that peaks are its own. Files are
removed at the end.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from dorylax.graph import datasets
from dorylax.graph.datasets.communities import SIZES
from dorylax.settings.strict_yaml import scalar
from harness.child import in_child
from harness.command_line import parsed, parser_of
from harness.measure import peak_bytes


def measure(size: str, folder: str | None, memory: str | None, options: dict[str, Any]) -> None:
    start, processor = time.perf_counter(), time.process_time()
    if folder is None:
        datasets.load("communities", size=size, **options)
    else:
        path = Path(folder) / f"benchmark-{size}.npz"
        datasets.generate("communities", path, memory=memory, size=size, **options)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    written = ""
    if folder is not None:
        written = f"{path.stat().st_size / 1e9:>6.1f} GB "
        path.unlink()
    edges = options.get("num_edges", SIZES[size].num_edges)
    vertices = options.get("num_vertices", SIZES[size].num_vertices)
    print(
        f"{size:<13} {vertices:>11,} vertices {edges:>14,} edges {written}{seconds:>8.1f} s "
        f"({processor:.1f} s of processors) {edges / seconds / 1e6:>6.1f} M edges/s {peak_bytes() / 2**30:>6.1f} GiB",
        flush=True,
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", default=["medium", "reddit-small"])
    parser.add_argument("--share", type=float, default=1.0, help="of the size's vertices and edges")
    parser.add_argument("--to", help="folder: write files in parts instead of generating in memory")
    parser.add_argument("--memory", help="as of `dorylax generate`")
    parser.add_argument("--set", nargs="*", default=[], help="option=value of the generator")
    given = parsed(parser, sizes=["tiny"])
    for size in given.sizes:
        options = {key: scalar(text) for key, _, text in (one.partition("=") for one in given.set)}
        if given.share != 1:
            options["num_vertices"] = round(SIZES[size].num_vertices * given.share)
            options["num_edges"] = 2 * round(SIZES[size].num_edges * given.share / 2)
        in_child(measure, size, given.to, given.memory, options)


if __name__ == "__main__":
    main()
