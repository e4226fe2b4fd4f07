"""Processes that begin together, are stopped or are killed want one file or folder: downloads, caches, results, runs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from hostile.base import Line, Outcome, tried
from hostile.commands import STUDY, SWEEP, TRAIN, difference, hidden, run_result, server, sweep_result
from hostile.worker import DiedError, Ended, Worker, stopped, until

# isort: split
from support.processes import alive, below

_AT_ONCE = 3
_BODY = bytes(range(256)) * 4096
_BODY_SHA256 = hashlib.sha256(_BODY).hexdigest()
_CHUNKS = 8
_TRAIN = (*TRAIN, "--model", "gcn", "--epochs", "20", "--out", "run")
_LONG_SWEEP = SWEEP.replace("train.epochs: 2", "train.epochs: 15").replace("seeds: [0]", "seeds: [0, 1]")
_STUDY = (STUDY, "--sweep", "../two.yaml", "--out", "sweep", "--jobs", "2", "--tensorboard")


# Roles: functions that several processes run concurrently. Each returns a text to compare with the expected one.


def ready() -> None:
    """Does nothing but import this module."""


def fetch(url: str) -> str:
    """Gets a published file into the cache, in chunks that are smaller than it."""
    from dorylax.graph.datasets import download
    from dorylax.graph.datasets.download import Source

    download._CHUNK = len(_BODY) // _CHUNKS
    (path,) = download.fetch("thing", [Source("things/thing.bin", url, _BODY_SHA256)]).values()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def order(_: str) -> str:
    """Orders graphs by community, of which the cache keeps two."""
    from dorylax.graph.graph import Graph
    from dorylax.graph.partition import locality

    locality.WORTH_KEEPING, locality._MOST_FILES = 0, 2
    found = hashlib.sha256()
    for seed in range(6):
        source, target = np.random.default_rng(seed).integers(0, 3000, (2, 12_000))
        found.update(locality.cached_locality_order(Graph.from_coo(source, target, 3000)).tobytes())
    return found.hexdigest()


def predict(file: str, count: int = 20) -> str:
    """Writes predictions to one file, as `dorylax predict --out` does, and reads the file each time."""
    from dorylax.cli import predictions
    from dorylax.graph import datasets

    data = datasets.load("communities", size="tiny")
    for _ in range(count):
        predictions.write(Path(file), np.full((1000, 2), os.getpid(), np.float32), data)
        if read_predictions(file) != "whole":
            return "mixed"
    return "whole"


def read_predictions(file: str) -> str:
    """Reads the predictions that one of them has written."""
    with np.load(file) as archive:
        return "whole" if len(np.unique(archive["logits"])) == 1 else "mixed"


# Trials.


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    (folder / "two.yaml").write_text(_LONG_SWEEP)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(folder / f"worker-{k}")) for k in range(2 if tiny else _AT_ONCE)]
        here = _Contention(folder, workers)
        few = 1 if tiny else 5
        trials: list[tuple[str, int, Callable[[int], tuple[Outcome, str]]]] = [
            ("a download: wanted together", few, here.download),
            ("a file of predictions: one of its writers is killed", 4 * few, here.predictions),
            ("a run directory: trained in together", few, here.trained_together),
            ("a download: its first process is killed", 2 * _CHUNKS, here.download_killed),
            ("the cache of vertex orders: filled together, one is killed", 3 * few, here.orders),
            ("a run directory: its trainer is stopped, then goes on", few, here.trainer_stopped),
            ("a run directory: its trainer is killed, another goes on", few, here.trainer_killed),
            ("a sweep's folder: run in together, with two jobs each", few, here.sweeps_together),
            ("a sweep's folder: its process is killed, another goes on", few, here.sweep_killed),
        ]
        for fault, count, trial in trials[: 2 if tiny else None]:
            yield tried(fault, 1 if tiny else count, trial)


@final
class _Contention:
    """The trials.

    Args:
        folder: For their files.
        workers: Processes that contend.
    """

    def __init__(self, folder: Path, workers: list[Worker]) -> None:
        self._folder, self._workers, self._count = folder, workers, 0
        self._alone: dict[str, Any] = {}
        for worker in workers:
            worker.call(ready)

    def _free(self) -> Path:
        self._count += 1
        folder = self._folder / f"work-{self._count}"
        folder.mkdir()
        return folder

    # Small files.

    def _roles(
        self,
        role: Callable[[str], str],
        argument: object,
        wanted: str,
        wait: Callable[[], object] | None = None,
        **env: str,
    ) -> tuple[Outcome, str]:
        """All begin; after a `wait` the first is killed; the others return the wanted text, and so does a later one."""
        for worker in self._workers:
            worker.start(role, str(argument), **env)
        if wait is not None:
            wait()
            self._workers[0].kill()
        try:
            said = [worker.result() for worker in self._workers[wait is not None :]]
            said.append(self._workers[0].call(role, str(argument), **env))
        except DiedError as error:
            return "crashed", str(error)
        return ("survived", "") if set(said) == {wanted} else ("lost", str(said))

    def download(self, _: int) -> tuple[Outcome, str]:
        """Several processes download the same slow file."""
        with server(_BODY, _CHUNKS, lambda: time.sleep(0.02)) as url:
            return self._roles(fetch, url, _BODY_SHA256, DORYLAX_CACHE=str(self._free()))

    def download_killed(self, number: int) -> tuple[Outcome, str]:
        """The first one is killed when it has some chunks, before the others begin or while they wait."""
        cache, (first, *others) = self._free(), self._workers
        part = cache / "things" / "thing.bin.part"
        with server(_BODY, _CHUNKS, lambda: time.sleep(0.1)) as url:
            first.start(fetch, url, DORYLAX_CACHE=str(cache))
            begun = number % _CHUNKS * (len(_BODY) // _CHUNKS)
            if not until(lambda: part.exists() and part.stat().st_size >= begun):
                return "crashed", "nothing was fetched"
            if number >= _CHUNKS:
                for worker in others:
                    worker.start(fetch, url, DORYLAX_CACHE=str(cache))
                time.sleep(0.05)
            first.kill()
            for worker in others if number < _CHUNKS else ():
                worker.start(fetch, url, DORYLAX_CACHE=str(cache))
            try:
                said = {worker.result() for worker in others}
            except DiedError as error:
                return "crashed", str(error)
        return ("survived", "") if said == {_BODY_SHA256} else ("lost", str(said))

    def predictions(self, number: int) -> tuple[Outcome, str]:
        """A file of which a whole one is always there."""
        path = self._free() / "predictions.npz"
        self._workers[0].call(predict, str(path), 1)
        wait = random.Random(number).uniform(0.0, 0.3)
        found = self._roles(predict, path, "whole", lambda: time.sleep(wait))
        if found[0] == "survived" and self._workers[0].call(read_predictions, str(path)) != "whole":
            return "lost", "it is mixed"
        return found

    def orders(self, seed: int) -> tuple[Outcome, str]:
        """Each gets the order that one alone gets."""
        right, cache = self._workers[0].call(order, "", DORYLAX_CACHE=str(self._free())), self._free()

        def wait() -> None:
            until(lambda: any(path.is_file() for path in cache.rglob("*")))
            time.sleep(random.Random(seed).uniform(0.0, 0.05))

        return self._roles(order, "", right, wait, DORYLAX_CACHE=str(cache))

    # Commands.

    def _judged(self, kind: str, folder: Path, *ended: Ended) -> tuple[Outcome, str]:
        """One has done it and the others were refused or found it done; the result is one command's alone."""
        said = str([(one.code, one.errors[-500:]) for one in ended])
        if not all(one.in_one_line for one in ended):
            return "crashed", said
        if all(one.code != 0 for one in ended) or hidden(folder):
            return "lost", said
        words, result = {"run": (_TRAIN, _run), "sweep": (_STUDY, _sweep)}[kind]
        if kind not in self._alone:
            alone = self._free()
            if (one := self._workers[0].command(words, alone)).code != 0:
                raise RuntimeError(f"{kind} does not even run undisturbed: {one}")
            self._alone[kind] = result(alone)
        try:
            found = result(folder)
        except Exception as error:
            return "lost", f"{type(error).__name__}: {error}"
        differs = difference(self._alone[kind], found)
        return ("lost", differs) if differs else ("survived", "")

    def _together(self, kind: str, words: tuple[str, ...]) -> tuple[Outcome, str]:
        folder = self._free()
        for worker in self._workers[:2]:
            worker.start_command(words, folder)
        return self._judged(kind, folder, *(worker.command_result() for worker in self._workers[:2]))

    def trained_together(self, _: int) -> tuple[Outcome, str]:
        """`dorylax train` twice, where nothing is yet: the later one is refused."""
        return self._together("run", _TRAIN)

    def sweeps_together(self, _: int) -> tuple[Outcome, str]:
        """One sweep, given twice."""
        return self._together("sweep", _STUDY)

    def trainer_stopped(self, _: int) -> tuple[Outcome, str]:
        """A stopped process still holds its run."""
        folder, (first, second, *_) = self._free(), self._workers
        first.start_command(_TRAIN, folder)
        if not until((folder / "run" / "seed-0" / "metrics.jsonl").exists):
            return "crashed", "it did not begin"
        with stopped(first.pid):
            refused = second.command((*_TRAIN, "--resume"), folder)
        if refused.code == 0 or f"process {first.pid}" not in refused.errors:
            return "lost", f"not refused: {refused}"
        return self._judged("run", folder, first.command_result(), refused)

    def trainer_killed(self, _: int) -> tuple[Outcome, str]:
        """A killed process leaves no lock."""
        folder, (first, second, *_) = self._free(), self._workers
        first.start_command(_TRAIN, folder)
        if not until((folder / "run" / "seed-0" / "metrics.jsonl").exists):
            return "crashed", "it did not begin"
        first.kill()
        return self._judged("run", folder, second.command((*_TRAIN, "--resume"), folder))

    def sweep_killed(self, _: int) -> tuple[Outcome, str]:
        """The jobs of a killed sweep end with it, so that another sweep continues their runs."""
        folder, (first, second, *_) = self._free(), self._workers
        first.start_command(_STUDY, folder)
        if not until(lambda: any((folder / "sweep").glob("runs/*/metrics.jsonl"))):
            return "crashed", "it did not begin"
        jobs = below(first.pid)
        first.kill()
        found = self._judged("sweep", folder, second.command(_STUDY, folder))
        ended = until(lambda: not {one.pid for one in alive()} & set(jobs), 10.0)
        return found if ended else ("crashed", "jobs are left")


def _run(folder: Path) -> Any:
    return run_result(folder / "run" / "seed-0")


def _sweep(folder: Path) -> Any:
    with contextlib.suppress(OSError):  # empty, once a run that failed is done
        (folder / "sweep" / "errors").rmdir()
    return sweep_result(folder)
