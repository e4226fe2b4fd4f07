"""Small commands that write files, as trials disturb them: what they read, and how two of their results are compared."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import click
import numpy as np

from harness.warm_process import WarmProcess

DORYLAX, EXPERIMENTS, FETCH = "dorylax.cli.app:main", "dorylax.experiments.run:main", "harness.small_commands:fetch"
DATA = ("--data", "communities", "--set", "data.size=tiny")
TRAIN = (DORYLAX, "train", *DATA, "--epochs", "2", "--set", "train.checkpoint_every=1")
PIPELINE = (
    *("pipeline.servers=2", "pipeline.intervals=2", "pipeline.mode=async", "pipeline.staleness=1"),
    *("pipeline.clock=virtual", "model.hidden_features=4"),
)
SWEEP = """
base: {data.name: communities, data.size: tiny, model.name: gcn, train.epochs: 2, train.checkpoint_every: 1}
grid: {model.hidden_features: [4, 8]}
seeds: [0]
"""


@final
@dataclasses.dataclass(frozen=True)
class Command:
    """A command whose writes fail.

    Attributes:
        name: for tables.
        words: its program and arguments, in a folder.
        result: what it has made in the folder, so that two can be compared: times left out.
        resume: what is added to `words` to go on where something is there already.
        before: a command that has run in the folder before, undisturbed.
        prepare: puts what it reads into a folder of its own, beside the one that is watched.
        tries: how many of its operations fail, in all; each of them once if it has fewer.
        resumes: whether it goes on with what is in its folder, and clears what was left there half-written.
        cached: whether what it makes is only kept to save time, and may be lost.
    """

    name: str
    words: Sequence[str]
    result: Callable[[Path], Any]
    resume: Sequence[str] = ()
    before: Sequence[str] = ()
    prepare: Callable[[WarmProcess, Path], None] = lambda *_: None
    tries: int = 40
    resumes: bool = False
    cached: bool = False


# What a command has made.


def run_result(folder: Path) -> Any:
    """Of a run's directory: everything but times."""
    from dorylax.runs.checkpoint import Checkpoints

    checkpoint = Checkpoints(folder / "checkpoints").restore()
    arrays = (
        None
        if checkpoint is None
        else {
            f"{group}/{name}": hashlib.sha256(array.tobytes()).hexdigest()
            for group, named in checkpoint.arrays.items()
            for name, array in named.items()
        }
    )
    record = None if checkpoint is None else without_times(checkpoint.record)
    metrics = [without_times(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = without_times(json.loads((folder / "summary.json").read_text()))
    if summary["pipeline"] is not None:
        summary["pipeline"].pop("counters")  # of all attempts together
    return [arrays, record, metrics, summary, (folder / "config.yaml").read_bytes()]


def hidden(folder: Path) -> list[str]:
    """Half-written files and folders, which nobody should find there; what is left of a lock keeps nobody out."""
    found = [path for path in folder.rglob("*") if re.match(r"\.|.*orbax-.*tmp", path.name) and path.name != ".lock"]
    return sorted(str(path.relative_to(folder)) for path in found)


_TIMES = {"seconds", "seconds_per_epoch", "timings", "digest"}  # of all values, times among them


def without_times(fields: Any) -> Any:
    """Plain values without those that a repetition changes."""
    if isinstance(fields, dict):
        return {key: without_times(value) for key, value in fields.items() if key not in _TIMES}
    return [without_times(one) for one in fields] if isinstance(fields, list) else fields


def train_result(folder: Path) -> Any:
    """Of `dorylax train --out run`. A trace, which tells times, may be missing: the command has then warned."""
    run = folder / "run"
    results = without_times(json.loads((run / "results.json").read_text()))
    if results["pipeline"]:
        results["pipeline"] = None
    return [run_result(run / "seed-0"), results, (run / "results.csv").read_bytes()]


def sweep_result(folder: Path) -> Any:
    """Of a sweep in `sweep`."""
    sweep = folder / "sweep"
    made = sorted(path.name for path in sweep.glob("[!.]*"))
    runs = {path.name: run_result(path) for path in (sweep / "runs").iterdir()}
    figures = sorted(path.name for path in (sweep / "figures").iterdir())
    events = [len(list(run.glob("tensorboard/events*"))) > 0 for run in sorted((sweep / "runs").iterdir())]
    return [made, runs, (sweep / "results.csv").read_bytes(), (sweep / "sweep.json").read_bytes(), figures, events]


def predict_result(folder: Path) -> Any:
    """Of `dorylax predict`, in either form."""
    (path,) = (one for one in folder.iterdir() if one.name.startswith("predictions."))
    if path.suffix == ".csv":
        return path.read_bytes()
    with np.load(path) as arrays:
        return {name: array.tobytes() for name, array in arrays.items()}


def partition_result(folder: Path) -> Any:
    """Of `dorylax partition`."""
    parts = folder / "deep" / "parts"
    return [without_times(json.loads((parts / "partition.json").read_text())), (parts / "parts.npy").read_bytes()]


def files_result(folder: Path) -> Any:
    """Every file as it is."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


# What a command reads.


def _trained(process: WarmProcess, folder: Path) -> None:
    if not (folder / "trained").exists():
        process.run([*TRAIN, "--model", "gcn", "--out", folder / "trained"], folder)


def _sweep_file(process: WarmProcess, folder: Path) -> None:  # noqa: ARG001
    (folder / "two.yaml").write_text(SWEEP)


def fetch(words: Sequence[str]) -> int:
    """A download, as commands fetch data: the arguments are its address and its SHA-256; the cache is the folder here."""
    from dorylax.graph.datasets import download
    from dorylax.graph.datasets.base import Source
    from dorylax.terminal.run import run

    address, *sha256 = words
    os.environ["DORYLAX_CACHE"] = str(Path("cache").absolute())
    download._CHUNK = 1000

    @click.command()
    def command() -> None:
        download.fetch("thing", [Source("family/thing.bin", address, sha256[0] if sha256 else None)])

    return run(command, "fetch", [])


_BODY = bytes(range(256)) * 16


@final
class _Files(http.server.BaseHTTPRequestHandler):
    """Gives one file, or the rest of it."""

    def do_GET(self) -> None:
        begin = int(re.sub(r"\D", "", self.headers.get("Range", "0")))
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(_BODY) - begin))
        self.end_headers()
        self.wfile.write(_BODY[begin:])

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/thing.bin"
        finally:
            server.shutdown()
            thread.join()


def commands(address: str) -> list[Command]:
    """All of them."""
    predict = (DORYLAX, "predict", "--run", "../given/trained", "--out")
    settings = [word for setting in PIPELINE for word in ("--set", setting)]
    sha256 = hashlib.sha256(_BODY).hexdigest()
    train = (*TRAIN, "--model", "gcn", "--out", "run")
    return [
        Command("train", train, train_result, ("--resume",), tries=120, resumes=True),
        Command(
            "train, resumed for more epochs",
            (*train, "--epochs", "3", "--resume"),
            train_result,
            before=train,
            resumes=True,
        ),
        Command("train, a pipeline", (*TRAIN, *settings, "--out", "run"), train_result, ("--resume",), resumes=True),
        Command(
            "a sweep of two runs, its report and event files",
            (EXPERIMENTS, "--sweep", "../given/two.yaml", "--out", "sweep", "--jobs", "1", "--tensorboard"),
            sweep_result,
            prepare=_sweep_file,
            resumes=True,
        ),
        Command("predict, to CSV", (*predict, "predictions.csv"), predict_result, prepare=_trained),
        Command("predict, to npz", (*predict, "predictions.npz"), predict_result, prepare=_trained),
        Command("partition", (DORYLAX, "partition", *DATA, "--servers", "2", "--out", "deep/parts"), partition_result),
        Command("describe", (DORYLAX, "describe", *DATA, "--svg", "drawn.svg"), files_result),
        Command("a download", (FETCH, address, sha256), files_result, cached=True),
        Command("a download of unknown content", (FETCH, address), files_result, cached=True),
    ]


# Comparing.


def difference(expected: Any, found: Any, where: str = "") -> str:
    """The first place where two plain values differ."""
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [(f"{where}[{k}]", *both) for k, both in enumerate(zip(expected, found, strict=True))]
    elif isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        pairs = [(f"{where}.{key}", expected[key], found[key]) for key in expected]
    else:
        return f"{where}: {str(expected)[:200]} ≠ {str(found)[:200]}"
    return next((difference(*both, place) for place, *both in pairs if both[0] != both[1]), "")


def not_restored(path: Path) -> str:
    """What is wrong with the newest checkpoint, which must be this one or a later; empty if nothing is."""
    from dorylax.runs.checkpoint import Checkpoints, CheckpointWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # of a newer one, which nobody was told of
        try:
            found = Checkpoints(path.parent).restore()
        except Exception as error:
            return f"{path.name} was acknowledged: {error}"
    if found is None or found.path.name < path.name:
        return f"{path.name} was acknowledged, and {found and found.path.name} is the newest that can be read"
    return ""
