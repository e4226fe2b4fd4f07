"""Small commands that write files, as trials disturb them: their inputs, their results, and their error messages."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import json
import os
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from hostile.disk_shim import Kind, Operation, Watch, build, lacking, operations
from hostile.worker import Ended, Worker

DORYLAX, STUDY = "dorylax.cli.app:main", "dorylax.experiments.run:main"
DATA = ("--data", "communities", "--set", "data.size=tiny")
TRAIN = (DORYLAX, "train", *DATA, "--epochs", "2", "--set", "train.checkpoint_every=1")
SWEEP = """
base: {data.name: communities, data.size: tiny, model.name: gcn, train.epochs: 2, train.checkpoint_every: 1}
grid: {model.hidden_features: [4, 8]}
seeds: [0]
"""
_PIPELINE = ("servers=2", "intervals=2", "mode=async", "staleness=1", "clock=virtual")


@final
@dataclasses.dataclass(frozen=True)
class Command:
    """A command that trials disturb.

    Attributes:
        name: For tables.
        words: Its program and arguments, in a folder.
        result: Its results in the folder, as plain values without times.
        resume: Words that make it continue with files of an earlier run.
        before: A command that has run in the folder before, undisturbed.
        prepare: Puts its input into a folder next to the one that is watched.
        tries: Number of its operations that fail; each of them once if it has fewer.
        resumes: Whether it continues with the files in its folder and clears half-written ones.
        cached: Whether its result is only kept to save time, and may be lost.
    """

    name: str
    words: Sequence[str]
    result: Callable[[Path], Any]
    resume: Sequence[str] = ()
    before: Sequence[str] = ()
    prepare: Callable[[Worker, Path], object] = lambda *_: None
    tries: int = 40
    resumes: bool = False
    cached: bool = False


def commands(address: str) -> list[Command]:
    """All of them; downloads are from an address."""
    train = (*TRAIN, "--model", "gcn", "--out", "run")
    pipeline = [word for one in _PIPELINE for word in ("--set", f"pipeline.{one}")]
    predict = (DORYLAX, "predict", "--run", "../given/trained", "--out", "predictions.npz")
    study = (STUDY, "--sweep", "../given/two.yaml", "--out", "sweep", "--jobs", "1", "--tensorboard")
    partition = (DORYLAX, "partition", *DATA, "--servers", "2", "--out", "deep/parts")
    more = (*train, "--epochs", "3", "--resume")
    return [
        Command("train", train, _run_result, ("--resume",), tries=120, resumes=True),
        Command("train, resumed for more epochs", more, _run_result, before=train, resumes=True),
        Command("train, a pipeline", (*train, *pipeline), _run_result, ("--resume",), resumes=True),
        Command("a sweep of two runs", study, sweep_result, prepare=_sweep_file, resumes=True),
        Command("predict", predict, _prediction, prepare=_trained),
        Command("partition", partition, _partition),
        Command("a download", ("hostile.commands:fetch", address, _BODY_SHA256), _all_files, cached=True),
    ]


# Results.


def run_result(folder: Path) -> Any:
    """All of a run's directory but times."""
    from dorylax.store.checkpoint import Checkpoints

    checkpoint = Checkpoints(folder / "checkpoints").restore()
    assert checkpoint is not None
    groups = {f"{group}/{name}": array for group, named in checkpoint.arrays.items() for name, array in named.items()}
    arrays = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in groups.items()}
    metrics = [without_times(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = without_times(json.loads((folder / "summary.json").read_text()))
    if summary["pipeline"] is not None:
        summary["pipeline"].pop("counters")  # of all attempts together
    return [arrays, without_times(checkpoint.record), metrics, summary, (folder / "config.yaml").read_bytes()]


def _run_result(folder: Path) -> Any:
    """Of `dorylax train --out run`. A trace, which tells times, may be missing: the command has then warned."""
    results = without_times(json.loads((folder / "run" / "results.json").read_text()))
    results["pipeline"] = None
    return [run_result(folder / "run" / "seed-0"), results, (folder / "run" / "results.csv").read_bytes()]


def sweep_result(folder: Path) -> Any:
    """Of a sweep in `sweep`."""
    sweep = folder / "sweep"
    runs = {path.name: run_result(path) for path in (sweep / "runs").iterdir()}
    made = sorted(path.name for path in (*sweep.glob("[!.]*"), *(sweep / "figures").iterdir()))
    events = [len(list(run.glob("tensorboard/events*"))) > 0 for run in sorted((sweep / "runs").iterdir())]
    return [made, runs, (sweep / "results.csv").read_bytes(), (sweep / "sweep.json").read_bytes(), events]


def _prediction(folder: Path) -> Any:
    with np.load(folder / "predictions.npz") as arrays:
        return {name: array.tobytes() for name, array in arrays.items()}


def _partition(folder: Path) -> Any:
    parts = folder / "deep" / "parts"
    return [without_times(json.loads((parts / "manifest.json").read_text())), (parts / "parts.npy").read_bytes()]


def _all_files(folder: Path) -> Any:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


_TIMES = {"seconds", "seconds_per_epoch", "timings", "digest", "files"}  # digests are of all values, times among them


def without_times(fields: Any) -> Any:
    """Plain values without those that a repetition changes."""
    if isinstance(fields, dict):
        return {key: without_times(value) for key, value in fields.items() if key not in _TIMES}
    return [without_times(one) for one in fields] if isinstance(fields, list) else fields


def difference(expected: Any, found: Any, where: str = "") -> str:
    """The first place where two plain values differ; empty if there is none."""
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [(f"{where}[{k}]", *both) for k, both in enumerate(zip(expected, found, strict=True))]
    elif isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        pairs = [(f"{where}.{key}", expected[key], found[key]) for key in expected]
    else:
        return "" if expected == found else f"{where}: {str(expected)[:200]} ≠ {str(found)[:200]}"
    return next((difference(*both, place) for place, *both in pairs if both[0] != both[1]), "")


def not_restored(path: Path) -> str:
    """The reason why the newest checkpoint is not this one or a later; empty if it is."""
    from dorylax.errors import RunWarning
    from dorylax.store.checkpoint import Checkpoints

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # of a newer one, which was not acknowledged
        try:
            found = Checkpoints(path.parent).restore()
        except Exception as error:
            return f"{path.name} was acknowledged: {error}"
    if found is None or found.path.name < path.name:
        return f"{path.name} was acknowledged, and {found and found.path.name} is the newest that can be read"
    return ""


def hidden(folder: Path) -> list[str]:
    """Half-written files and folders, which should not be left. Abandoned lock files do not count: they block no process."""
    found = [path for path in folder.rglob("*") if path.name.startswith(".") and path.name != ".lock"]
    return sorted(str(path.relative_to(folder)) for path in found)


# Error messages.

_RUN = re.compile(r"\[\d+/\d+\] .+?: (?P<failed>failed: )?(?P<what>.+)")
_FAILED = re.compile(r"(?P<number>\d+) of \d+ runs failed; the first one's traceback: (?P<path>.+)")
_HIDDEN = re.compile(r"\S*/\.\S+\.dorylax-[0-9a-f]{8}\S*")
_WORD = re.compile(r"[^\s:'\"(),]+")


def complaint(ended: Ended, folder: Path, known: Collection[str]) -> str:
    """Return the fault in the end of a command whose disk failed; empty if there is none.

    It ends with 0 and warnings at most, or with 1 and one line with the reason, after a line for each run of a sweep. A
    reason names a file of the user; a sweep of which runs have failed says where the traceback is.

    Args:
        ended: The end.
        folder: The command's.
        known: Names of files and folders that it was given, or has touched.
    """
    if "Traceback (most recent call last)" in ended.output + ended.errors:
        return f"it printed a traceback: {ended.errors}"
    lines = [line for line in ended.errors.splitlines() if not line.startswith("warning: ")]
    runs = [run for line in lines if (run := _RUN.fullmatch(line))]
    failed, ends = [run["what"] for run in runs if run["failed"]], lines[len(runs) :]
    if ended.code == 0 and not failed and not ends:
        return ""
    if ended.code != 1 or len(ends) != 1:
        return f"it ended with {ended.code}, and said: {ended.errors or 'nothing'}"
    if end := _FAILED.fullmatch(ends[0]):
        if int(end["number"]) != len(failed) or not (folder / end["path"]).is_file():
            return f"it counts failed runs that it has not named, or has no traceback where it says: {ended.errors}"
    elif not ends[0].startswith("error: "):
        return f"it ends with a line that is no error: {ended.errors}"
    else:
        failed.append(ends[0].removeprefix("error: "))
    for what in failed:
        if _HIDDEN.search(what):
            return f"it names a file that users do not know: {what}"
        words = [word for word in _WORD.findall(what) if Path(word).name in known]
        if not any("/" in word or "." in word or what.startswith(f"{word}: ") for word in words):
            return f"it names no file: {what}"
    return ""


# Inputs.


def _trained(worker: Worker, folder: Path) -> None:
    worker.command([*TRAIN, "--model", "gcn", "--out", folder / "trained"], folder)


def _sweep_file(_: Worker, folder: Path) -> None:
    (folder / "two.yaml").write_text(SWEEP)


_BODY = bytes(range(256)) * 16
_BODY_SHA256 = hashlib.sha256(_BODY).hexdigest()


def fetch(words: Sequence[str]) -> int:
    """A download, as commands fetch data: the arguments are its address and its SHA-256; the cache is the folder here."""
    import click

    from dorylax.graph.datasets import download
    from dorylax.graph.datasets.download import Source
    from dorylax.terminal.run import run

    os.environ["DORYLAX_CACHE"] = str(Path("cache").absolute())
    download._CHUNK = 1000
    command = click.Command("fetch", callback=lambda: download.fetch("thing", [Source("family/thing.bin", *words)]))
    return run(command, "fetch", [])


@contextlib.contextmanager
def server(body: bytes = _BODY, chunks: int = 1, pause: Callable[[], object] = lambda: None) -> Iterator[str]:
    """Serve a file, or any part of it, in chunks with pauses between them. Yield its address."""

    class Files(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            begin = int(re.sub(r"\D", "", self.headers.get("Range") or "0"))
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(body) - begin))
            self.end_headers()
            with contextlib.suppress(OSError):  # the client was killed
                for place in range(begin, len(body), len(body) // chunks):
                    self.wfile.write(body[place : place + len(body) // chunks])
                    pause()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/thing.bin"
        finally:
            running.shutdown()
            thread.join()


# Trials.


@contextlib.contextmanager
def disturbed(folder: Path, only: Sequence[int] | None = None) -> Iterator[Iterator[Disturbed]]:
    """The commands, or those with these numbers; none where the shim cannot be built, which is printed."""
    if missing := lacking():
        print(f"  left out: it needs {missing}")
        yield iter(())
        return
    folder = folder.resolve()
    with Worker(folder / "worker", {"LD_PRELOAD": str(build(folder)), "COLUMNS": "1000"}) as worker, server() as url:
        chosen = commands(url)
        numbers = range(len(chosen)) if only is None else only
        yield (Disturbed(chosen[number], worker, folder / str(number)) for number in numbers)


@final
class Disturbed:
    """A command, which was run once undisturbed.

    Attributes:
        command: The command.
        begin: Folder with all that was there before it.
        expected: Its result.
        done: Operations of its run in folder `first`.
    """

    def __init__(self, command: Command, worker: Worker, folder: Path) -> None:
        self.command, self.begin = command, folder / "begin"
        self._worker, self._folder, self._log, self._count = worker, folder, folder / "log", 0
        (folder / "given").mkdir(parents=True)
        command.prepare(worker, folder / "given")
        self.begin.mkdir()
        if command.before:
            worker.command(command.before, self.begin)
        for _ in range(2):  # the first one compiles
            self.first = self.fresh(self.begin)
            ended = self.run(command.words, self.first)
            if ended.code != 0:
                raise RuntimeError(f"{command.name} does not even run undisturbed: {ended}")
        self.expected, self.done = command.result(self.first), self.log()

    def fresh(self, like: Path | None = None) -> Path:
        """A folder; never the same, as threads of a failed command may still be writing."""
        self._count += 1
        folder = self._folder / f"work-{self._count}"
        if like is None:
            folder.mkdir()
        else:
            shutil.copytree(like, folder)
        return folder

    def run(self, words: Sequence[str], work: Path, *fails: Any) -> Ended:
        """Runs a command in a folder, where an operation `fails`: its number, and the fault."""
        self._log.unlink(missing_ok=True)
        return self._worker.command(words, work, Watch(work, self._log, *fails))

    def run_again(self, work: Path, *, empty: bool) -> Ended:
        """Runs the command once more, resumed; from the start if that is refused and there may be nothing to resume."""
        again = self.run([*self.command.words, *self.command.resume], work)
        return self.run(self.command.words, work) if again.code == 2 and self.command.resume and empty else again

    def log(self) -> list[Operation]:
        """The operations of the last run."""
        return list(operations(self._log))

    def differs(self, work: Path) -> str:
        """How the result in a folder differs; empty if it does not."""
        try:
            found = self.command.result(work)
        except Exception as error:
            return f"the result cannot be read: {type(error).__name__}: {error}"
        return difference(self.expected, found)


def acknowledged(done: Sequence[Operation]) -> str | None:
    """The newest checkpoint that was acknowledged, by its path; None for none."""
    saved = [one.path for one in done if one.kind is Kind.MARK and one.path.startswith("saved ")]
    return saved[-1].removeprefix("saved ") if saved else None
