"""Is the default recipe as good as a small search, on graphs that it was not chosen on?

Shown are graphs of $DORYLAX_DATA (amazon-photo, coauthor-cs, citationfull-dblp; 60 % of each class train, 20 % validate, and
a seed splits and trains) and three generated ones. On each, every setting of the grid trains with two seeds of its own; the
one with the best mean validation accuracy then trains with the seeds of the default, and both are compared at the epoch of
best validation. `--choose` prints the choice of the default instead: candidates on cora and pubmed, split in the same
way, and on generated graphs of other shapes and seeds.

    DORYLAX_DATA=… python benchmarks/defaults.py --out runs/defaults                    # stopped, it goes on
    DORYLAX_DATA=… python benchmarks/defaults.py --out runs/choose --choose --seeds 3

With many cores or a GPU, `--jobs 14` trains so many at a time. On a GPU they share its memory with
`XLA_PYTHON_CLIENT_PREALLOCATE=false`; `JAX_COMPILATION_CACHE_DIR=FOLDER` compiles runs once that differ in their seed only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import dorylax
from dorylax.config import RunConfig
from dorylax.graph import Dataset
from dorylax.graph.datasets import DatasetError, load
from dorylax.graph.splits import stratified_split
from harness.command_line import parsed, parser_of, write_json

CHOSEN_ON = ("cora", "pubmed", "sparse", "mixed", "units")
SHOWN_ON = ("amazon-photo", "coauthor-cs", "citationfull-dblp", "dense", "homophilous", "wide")
_SPARSE = {"average_degree": 6, "num_features": 40, "num_classes": 7, "homophily": 0.5}
_GENERATED: Mapping[str, Mapping[str, Any]] = {
    "sparse": {"seed": 77, **_SPARSE},
    "mixed": {
        "seed": 78,
        "average_degree": 20,
        "num_features": 100,
        "num_classes": 12,
        "homophily": 0.35,
        "signal": 2.0,
    },
    "units": {"seed": 79, **_SPARSE},
    "dense": {"seed": 501, "average_degree": 30, "num_features": 64, "num_classes": 10, "homophily": 0.3},
    "homophilous": {"seed": 502}
    | {"average_degree": 5, "num_features": 32, "num_classes": 5, "homophily": 0.8, "signal": 1.0},
    "wide": {"seed": 503, "average_degree": 10, "num_features": 500, "num_classes": 8, "homophily": 0.5, "signal": 3.0},
}
"""Options of `communities`; `units` then has its features in units of all sizes."""

CANDIDATES: Mapping[str, Mapping[str, Any]] = {
    f"{features} {width}{'' if norm == 'none' else f' {norm}'}": {
        **{"features": features, "model.hidden_features": width, "model.norm": norm}
    }
    for features in ("raw", "rows", "standard")
    for width, norm in ((16, "none"), (64, "none"), (64, "layer"))
}
GRID: Mapping[str, Mapping[str, Any]] = {
    f"{features}, dropout {dropout}, norm {norm}": {
        **{"features": features, "model.dropout": dropout, "model.norm": norm}
    }
    for features, dropout, norm in itertools.product(("raw", "rows"), (0.2, 0.5), ("none", "layer"))
}
_TUNING_SEEDS = (1000, 1001)
_CAPS = (100, 200, 300, 500)
"""Epochs: what a run would have reached, had it ended there."""


@functools.lru_cache(maxsize=1)
def graph(name: str, vertices: int) -> Dataset | None:
    """A graph as it is; None where it is not at hand."""
    if name in _GENERATED:
        data = load("communities", num_vertices=vertices, **_GENERATED[name])
        if name != "units":
            return data
        random = np.random.default_rng(5)
        units, zeros = np.exp(random.normal(0, 2, data.num_features)), random.normal(0, 3, data.num_features)
        return dataclasses.replace(data, features=(data.features * units + zeros).astype(np.float32))
    try:
        return load(name)
    except DatasetError:
        return None


@functools.lru_cache(maxsize=1)
def prepared(name: str, vertices: int, features: str) -> Dataset | None:
    """With its features as they are ("raw"), each row divided by its sum ("rows"), or each column standardised."""
    data = graph(name, vertices)
    if data is None or features == "raw":
        return data
    return data.row_normalised() if features == "rows" else data.standardised()


class Runs:
    """Runs, made once. Processes share them by their folder.

    Args:
        folder: A file for each; None to keep them in memory.
        model: That trains.
        epochs: Of each; None for the default's.
        vertices: Of generated graphs.
    """

    def __init__(self, folder: Path | None, model: str, epochs: int | None, vertices: int) -> None:
        self._folder, self._model, self._epochs, self._vertices = folder, model, epochs, vertices
        self._found: dict[str, dict[str, Any]] = {}

    def get(self, name: str, settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """A run: accuracies by the epochs that it might have ended with."""
        given = {key: value for key, value in settings.items() if key != "features"}
        if self._epochs is not None:
            given["train.epochs"] = self._epochs
        usual = {"model.name": self._model, "data.name": name, "train.recipe": "default", "train.seed": seed}
        config = RunConfig.resolve({**usual, **given})
        features = settings.get("features", "rows" if config.data.row_normalise else "raw")
        key = f"{name}-{self._vertices}-{features}-{config.key()}"  # the default and its equal in the grid are one run
        if key not in self._found:
            path = None if self._folder is None else self._folder / f"{key}.json"
            if path is not None and path.is_file():
                self._found[key] = json.loads(path.read_text())
            else:
                data = prepared(name, self._vertices, features)
                assert data is not None, name
                self._found[key] = self._run(config, data)
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_json(path, self._found[key])
        return self._found[key]

    def _run(self, config: RunConfig, data: Dataset) -> dict[str, Any]:
        began = time.monotonic()
        split = data.with_split(stratified_split(data.labels, config.train.seed))
        history = dorylax.Trainer.from_config(config, split).fit(interactive=False).history
        reached = {}
        for cap in sorted({min(cap, len(history)) for cap in (*_CAPS, len(history))}):
            best = max(history[:cap], key=lambda record: record.val_accuracy or 0.0)
            reached[str(cap)] = {"epoch": best.epoch, "val": best.val_accuracy, "test": best.test_accuracy}
        described = {key: value for key, value in config.dotted().items() if value is not None}
        return {"config": described, "reached": reached, "epochs": len(history), "seconds": time.monotonic() - began}

    def all(self, name: str, settings: Mapping[str, Any], seeds: Iterable[int]) -> list[dict[str, Any]]:
        """The runs of some seeds."""
        return [self.get(name, settings, seed) for seed in seeds]


def of(runs: Iterable[dict[str, Any]], part: str, cap: int | None = None) -> list[float]:
    """Accuracies of runs, in percent."""
    return [100 * run["reached"][str(min(run["epochs"], cap or run["epochs"]))][part] for run in runs]


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


Pool = Executor | None
"""Of processes that make runs; None where they are made one by one."""


def make(runs: Runs, wanted: Iterable[tuple[str, Mapping[str, Any], int]], pool: Pool) -> None:
    """Makes the missing runs, of a graph, with settings and a seed each."""
    if pool is not None:
        for made in [pool.submit(_make, runs, *run) for run in wanted]:
            made.result()


def _make(runs: Runs, *run: Any) -> None:
    runs.get(*run)  # the folder has it


def choose(runs: Runs, names: Sequence[str], seeds: int, pool: Pool) -> None:
    """Prints the mean validation accuracies of each candidate."""
    chosen = range(2000, 2000 + seeds)
    make(runs, ((name, one, seed) for seed in chosen for name in names for one in CANDIDATES.values()), pool)
    for name in names:
        print(name)
        for label, settings in CANDIDATES.items():
            made = runs.all(name, settings, chosen)
            caps = "  ".join(f"{cap}: {spread(of(made, 'val', cap))}" for cap in _CAPS)
            print(f"  {label:20} validation after {caps}  ({seeds} seeds)", flush=True)


def show(runs: Runs, names: Sequence[str], seeds: int, pool: Pool) -> None:
    """Prints the default compared with the best of the grid, by mean validation accuracy, a row for each graph."""
    make(runs, ((name, one, seed) for seed in _TUNING_SEEDS for name in names for one in GRID.values()), pool)
    make(runs, ((name, {}, seed) for name in names for seed in range(seeds)), pool)

    def mean(name: str, label: str) -> float:
        return statistics.fmean(of(runs.all(name, GRID[label], _TUNING_SEEDS), "val"))

    best = {name: max(GRID, key=lambda label, name=name: mean(name, label)) for name in names}
    make(runs, ((name, GRID[best[name]], seed) for name in names for seed in range(seeds)), pool)
    for name in names:
        usual, tuned = (of(runs.all(name, one, range(seeds)), "test") for one in ({}, GRID[best[name]]))
        gap = [b - a for a, b in zip(usual, tuned, strict=True)]
        print(
            f"{name:18} default {spread(usual)} ({seeds} seeds)  tuned {spread(tuned)} ({seeds} seeds; {best[name]})  "
            f"tuned - default {spread(gap)} points",
            flush=True,
        )


def main() -> None:
    """Prints a table."""
    parser = parser_of(__doc__)
    parser.add_argument("--graphs", nargs="+")
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, help="of every run, instead of the default's")
    parser.add_argument("--vertices", type=int, default=4000, help="of generated graphs")
    parser.add_argument("--choose", action="store_true", help="print what the default was chosen by")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="keep runs here, and go on with those there")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, in processes")
    arguments = parsed(parser, graphs=["homophilous"], seeds=1, epochs=2, vertices=300)
    if arguments.jobs > 1 and arguments.out is None:
        parser.error("with --jobs runs need a folder: --out FOLDER")
    runs = Runs(arguments.out, arguments.model, arguments.epochs, arguments.vertices)
    names = []
    for name in arguments.graphs or (CHOSEN_ON if arguments.choose else SHOWN_ON):
        if graph(name, arguments.vertices) is None:
            print(f"left out: {name}, which is not at hand")
        else:
            names.append(name)
    with contextlib.ExitStack() as stack:
        pool = None
        if arguments.jobs > 1:
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(arguments.jobs, spawn))
        (choose if arguments.choose else show)(runs, names, arguments.seeds, pool)


if __name__ == "__main__":
    main()
