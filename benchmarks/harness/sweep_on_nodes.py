"""A sweep on one machine, and over two nodes of a Ray cluster, one of which is killed half way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

_NODES = 2


class Compared(NamedTuple):
    """What came of it.

    Attributes:
        runs: of the sweep.
        seconds: on one machine, and on the nodes.
        killed_after: runs that had ended when the node was killed.
        again: what was said of runs that were lost.
        tables: `results.csv` of one machine, and that of the nodes.
    """

    runs: int
    seconds: tuple[float, float]
    killed_after: int
    again: list[str]
    tables: tuple[bytes, bytes]

    @property
    def same(self) -> bool:
        """Whether the tables are, byte for byte."""
        return self.tables[0] == self.tables[1]


def compare(sweep: str, folder: Path, cores: int) -> Compared:
    """Runs it in both ways. The cluster is kept in `folder` and is another one than that of `dorylax cluster up`.

    Args:
        sweep: as of `--sweep`.
        folder: an empty one.
        cores: of each node, and of each run, also on the machine alone.

    Raises:
        SystemExit: one of the two failed, or nothing was killed.
    """
    environment = os.environ | {"NPROC": str(cores)}
    begun = time.monotonic()
    _sweep([sweep, "--out", str(folder / "here"), "--jobs", "1"], environment)
    here = time.monotonic() - begun
    environment["DORYLAX_CACHE"] = str(folder / "cache")  # where the record of the cluster is
    dorylax = [sys.executable, "-m", "dorylax", "cluster"]
    counts = ["--nodes", str(_NODES), "--cpus-per-node", str(cores)]
    subprocess.run([*dorylax, "up", *counts], env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        found = subprocess.run([*dorylax, "status", "--json"], env=environment, check=True, stdout=subprocess.PIPE)
        victim = [node["process"] for node in json.loads(found.stdout)["nodes"] if not node["head"]][-1]
        begun = time.monotonic()
        words = [sweep, "--out", str(folder / "there"), "--hosts", "ray", "--cpus-per-run", str(cores)]
        runs, killed_after, again = _sweep(words, environment, victim)
        there = time.monotonic() - begun
    finally:
        subprocess.run([*dorylax, "down"], env=environment, check=False, stdout=subprocess.DEVNULL)
    tables = [(folder / name / "results.csv").read_bytes() for name in ("here", "there")]
    return Compared(runs, (here, there), killed_after, again, (tables[0], tables[1]))


def _sweep(words: list[str], environment: dict[str, str], victim: int | None = None) -> tuple[int, int, list[str]]:
    """Runs, and kills a process once half of the runs have ended: all runs, those that had ended, what was run again."""
    command = [sys.executable, "-m", "dorylax.experiments.run", "--no-report", "--sweep", *words]
    runs = ended = killed_after = 0
    again = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            # "[3/12] …" when a run has ended, or is run again.
            if line.startswith("["):
                runs = int(line.partition("/")[2].partition("]")[0])
                if "run again" in line:
                    again.append(line.strip())
                else:
                    ended += 1
            if victim is not None and not killed_after and runs and ended >= runs // 2:
                killed_after = ended
                os.kill(victim, signal.SIGKILL)
    if process.returncode:
        raise SystemExit("".join(said) + f"{' '.join(command)} ended with {process.returncode}")
    if victim is not None and not again:
        raise SystemExit("".join(said) + "no run was lost")
    return runs, killed_after, again
