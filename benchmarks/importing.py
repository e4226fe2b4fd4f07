"""How fast a graph is imported from text within a budget of memory, compared with `sort` and pandas on a slice of it.

    python benchmarks/importing.py                                     # 100 million edges, 4 GiB; 4 GB of disk
    python benchmarks/importing.py --edges 1_000_000_000 --vertices 60_000_000 --folder /scratch      # 40 GB of disk
    python benchmarks/importing.py --edges 100_000_000 --options "--symmetrise" "--no-edge-ids"

The text has a line "source target" per edge: half of them go to a neighbour among 50,000 numbers, half anywhere, in no
order. `dorylax import` makes the archive; `sort -n` of coreutils, with as many threads and as much memory, sorts the lines,
which is less; pandas reads the slice into memory, sorts it and makes rows. `dorylax generate` writes a graph of as many
edges within the same budget. Each is a process; seconds are from its start to its end, and the peak is its largest resident
size (VmHWM of /proc/PID/status). Linux only.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.command_line import parsed, parser_of, write_json
from harness.measure import GIB, watched

_AT_ONCE = 1_000_000
_NEAR = 50_000
_PANDAS = """
import sys, numpy as np, pandas as pd
table = pd.read_csv(sys.argv[1], sep=" ", header=None, names=["source", "target"], dtype=np.int64)
table = table.sort_values(["source", "target"], kind="stable")
rows = np.searchsorted(table["source"].to_numpy(), np.arange(table.max().max() + 2))
np.savez(sys.argv[2], indptr=rows, indices=table["target"].to_numpy(np.int32), edge_ids=table.index.to_numpy(np.int32))
"""


def write_edges(path: Path, num_edges: int, num_vertices: int) -> None:
    """Writes the text."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for first in range(0, num_edges, _AT_ONCE):
            count = min(_AT_ONCE, num_edges - first)
            sources = rng.integers(0, num_vertices, count)
            near = (sources + rng.integers(-_NEAR, _NEAR, count)) % num_vertices
            targets = np.where(rng.random(count) < 0.5, near, rng.integers(0, num_vertices, count))
            flat = np.stack([sources, targets], axis=1).reshape(-1).tolist()
            file.write("%d %d\n" * count % tuple(flat))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--vertices", type=int, default=6_000_000)
    parser.add_argument("--slice", type=int, default=10_000_000, help="lines that the others get, too")
    parser.add_argument("--memory", default="4GiB", help="the budget; of sort likewise")
    parser.add_argument("--options", nargs="*", default=[], help="words of `dorylax import`, each a further run of all")
    parser.add_argument("--folder", type=Path, help="where text and archives are, for a while")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, edges=20_000, vertices=1000, slice=5_000, memory="512MiB")
    edges, memory = arguments.edges, ["--memory", arguments.memory]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="importing-") as name:
        text, part, out = (str(Path(name) / file) for file in ("edges.txt", "slice.txt", "out"))
        write_edges(Path(text), edges, arguments.vertices)
        with open(text) as whole, open(part, "w") as first:
            first.writelines(islice(whole, arguments.slice))
        importing = ["import", "--overwrite", "--out", out, *memory]
        sort = [shutil.which("sort"), "-n", "-k1,1", "-k2,2", "--parallel", str(len(os.sched_getaffinity(0)))]
        sort += ["-S", arguments.memory.removesuffix("iB"), "-T", name, "-o", str(Path(name) / "sorted"), part]
        sizes = [f"num_vertices={arguments.vertices}", f"num_edges={edges // 2 * 2}"]
        generating = ["generate", "communities", "--out", out, *memory]
        runs = [
            ("dorylax import", edges, [*importing, text]),
            *((f"dorylax import {words}", edges, [*importing, text, *words.split()]) for words in arguments.options),
            ("dorylax import, slice", arguments.slice, [*importing, part]),
            ("sort -n, slice", arguments.slice, sort),
            ("pandas, slice", arguments.slice, [sys.executable, "-c", _PANDAS, part, out]),
            ("dorylax generate", edges, [*generating, *(word for one in sizes for word in ("--set", one))]),
        ]
        print(f"{edges:,} edges, {Path(text).stat().st_size / 1e9:.2f} GB of text, within {arguments.memory}")
        for label, count, command in runs:
            found = watched(command)
            results.append({"run": label, "edges": count, "seconds": found.seconds, "peak": found.peak})
            rate = f"{found.seconds:>8.1f} s {count / found.seconds / 1e6:>7.2f} M edges/s"
            print(f"{label:<44} {count:>13,} edges {rate}  peak {found.peak / GIB:.2f} GiB", flush=True)
            shutil.rmtree(out, ignore_errors=True)
    write_json(arguments.json, {"schema": 1, "memory": arguments.memory, "runs": results})


if __name__ == "__main__":
    main()
