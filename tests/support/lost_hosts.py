"""Training by hosts while something is lost: what came of it beside a run in which nothing was."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx

from dorylax.errors import RunError
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.connection import connected
from dorylax.serverless.config import TensorConfig
from dorylax.store.servers import Loss
from dorylax.trainer import Trainer
from support.in_hosts import at_phase, first_in_hosts, reached
from support.kept import broken, counted, finished
from support.leftovers import sockets
from support.processes import below, command, named, workers_of
from support.ray_cluster import RayCluster

EPOCHS, EPOCH = 5, 2
STALENESS = 2
TIMEOUT_SECONDS = 3.0
MOST_SECONDS = 10.0
"""That the loss of a graph server may cost beside an epoch."""

NODES = 2

TARGETS = (
    "graph server",
    "parameter server, one of two",
    "the only parameter server",
    "tensor worker",
    "driver",
    "node",
)
OTHERS = (
    "stopped, and back",
    "tensor worker that hangs",
    "the only tensor worker hangs",
    "a second loss during recovery",
    "all at once",
    "node, and another one",
    "disk full at a checkpoint",
)
"""Lost while graph server 0 stands at a gather; hosts write files of asynchronous checkpoints alone."""

ON_RAY = ("node", "node, and another one")
UNNOTICED = (
    "tensor worker",
    "tensor worker that hangs",
    "the only tensor worker hangs",
    "driver",
    "disk full at a checkpoint",
)
"""Of which the run itself notes no loss: nothing is replaced by it, or it ends and is resumed."""


class Outcome(NamedTuple):
    """What came of a cell of the matrix.

    Attributes:
        same: whether the bits are those of the run in which nothing was lost; None where that is not to be expected.
        wrong: what is not as it must be, but for the bits.
        losses: that the run went on after.
        seconds: that the run took longer than the one in which nothing was lost.
    """

    same: bool | None
    wrong: list[str]
    losses: list[Loss]
    seconds: float

    @property
    def good(self) -> bool:
        """Whether all is as it must be, however long it took."""
        return self.same is not False and not self.wrong


class Trained(NamedTuple):
    """A run: losses of its epochs, its last parameters, what it lost, seconds, and what was counted in each epoch."""

    losses: list[float]
    params: list[np.ndarray]
    lost: list[Loss]
    seconds: float
    counts: list[dict[str, int]]


def options_of(mode: str, target: str, nodes: RayCluster | None) -> dict[str, Any]:
    """How a cell trains. Asynchronous intervals may run ahead from the beginning, and read whatever there is."""
    found: dict[str, Any] = {"servers": 2, "intervals": 2, "hosts": "processes", "mode": mode}
    if mode == "async":
        found |= {"staleness": STALENESS, "freshness": 0.0, "stability_gate": False}
    if target == "parameter server, one of two":
        found["parameter_servers"] = 2
    if target in ("tensor worker", "the only tensor worker hangs"):
        found["tensor"] = TensorConfig(placement="functions", backend="local", workers=2, deadline=TIMEOUT_SECONDS)
    if target == "tensor worker that hangs":
        # A call counts as late only beside ten others of its stage: those of two epochs.
        found |= {"intervals": 6, "tensor": TensorConfig(placement="functions", backend="local", workers=4)}
    if target == "stopped, and back":
        found["host_timeout"] = TIMEOUT_SECONDS
    if target in ON_RAY:
        assert nodes is not None
        found |= {"hosts": "ray", "ray": nodes.config(cpus=1, timeout=60)}
        if target != "node":  # of which one alone has not enough room for three servers and two workers
            found["tensor"] = TensorConfig(placement="functions", backend="ray", workers=2)
    return found


def lose(mode: str, target: str, phase: str = "gather", nodes: RayCluster | None = None) -> Outcome:
    """Trains, loses something at a phase, and compares.

    Args:
        mode: "pipe" or "async".
        target: one of `TARGETS`, which is killed, or of `OTHERS`.
        phase: one of `PHASES`.
        nodes: a cluster of `NODES` nodes; of targets `ON_RAY`.
    """
    with tempfile.TemporaryDirectory(prefix="dx-") as place:
        if nodes is not None:
            nodes.complete(NODES)
        options = options_of(mode, target, nodes)
        wanted = _undisturbed(options)
        before = _held()
        cell = _Cell(mode, target, options, Path(place), nodes)
        with _temporary_in(cell.temporary):
            found = cell.driver_lost(phase) if target == "driver" else cell.lost(phase)
        wrong = [*cell.wrong, *_left(before, nodes), *(f"left: {path}" for path in cell.temporary.iterdir())]
        untold = [epoch for loss in found.lost for epoch in range(cell.finished, loss.epoch)]
        wrong += broken(cell.run, wanted.counts, EPOCHS, options.get("staleness", 0), untold=untold)
    same = None
    if mode == "pipe":
        same = found.losses == wanted.losses and all(map(np.array_equal, found.params, wanted.params))
    if len(found.losses) != EPOCHS or not np.isfinite(found.losses).all():
        wrong.append(f"losses {found.losses}")
    expected = range(1, 3) if target == "a second loss during recovery" else [int(target not in UNNOTICED)]
    if len(found.lost) not in expected:
        wrong.append(f"{len(found.lost)} losses")
    if any(loss.epoch < cell.finished for loss in found.lost):
        wrong.append(f"epochs were run again that were finished: {cell.finished}")
    return Outcome(same, wrong, found.lost, found.seconds - wanted.seconds)


class _Cell:
    """One thing that is lost, in one run.

    Attributes:
        run, signs, temporary: folders: of the run, for signs between processes, for temporary files.
        finished: epochs, when it was lost.
        wrong: what was seen to be.
    """

    def __init__(self, mode: str, target: str, options: dict[str, Any], folder: Path, nodes: RayCluster | None) -> None:
        self._mode, self._target, self._options, self._nodes = mode, target, options, nodes
        self.run, self.signs, self.temporary = (folder / name for name in ("run", "signs", "t"))
        self.signs.mkdir()
        self.temporary.mkdir()
        self.finished = 0
        self.wrong: list[str] = []
        self._later: list[threading.Thread] = []

    def lost(self, phase: str) -> Trained:
        """Trains, and loses it."""
        if self._target == "disk full at a checkpoint":
            # Such a run ends, and says so; the same command goes on where there is room again.
            with first_in_hosts(fill_disk_once, str(self.signs)), contextlib.suppress(RunError):
                self._train()
            if not (self.signs / "full").exists():
                self.wrong.append("nobody wrote a file")
            return self._train(resume=True)
        with at_phase(phase, EPOCH, self.signs, self._act):
            found = self._train()
            for thread in self._later:
                thread.join()
        if reached(self.signs) is None:
            self.wrong.append(f"nobody came to {phase}: nothing was lost")
        return found

    def driver_lost(self, phase: str) -> Trained:
        """Trains in a process of its own, which is killed; another one goes on from its checkpoint."""
        begin = time.perf_counter()
        words = [json.dumps(sys.path), self._mode, phase, str(self.run), str(self.signs)]
        with subprocess.Popen([sys.executable, "-c", _DRIVER, *words], stderr=subprocess.DEVNULL) as process:
            while reached(self.signs) is None and process.poll() is None:
                time.sleep(0.002)
            its = below(process.pid)
            process.kill()
            process.wait()
        if len(its) < 3 or reached(self.signs) is None:
            self.wrong.append(f"nobody came to {phase}: nothing was lost")
        end = time.monotonic() + MOST_SECONDS
        while (left := [pid for pid in its if command(pid)]) and time.monotonic() < end:
            time.sleep(0.01)
        self.wrong += [f"left: {pid}" for pid in left]
        return self._train(resume=True)._replace(seconds=time.perf_counter() - begin)

    def _train(self, *, resume: bool = False) -> Trained:
        return train(self._options, self.run, resume=resume)

    def _act(self, stands: int) -> None:
        """Loses it, while a process stands at the phase. Hosts are graph servers 0 and 1, then parameter servers."""
        self.finished = finished(self.run)
        found = hosts()
        nodes = self._nodes
        match self._target:
            case "graph server":
                _kill(found[0])
            case "parameter server, one of two" | "the only parameter server":
                _kill(found[2])
            case "tensor worker":
                _kill(workers_of(found[0])[0])
            case "tensor worker that hangs" | "the only tensor worker hangs":
                os.kill(workers_of(found[0])[0], signal.SIGSTOP)
            case "all at once":
                _kill(*found)
            case "a second loss during recovery":
                _kill(found[0])
                self._soon(1.0, lambda: _kill(hosts()[-1]))
            case "stopped, and back":
                os.kill(found[1], signal.SIGSTOP)
                self._soon(3 * TIMEOUT_SECONDS, lambda: _go_on(found[1]))
            case "node" | "node, and another one":
                assert nodes is not None
                nodes.lose_node_of(stands)
                if self._target != "node":
                    self._soon(3.0, lambda: nodes.complete(NODES))
            case other:
                raise ValueError(f"nobody knows how to lose {other!r}")

    def _soon(self, seconds: float, act: Callable[[], None]) -> None:
        self._later.append(threading.Thread(target=lambda: time.sleep(seconds) or act(), name="later", daemon=True))
        self._later[-1].start()


def _kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _held() -> set[str]:
    """Processes of this one, but for those of a Ray cluster, and its sockets."""
    ours = [pid for pid in below(os.getpid()) if named(pid) != "dorylax warm" and b"ray" not in command(pid)]
    return {f"process {pid}" for pid in ours} | sockets()


def _left(before: set[str], nodes: RayCluster | None) -> list[str]:
    """What is there that was not before; the system may take a moment to show that it has gone."""
    end = time.monotonic() + MOST_SECONDS
    while (left := _held() - before) and nodes is None and time.monotonic() < end:
        time.sleep(0.01)
    if nodes is None:
        return [f"left: {one}" for one in sorted(left)]
    with connected(nodes.config()) as ray:  # lets go of its sockets only later
        while actors := [one for one in ray.state.actors().values() if one["State"] != "DEAD"]:
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        groups = [one for one in ray.util.placement_group_table().values() if one["state"] != "REMOVED"]
    return [f"left: {one}" for one in [*actors, *groups]]


@contextlib.contextmanager
def _temporary_in(folder: Path) -> Iterator[None]:
    """Has temporary files of this process, and of those that it starts, made in a folder."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before[1]
        os.environ.pop("TMPDIR")
        if before[0] is not None:
            os.environ["TMPDIR"] = before[0]


