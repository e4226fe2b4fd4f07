"""Training by hosts while something is lost: what came of it beside a run in which nothing was."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx

from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.runs.checkpoint import CheckpointError
from dorylax.runs.losses import Loss
from dorylax.serverless.config import TensorConfig
from dorylax.trainer import Trainer
from harness.in_hosts import at_phase, first_in_hosts, stop_for
from harness.processes import below

EPOCHS, EPOCH = 5, 2
TIMEOUT_SECONDS = 2.0

TARGETS = ("graph server", "parameter server, one of two", "the only parameter server", "tensor worker", "driver")
OTHERS = ("stopped, and back", "a second loss during recovery", "all at once", "disk full at a checkpoint")
"""Lost while graph server 0 stands at a gather; hosts write files of asynchronous checkpoints alone."""


class Outcome(NamedTuple):
    """What came of a cell of the matrix.

    Attributes:
        same: whether the bits are those of the run in which nothing was lost; None where that is not to be expected.
        finite: whether all losses are finite, and all epochs there.
        losses: that the run went on after.
        seconds: that the run took longer than the one in which nothing was lost.
        left: processes and files that are left.
    """

    same: bool | None
    finite: bool
    losses: list[Loss]
    seconds: float
    left: list[str]

    @property
    def good(self) -> bool:
        """Whether all is as it must be."""
        return self.same is not False and self.finite and not self.left


class Trained(NamedTuple):
    """A run: losses of its epochs, its last parameters, what it lost, and seconds."""

    losses: list[float]
    params: list[np.ndarray]
    lost: list[Loss]
    seconds: float


def options_of(mode: str, target: str) -> dict[str, Any]:
    """How a cell trains."""
    found: dict[str, Any] = {"servers": 2, "intervals": 2, "hosts": "processes", "mode": mode}
    if target == "parameter server, one of two":
        found["parameter_servers"] = 2
    if target == "tensor worker":
        found["tensor"] = TensorConfig(backend="local", workers=2)
    if target == "stopped, and back":
        found["host_timeout"] = TIMEOUT_SECONDS
    return found


def lose(mode: str, target: str, phase: str = "gather") -> Outcome:
    """Trains, loses something at a phase, and compares.

    Args:
        mode: "pipe" or "async".
        target: one of `TARGETS`, which is killed, or of `OTHERS`.
        phase: one of `PHASES`.
    """
    with tempfile.TemporaryDirectory(prefix="dx-") as place:
        folder = Path(place)
        wanted = _undisturbed(mode, target)
        before = set(below(os.getpid()))
        signs, temporary = folder / "signs", folder / "t"
        signs.mkdir()
        temporary.mkdir()
        with _temporary_in(temporary):
            found = _lost(mode, target, phase, folder, signs)
        time.sleep(0.1)
        left = [str(pid) for pid in set(below(os.getpid())) - before]
        left += [str(path) for path in temporary.iterdir()]
    same = None
    if mode == "pipe":
        same = found.losses == wanted.losses and all(map(np.array_equal, found.params, wanted.params))
    finite = len(found.losses) == EPOCHS and bool(np.isfinite(found.losses).all())
    return Outcome(same, finite, found.lost, found.seconds - wanted.seconds, left)


def _lost(mode: str, target: str, phase: str, folder: Path, signs: Path) -> Trained:
    if target == "driver":
        return _lost_driver(mode, phase, folder, signs)
    if target == "disk full at a checkpoint":
        # Such a run ends, and says so; the same command goes on where there is room again.
        with first_in_hosts(fill_disk_once, str(signs)), contextlib.suppress(CheckpointError):
            train(mode, target, folder / "run")
        return train(mode, target, folder / "run", resume=True)
    with at_phase(phase, EPOCH, signs, lambda: _act(target)):
        return train(mode, target, folder / "run")


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


@functools.lru_cache
def _undisturbed(mode: str, target: str) -> Trained:
    with tempfile.TemporaryDirectory(prefix="dx-") as place:
        return train(mode, target, Path(place) / "run")


def train(mode: str, target: str, folder: Path, *, resume: bool = False) -> Trained:
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
        pipeline=PipelineConfig(**options_of(mode, target)),
        run_directory=folder,
        resume=resume,
    )
    result = trainer.fit()
    lost = [Loss(**one) for one in (result.pipeline or {})["losses"]]
    params = [np.asarray(leaf) for leaf in jax.tree.leaves(result.params)]
    return Trained([one.loss for one in result.history], params, lost, time.perf_counter() - begin)


def hosts() -> list[int]:
    """The processes of hosts that this process has started, in the order in which it has."""
    return [pid for pid in sorted(below(os.getpid())) if b"dorylax.pipeline.hosts.process" in _command(pid)]


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _act(target: str) -> None:
    """Kills who is to be killed. Hosts: graph servers 0 and 1, then parameter servers."""
    found = hosts()
    victims: Mapping[str, Callable[[], list[int]]] = {
        "graph server": lambda: [found[0]],
        "parameter server, one of two": lambda: [found[2]],
        "the only parameter server": lambda: [found[2]],
        "tensor worker": lambda: [pid for pid in below(found[0]) if b"worker" in _command(pid)][:1],
        "a second loss during recovery": lambda: [found[0]],
        "all at once": lambda: found,
    }
    if target == "stopped, and back":
        stop_for(found[1], 3 * TIMEOUT_SECONDS)
        return
    for pid in victims[target]():
        os.kill(pid, signal.SIGKILL)
    if target == "a second loss during recovery":
        threading.Timer(1.0, lambda: os.kill(hosts()[-1], signal.SIGKILL)).start()


def _lost_driver(mode: str, phase: str, folder: Path, signs: Path) -> Trained:
    """A driver in a process of its own, which is killed; another one goes on from its checkpoint."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", _DRIVER, json.dumps(sys.path), mode, phase, str(folder / "run"), str(signs)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not (signs / "reached").exists() and process.poll() is None:
            time.sleep(0.002)
        its = below(process.pid)
        process.kill()
        process.wait()
    end = time.monotonic() + 10
    while any(map(_command, its)) and time.monotonic() < end:
        time.sleep(0.01)
    found = train(mode, "driver", folder / "run", resume=True)
    return found._replace(seconds=time.perf_counter() - begin)


_DRIVER = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from pathlib import Path
from harness.lost_hosts import be_driver
be_driver(*sys.argv[2:])
"""


def be_driver(mode: str, phase: str, folder: str, signs: str) -> None:
    """Trains until it is killed."""
    with at_phase(phase, EPOCH, Path(signs), lambda: time.sleep(60)):
        train(mode, "driver", Path(folder))


def fill_disk_once(folder: str) -> None:
    """The first file of a checkpoint that a host writes finds the disk full."""
    from dorylax.pipeline.hosts import checkpoint_parts

    write = checkpoint_parts.write_part

    def writes(*given: Any, **named: Any) -> Any:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(f"{folder}/full", os.O_CREAT | os.O_EXCL))
            raise OSError(28, "No space left on device")
        return write(*given, **named)

    checkpoint_parts.write_part = writes  # type: ignore[assignment]
