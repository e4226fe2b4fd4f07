"""Trains undisturbed, then with strangers at its endpoints: `python visited_run.py FOLDER KIND:COUNT …`.

Prints a line of JSON for each kind of strangers.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final
from unittest import mock

import optax
from flax import nnx

import dorylax
from dorylax.layers import GCN
from dorylax.runs.result import EpochRecord, TrainResult
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.server import DataServer

_EPOCHS = 8
_EPOCH_SECONDS = 0.2
"""That a visited epoch lasts at least: strangers need time to do what they do."""
_SETTLE_SECONDS = 10.0
_LIMIT = 1_024
"""Soft limit of open files that the runs begin with: fewer than there are strangers."""


@final
class Visitors:
    """Strangers at the endpoints of the run that is made within `expected`, from before it has workers; an observer, too.

    Args:
        kind: of `strangers.KINDS`; None: nobody comes.
        count: how many.
    """

    def __init__(self, kind: str | None = None, count: int = 0) -> None:
        self._kind, self._count = kind, count
        self._keys: list[RunKeys] = []
        self._process: subprocess.Popen[str] | None = None

    @contextlib.contextmanager
    def expected(self) -> Iterator[None]:
        """Learns where the run's endpoints are; sends the strangers home at its end."""
        make, offer = RunKeys.make, DataServer.offer

        def making() -> RunKeys:
            self._keys.append(make())
            return self._keys[-1]

        def offering(server: DataServer, address: str, name: str, arrays: Any) -> None:
            offer(server, address, name, arrays)
            if self._kind is not None and self._process is None:  # all endpoints are open, and no worker has started
                self._process = self._come(self._kind, name, list(server._endpoints))

        with mock.patch.object(RunKeys, "make", making), mock.patch.object(DataServer, "offer", offering):
            try:
                yield
            finally:
                if self._process is not None:
                    self._process.kill()
                    self._process.communicate()

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """See `Observer`."""

    def epoch(self, record: EpochRecord) -> None:  # noqa: ARG002
        """See `Observer`."""
        if self._process is not None:
            assert self._process.poll() is None, "the strangers have died"
            time.sleep(_EPOCH_SECONDS)

    def finished(self, result: TrainResult) -> None:
        """See `Observer`."""

    def _come(self, kind: str, name: str, addresses: list[str]) -> subprocess.Popen[str]:
        program = str(Path(__file__).with_name("strangers.py"))
        process = subprocess.Popen(
            [sys.executable, program, kind, str(self._count), name, *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(self._keys[-1].to_json() + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n", "the strangers have died"
        return process


def losses(folder: Path, visitors: Visitors) -> list[float]:
    """Of each epoch of a run, with a checkpoint after each."""
    data = dorylax.load("communities", size="tiny")
    trainer = dorylax.Trainer(
        GCN(data.num_features, 16, data.num_classes, rngs=nnx.Rngs(0)),
        data,
        optimizer=optax.adam(0.01),
        epochs=_EPOCHS,
        run_directory=folder,
        checkpoint_every=1,
        observers=[visitors],
        pipeline=dorylax.PipelineConfig(
            intervals=4, tensor=dorylax.TensorConfig(backend="local", workers=2, transport="tcp")
        ),
    )
    with visitors.expected():
        return [record.loss for record in trainer.fit().history]


def held() -> dict[str, int]:
    """What this process holds."""
    return {
        "descriptors": len(os.listdir("/dev/fd")),
        "threads": threading.active_count(),
        "children": sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")),
    }


def left_behind(before: dict[str, int]) -> dict[str, int]:
    """How much more than before this process holds, once the system has let go of what has ended."""
    end = time.monotonic() + _SETTLE_SECONDS
    while True:
        more = {name: now - before[name] for name, now in held().items() if now > before[name]}
        if not more or time.monotonic() > end:
            return more
        time.sleep(0.05)


def main() -> None:
    """Prints what came of each trial."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    folder, *strangers = sys.argv[1:]
    undisturbed = losses(Path(folder) / "undisturbed", Visitors())
    before = held()
    for number, (kind, count) in enumerate(word.split(":") for word in strangers):
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, bytes on macOS
        visited = losses(Path(folder) / str(number), Visitors(kind, int(count)))
        found = {
            "kind": kind,
            "same": visited == undisturbed,
            "grown": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory,
            "left": left_behind(before),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
