"""Every benchmark runs, at sizes that take seconds, and prints its table. What it prints is not judged."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from support.scripts import run_script

from dorylax.serverless.backends.emulator.installed import find_emulator
from dorylax.settings.errors import ConfigError

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in path.read_text())
FAMILIES = sorted(path.stem for path in FOLDER.glob("hostile/*.py") if path.stem not in ("__init__", "base"))
OWN_PROCESS = ("generate", "larger", "mutation")
"""Whose parts get processes of their own: to see that they can, or since they limit their memory. Others would only import
everything again."""

PRINTS = {
    "arxiv_recipe": r"one machine, split +losses .* parameters \S+e-0\d",
    "asynchrony": r"async S=1 +epochs +\d.* × \[",
    "billion": r"`dorylax info` said \d.* of what it was",
    "cluster": r"(?s)by Program.cost\(\) .*tiny on 4 servers: .* GiB, the largest .*weak async +2 ",
    "controller": r"8, throttled +200 ",
    "defaults": r"homophilous +default \d.*tuned - default",
    "faults": r"all +\d",
    "friendster": r"tiny on functions: 2 epochs .* peak memory \d.*\nsimulated seconds of epochs: \d",
    "full_graph": r"(?m)^dorylax +\S+ s +1.0 ×",
    "gather": r"16 .* backward +\S+ \(",
    "generate": r"tiny +1,000 vertices +10,000 edges",
    "gpu": r"(?s)device: .*model GAT, gradient .*tiny, gcn +\S+ ms",
    "gradient_norm": r"S = 4 +N = 2: \S+ +N = 4: \S+ +∝ N\^",
    "importing": r"dorylax import, slice .* M edges/s +peak (.*\n)sort -n, slice .*\npandas, slice",
    "larger": r"losses \d.*; peak \d(.*\n)+(.*nothing was streamed|epochs take \d.* × the larger bound)",
    "latency_hiding": r"pipe / bound +\d",
    "losses": r"graph server +gather +good, same bits, recovered in .*\n1 cells, 0 bad",
    "memory": r"communities:gcn:data.size=tiny +\S+ GiB",
    "mutation": r"1 mutants: 1 killed, 0 survive",
    "outside_models": r"\| SIGN \|.*\n\n(.*\n)+\| SAGPool \|",
    "paper": r"gcn-reddit-small +functions / cpu: T \d.*\n.*\n +graph.cut_ratio -25% ",
    "pipeline": r"pipe, 2 intervals .* × single(.*\n)+one task at a time, 16 intervals",
    "sandboxes": r"warm task, local +\d",
    "scaling": r"largest over smallest: 1.00",
    "simulation": r"3 seeds, each run twice: 0 with something that does not hold, 0 that differ",
    "soak": r"(?s)workers: own, MiB +\d.*the end: clean",
    "tasks": r"(?s)links, communities +ROC-AUC +dorylax \d.*classes of graphs, generated +accuracy +dorylax \d",
    "time_to_accuracy": r"(?s)tiny's shape.* core-seconds .*dorylax +\S+ %.*Table 5.*AliGraph",
    "validity": r"threads, 1 server.* s +[+-]\d+\.\d %(.*\n)+2 configurations: median error",
    "tracing": r"GCN, 2 layers .* artefacts",
}
"""What is in each one's output."""


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


CASES = [(path, ()) for path in BENCHMARKS if path.stem != "faults"]
# Each family of faults by itself: together they take minutes.
CASES += [(FOLDER / "faults.py", ("--only", name)) for name in FAMILIES]


@pytest.mark.parametrize(
    ("script", "options"), CASES, ids=lambda part: part.stem if isinstance(part, Path) else "".join(part[-1:])
)
def test_it_runs_at_a_tiny_size(
    script: Path, options: tuple[str, ...], run: Callable[..., int], tmp_path: Path
) -> None:
    words, kept = ["--tiny", *options], []
    for option, name in (("--json", "found.json"), ("--out", "found")):
        if f'add_argument("{option}"' in script.read_text():
            kept.append(tmp_path / name)
            words += [option, str(kept[-1])]
    status = run(script, words, tmp_path / "output", children=script.stem in OWN_PROCESS)
    printed = (tmp_path / "output").read_text()
    assert status == 0, printed
    assert re.search(PRINTS[script.stem], printed), printed
    for path in kept:
        assert path.is_file() or any(path.iterdir())
    for file in tmp_path.rglob("*.json"):
        assert json.loads(file.read_text())
    assert ("left out: " in printed) == lacks_something(script.stem), printed


def lacks_something(name: str) -> bool:
    """Whether a part of a benchmark cannot run here."""
    if name == "sandboxes":
        try:
            find_emulator(os.environ)
        except ConfigError:
            return True
    if name == "faults":
        sys.path.insert(0, str(FOLDER))
        from harness.disk_shim import lacking

        return lacking() is not None
    compilers = ("c++", "g++", "clang++")
    if name == "gather" and not any(map(shutil.which, (os.environ.get("CXX", ""), *compilers))):
        return True
    needs = {
        "full_graph": ("torch_geometric",),
        "gather": ("torch_geometric",),
        "gpu": ("torch", "torch_geometric"),
        "tasks": ("torch", "torch_geometric"),
        "time_to_accuracy": ("torch_geometric", "dgl"),
    }
    return any(importlib.util.find_spec(one) is None for one in needs.get(name, ()))