_UNDISTURBED: dict[str, Trained] = {}


def _undisturbed(options: dict[str, Any]) -> Trained:
    """The run in which nothing is lost, once for all cells that train alike; how long hosts are waited for is no matter."""
    key = repr({name: value for name, value in options.items() if name != "host_timeout"})
    if key not in _UNDISTURBED:
        with tempfile.TemporaryDirectory(prefix="dx-") as place:
            _UNDISTURBED[key] = train(options, Path(place) / "run")
    return _UNDISTURBED[key]


def train(options: dict[str, Any], folder: Path, *, resume: bool = False) -> Trained:
    """Trains into a folder, with a checkpoint after every other epoch."""
    begin = time.perf_counter()
    data = load("communities", size="tiny")
    model = GCN(data.num_features, 8, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0))
    trainer = Trainer(
        model,
        data,
        optimizer=optax.adam(0.01),
        epochs=EPOCHS,
        checkpoint_every=2,
        pipeline=PipelineConfig(**options),
        run_directory=folder,
        resume=resume,
    )
    result = trainer.fit()
    lost = [Loss(**one) for one in (result.pipeline or {})["losses"]]
    params = [np.asarray(leaf) for leaf in jax.tree.leaves(result.params)]
    losses = [one.loss for one in result.history]
    return Trained(losses, params, lost, time.perf_counter() - begin, counted(folder))


def hosts() -> list[int]:
    """The processes of hosts that this process has started, in the order in which it has."""
    return [pid for pid in sorted(below(os.getpid())) if named(pid).startswith("dorylax host")]


_DRIVER = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from pathlib import Path
from support.lost_hosts import be_driver
be_driver(*sys.argv[2:])
"""


def be_driver(mode: str, phase: str, folder: str, signs: str) -> None:
    """Trains until it is killed."""
    with at_phase(phase, EPOCH, Path(signs), lambda _: time.sleep(60)):
        train(options_of(mode, "driver", None), Path(folder))


def fill_disk_once(folder: str) -> None:
    """The first file of a checkpoint that a host writes finds the disk full."""
    from dorylax.pipeline import saved

    write = saved.write_part

    def writes(*given: Any, **named: Any) -> Any:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(f"{folder}/full", os.O_CREAT | os.O_EXCL))
            raise OSError(28, "No space left on device")
        return write(*given, **named)

    saved.write_part = writes  # type: ignore[assignment]
