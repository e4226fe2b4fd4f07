"""How well the estimate of a run's memory holds: estimated and measured peaks of whole `dorylax train` processes.

    python benchmarks/memory.py                                  # medium with GCN and SAGE, fewer edges with GAT, cora
    python benchmarks/memory.py --runs communities:gcn:data.size=small mine:sage

A run is data:model[:KEY=VALUE,…]. Estimates are those of `dorylax info --data`. The measured peak is the sum of the largest
resident sizes (VmHWM of /proc/PID/status, file-mapped pages included) of the process that trains and of all its descendants.
"sparse" is `communities` of size medium with 2,000,000 edges, as an archive in a temporary folder; "mapped" also has 384
features, 307 MB. Linux only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.command_line import parsed, parser_of, write_json
from harness.measure import GIB, watched

_RUNS = [
    "communities:gcn:data.size=medium",
    "communities:sage:data.size=medium",
    "sparse:gat",
    "sparse:sage",
    "mapped:gcn:single.order=community,data.row_normalise=false",
    "mapped:gcn:single.order=given,data.row_normalise=false",
    "mapped:gcn:single.order=given,data.row_normalise=false,model.dropout=0",
    "cora:gcn",
]
_ARCHIVES = {"sparse": {"num_edges": 2_000_000}, "mapped": {"num_edges": 2_000_000, "num_features": 384}}


def options(run: str, folder: Path) -> list[str]:
    """The command line of one run."""
    data, model, *settings = run.split(":")
    place = str(folder / data) if data in _ARCHIVES else data
    chosen = ["train.recipe=published", *(settings[0].split(",") if settings else [])]
    return ["--data", place, "--model", model, *(word for one in chosen for word in ("--set", one))]


def estimated(words: list[str]) -> tuple[int, str]:
    """The estimated peak in bytes, and its phase."""
    command = [sys.executable, "-m", "dorylax", "info", "--json", *words]
    peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["peak"]
    return peak["bytes"], peak["phase"]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", nargs="+", default=_RUNS, metavar="DATA:MODEL[:KEY=VALUE,…]")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, runs=["communities:gcn:data.size=tiny"])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted({run.split(":")[0] for run in arguments.runs} & set(_ARCHIVES)):
            from dorylax.graph import datasets

            datasets.load("communities", size="medium", **_ARCHIVES[name]).save(Path(folder) / name)
        print(f"{'run':<44} {'estimate':>10} {'measured':>10} {'ratio':>6}  peak")
        for run in arguments.runs:
            words = options(run, Path(folder))
            estimate, phase = estimated(words)
            found = watched(["train", "--no-save", "--json", "--epochs", "3", *words])
            measured = found.peak + sum(found.others)
            results.append({"run": run, "estimate": estimate, "measured": measured, "phase": phase})
            sizes = f"{estimate / GIB:>6.2f} GiB {measured / GIB:>6.2f} GiB {estimate / measured:>6.2f}"
            print(f"{run:<44} {sizes}  {phase}", flush=True)
    write_json(arguments.json, {"schema": 1, "runs": results})


if __name__ == "__main__":
    main()
