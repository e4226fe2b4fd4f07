"""How well the estimate of a run's memory holds: estimated and measured peaks of whole `dorylax train` processes.

    python benchmarks/memory.py                                  # medium with GCN and SAGE, fewer edges with GAT, cora
    python benchmarks/memory.py --runs communities:gcn:data.size=small mine.npz:sage
    python benchmarks/memory.py --json memory.json

A run is data:model[:KEY=VALUE,…]. Estimates are those of `dorylax info --data`. Measured is the largest resident size
(VmHWM of /proc/PID/status, file-mapped pages included) of the process that trains, added up over it and all processes it
starts. "sparse" is `communities` of size medium with 2,000,000 edges, as an archive in a temporary folder; "mapped" has 384
features, 307 MB, too. Linux only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.command_line import parsed, parser_of, write_json
from harness.estimate import estimated_peak

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
_GIB = 2**30


def peaks(pid: int) -> dict[int, int]:
    """The largest resident sizes so far of a process and its descendants, bytes by process id."""
    found: dict[int, int] = {}
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:  # it has ended
        return found
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            found[pid] = 1024 * int(line.split()[1])
    for child in children:
        found |= peaks(child)
    return found


def measure(words: list[str]) -> int:
    """The peak of `dorylax train` with these options, bytes."""
    command = [sys.executable, "-m", "dorylax", "train", "--no-save", "--json", "--epochs", "3", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    largest: dict[int, int] = {}
    while process.poll() is None:
        for pid, size in peaks(process.pid).items():
            largest[pid] = max(size, largest.get(pid, 0))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"dorylax train {' '.join(words)} ended with {process.returncode}")
    return sum(largest.values())


def options(run: str, folder: Path) -> list[str]:
    """The command line of one run."""
    data, model, *settings = run.split(":")
    place = str(folder / f"{data}.npz") if data in _ARCHIVES else data
    words = ["--data", place, "--model", model, "--set", "train.recipe=published"]
    for setting in settings[0].split(",") if settings else []:
        words += ["--set", setting]
    return words


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", nargs="+", default=_RUNS, metavar="DATA:MODEL[:KEY=VALUE,…]")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, runs=["communities:gcn:data.size=tiny"])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted({run.split(":")[0] for run in arguments.runs} & set(_ARCHIVES)):
            from dorylax.graph import datasets

            datasets.load("communities", size="medium", **_ARCHIVES[name]).save_npz(Path(folder) / f"{name}.npz")
        print(f"{'run':<44} {'estimate':>10} {'measured':>10} {'ratio':>6}  peak")
        for run in arguments.runs:
            words = options(run, Path(folder))
            estimated, phase = estimated_peak(words)
            measured = measure(words)
            results.append({"run": run, "estimate": estimated, "measured": measured, "phase": phase})
            ratio = estimated / measured
            print(
                f"{run:<44} {estimated / _GIB:>6.2f} GiB {measured / _GIB:>6.2f} GiB {ratio:>6.2f}  {phase}", flush=True
            )
    write_json(arguments.json, {"schema": 1, "runs": results})


if __name__ == "__main__":
    main()
