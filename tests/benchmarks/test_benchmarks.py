"""Every benchmark runs with --tiny and prints its table; figures are not judged."""

from __future__ import annotations

import importlib.util
import json
import logging
import multiprocessing
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from support.lost_hosts import Outcome
from support.scripts import run_script

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import losses
from faults import FAMILIES

from hostile.disk_shim import lacking

FOLDER = Path(losses.__file__).parent
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in path.read_text())
OWN_PROCESS = ("larger", "mutation")
"""Benchmarks whose parts get processes of their own, since they limit their memory. Others would import everything again."""

PRINTS = {
    "asynchrony": r"async S=1 +epochs +\d.* × \[",
    "cluster": r"from sockets \S+ MB per epoch, by Program.cost\(\) ",
    "faults": r"all +\d",
    "full_graph": r"(?m)^dorylax +\S+ s +1.0 ×",
    "gather": r"16 .* backward +\S+ \(",
    "gpu": r"(?s)device: .*model GAT, gradient .*tiny, gcn +\S+ ms",
    "importing": r"dorylax import, slice .* M edges/s +peak (.*\n)sort -n, slice .*\npandas, slice",
    "larger": r"losses \d.*; peak \d(.*\n)+(.*nothing was streamed|epochs take \d.* × the larger bound)",
    "latency_hiding": r"pipe / bound +\d",
    "memory": r"communities:gcn:data.size=tiny +\S+ GiB",
    "mutation": r"1 planted faults: 1 killed",
    "paper": r"gcn-reddit-small +functions / cpu: T \d.*\n.*\n +graph.cut_ratio -25% ",
    "placement": r"(?s)largest loss of auto: \S+%.*measured: servers \S+ s",
    "pipeline": r"pipe, 2 intervals .* × single(.*\n)+one task at a time, 16 intervals",
    "scaling": r"largest over smallest: 1.00",
    "simulation": r"3 seeds, each run twice: 0 with something that does not hold, 0 that differ",
    "soak": r"(?s)workers: own, MiB +\d.*the end: clean",
    "stability": r"K seeds +ahead(.*\n)communities.* 2 +1 +\d+%",
    "time_to_accuracy": r"(?s)tiny's shape.* core-seconds .*dorylax +\S+ %.*of 1 trials",
    "validity": r"threads, 1 server.* s +[+-]\d+\.\d %(.*\n)+1 configurations: median error",
}
"""A part of each one's output."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., int]]:
    """Runs a script in a process that lasts for all of them; those that it starts share what JAX compiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            yield lambda *arguments, **options: pool.submit(run_script, *arguments, **options).result()
        finally:
            for process in multiprocessing.active_children():
                process.kill()
            pool.shutdown()


CASES = [(path, ()) for path in BENCHMARKS if path.stem not in ("faults", "losses")]
# Each family of faults by itself: together they take minutes.
CASES += [(FOLDER / "faults.py", ("--only", name)) for name in FAMILIES]


@pytest.mark.parametrize(
    ("script", "options"), CASES, ids=lambda part: part.stem if isinstance(part, Path) else "".join(part[-1:])
)
def test_it_runs_at_a_tiny_size(
    script: Path, options: tuple[str, ...], run: Callable[..., int], tmp_path: Path
) -> None:
    words, kept = ["--tiny", *options], []
    if 'add_argument("--json"' in script.read_text():
        kept = [tmp_path / "found.json"]
        words += ["--json", str(kept[0])]
    status = run(script, words, tmp_path / "output", children=script.stem in OWN_PROCESS)
    printed = (tmp_path / "output").read_text()
    assert status == 0, printed
    assert re.search(PRINTS[script.stem], printed), printed
    for path in kept:
        assert json.loads(path.read_text())
    assert ("left out: " in printed) == lacks_something(script.stem), printed


def lacks_something(name: str) -> bool:
    """Whether a part of a benchmark cannot run here."""
    if name == "faults":
        return lacking() is not None
    compilers = ("c++", "g++", "clang++")
    if name == "gather" and not any(map(shutil.which, (os.environ.get("CXX", ""), *compilers))):
        return True
    needs = {
        "full_graph": ("torch_geometric",),
        "gather": ("torch_geometric",),
        "gpu": ("torch", "torch_geometric"),
        "time_to_accuracy": ("torch_geometric", "dgl"),
    }
    return any(importlib.util.find_spec(one) is None for one in needs.get(name, ()))


def test_losses_are_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Losing something takes minutes; tests/pipeline/hosts/test_losses.py does that with the same function."""
    caplog.set_level(logging.ERROR, "dorylax")  # as the benchmark sets it; this is undone
    found = iter([Outcome(True, [], [], 0.5), Outcome(False, ["left: 7"], [], 0.5)])
    monkeypatch.setattr(losses, "lose", lambda *_: next(found))
    monkeypatch.setattr(sys, "argv", ["losses.py", "--tiny", "--phases", "gather", "stage"])
    with pytest.raises(SystemExit, match="1"):
        losses.main()
    good, bad, last = capsys.readouterr().out.splitlines()
    assert good.split() == ["pipe", "graph", "server", "gather", "good,", "same", "bits,", "+0.5", "s", "in", "all"]
    assert bad.endswith("BAD, OTHER BITS, +0.5 s in all, left: 7")
    assert last == "2 cells, 1 bad"
