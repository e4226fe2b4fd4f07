"""Golden runs: the cases, and the fingerprint of one run: its losses, weights, bill, spans and names."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jaxlib
import numpy as np
from support import compilation
from support.pipelines import make_model, messy_data, optimizer

from dorylax.ops import native
from dorylax.pipeline.config import PipelineConfig
from dorylax.serverless.config import TensorConfig
from dorylax.trainer import Trainer

RUNS = Path(__file__).parent / "runs.json"
NAMES = Path(__file__).parent / "names.json"
EPOCHS = 4
SEED = 7
_PLAIN = {"freshness": 0, "predict_weights": "none"}
BOUNDED = {"per_epoch": {**_PLAIN, "stability_gate": False}, "per_interval": _PLAIN}
"""Bounded staleness and nothing else."""
RUNNING = {  # settings of the pipeline
    "no-pipe": {"mode": "no-pipe"},
    "pipe": {"mode": "pipe"},
    **{
        f"async-{staleness}-{update}": {"mode": "async", "staleness": staleness, "update": update, **BOUNDED[update]}
        for staleness in (0, 1)
        for update in ("per_epoch", "per_interval")
    },
    "async": {"mode": "async", "stability_gate": False},  # a limit below 1 lets nobody run ahead in so few epochs
}
MODELS = ("gcn", "gat", "sage", "drifting")


class Case(NamedTuple):
    """One run; on the virtual clock, unless it has workers."""

    running: str
    model: str
    parameter_servers: int = 1
    sync_every: int = 1
    resumed: bool = False
    workers: bool = False

    def __str__(self) -> str:
        further = [word for word, given in (("resumed", self.resumed), ("workers", self.workers)) if given]
        return "-".join([self.running, self.model, f"p{self.parameter_servers}", f"s{self.sync_every}", *further])


WHOLE = [Case(r, m, p, s) for r in RUNNING for m in MODELS for p in (1, 3) for s in (1, 3)]
RESUMED = [Case(r, "drifting", 3, 3, resumed=True) for r in RUNNING]
WORKERS = [Case("pipe", model, 3, workers=True) for model in MODELS]
CASES = [*WHOLE, *RESUMED, *WORKERS]
# Every mode is resumed with one model; the others are one mode each.
FEW = [Case("no-pipe", "gcn"), Case("pipe", "gat", 3, 3), Case("async", "sage", 3), *RESUMED, WORKERS[0]]


def fingerprint(case: Case, folder: Path) -> dict[str, Any]:
    """Trains one case in a folder.

    Returns:
        "losses" of the epochs, to four digits; a hash of the "weights" of the last epoch and of all digits of the losses,
        which depend on the kind of processor; and on the virtual clock hashes of "bill" and "spans", and the "names". Spans
        have resource, server, interval, epoch, start and duration of each task. Names of tasks, servers and lanes are apart
        from them, so that renaming changes no hash.
    """
    pipeline = PipelineConfig(
        servers=2,
        intervals=3,
        edge_chunk=40,
        parameter_servers=case.parameter_servers,
        sync_every=case.sync_every,
        clock="real" if case.workers else "virtual",
        tensor=TensorConfig(placement="functions", **{"backend": "local", "workers": 2} if case.workers else {}),
        **RUNNING[case.running],  # type: ignore[arg-type]
    )
    data = messy_data(40, 160)
    for epochs in (EPOCHS // 2, EPOCHS) if case.resumed else (EPOCHS,):
        trainer = Trainer(
            make_model(case.model, data),
            data,
            optimizer=optimizer(),
            epochs=epochs,
            seed=SEED,
            run_directory=folder,
            resume=epochs == EPOCHS and case.resumed,
            pipeline=pipeline,
        )
        result = trainer.fit()
    losses = [record.loss for record in result.history]
    leaves = jax.tree.leaves_with_path(result.last_params)
    weights = [[jax.tree_util.keystr(path), np.asarray(leaf).tobytes().hex()] for path, leaf in leaves]
    found: dict[str, Any] = {"losses": [float(f"{loss:.4g}") for loss in losses], "weights": _hash([losses, weights])}
    if not case.workers:
        found["bill"] = _hash(json.loads((folder / "summary.json").read_text())["pipeline"])
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        tasks = [(event["args"], event) for event in events if event["ph"] == "X"]
        where = ("kind", "server", "interval", "epoch")
        found["spans"] = _hash(sorted([*(args[key] for key in where), task["ts"], task["dur"]] for args, task in tasks))
        named = {f"{args['kind']}: {task['name']}" for args, task in tasks}
        lanes = {f"{event['name']}: {event['args']['name']}" for event in events if event["ph"] == "M"}
        found["names"] = sorted(named | {re.sub(r"\d+$", "#", lane) for lane in lanes})
    return found


def kind() -> str:
    """The kind of processor, as coarse as rounding allows: architecture, vector instructions, compiler, native kernels."""
    found = f"{platform.machine()} {compilation.INSTRUCTIONS} jaxlib {jaxlib.__version__}"
    return found if native.status().available else f"{found} without kernels"


@contextlib.contextmanager
def rounding_as_recorded() -> Iterator[None]:
    """Native kernels use the vector instructions that XLA may use, here and in processes that are started."""
    before = native.status().instruction_set
    wanted = {"AVX2": "avx2", "SSE4_2": "baseline"}.get(compilation.INSTRUCTIONS)
    if before is None or wanted is None:
        yield
        return
    native.choose_instruction_set(wanted)  # type: ignore[arg-type]
    with mock.patch.dict(os.environ, DORYLAX_NATIVE=wanted):
        yield
    native.choose_instruction_set(before)  # type: ignore[arg-type]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
