"""What the golden file knows of a run: hashes of its weights, bill and spans, for modes, models and parameter servers."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib
import numpy as np
from support.pipelines import make_model, messy_data, optimizer

from dorylax.pipeline.config import PipelineConfig
from dorylax.serverless.config import TensorConfig
from dorylax.trainer import Trainer

FILE = Path(__file__).parent / "runs.json"
EPOCHS = 4
SEED = 7
_PLAIN = {"freshness": 0, "predict_weights": "none"}
BOUNDED = {"per_epoch": {**_PLAIN, "oscillation_limit": 1}, "per_interval": _PLAIN}
"""Nothing but bounded staleness."""
RUNNING = {  # what is run, beside the model
    "no-pipe": {"mode": "no-pipe"},
    "pipe": {"mode": "pipe"},
    **{
        f"async-{staleness}-{update}": {"mode": "async", "staleness": staleness, "update": update, **BOUNDED[update]}
        for staleness in (0, 1)
        for update in ("per_epoch", "per_interval")
    },
    "async": {"mode": "async", "oscillation_limit": 1},  # with which nobody would be ahead in so few epochs
}
MODELS = ("gcn", "gat", "sage", "drifting")


class Case(NamedTuple):
    """One run on the virtual clock, but where it has workers."""

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
# Of each mode one model, of each model one mode, and all that is not a plain run.
FEW = [Case(r, MODELS[k % 4], 3, 3) for k, r in enumerate(RUNNING)] + RESUMED + WORKERS[:1]


def fingerprint(case: Case, folder: Path) -> dict[str, Any]:
    """Trains and says what came of it.

    Returns:
        "losses" of the epochs; hashes of "weights" (those of the last epoch, whose rounding is the processor's) and, on the
        virtual clock, "bill" and "spans", names and order of all tasks with their times in them.
    """
    pipeline = PipelineConfig(
        servers=2,
        intervals=3,
        edge_chunk=40,
        parameter_servers=case.parameter_servers,
        sync_every=case.sync_every,
        clock="real" if case.workers else "virtual",
        tensor=TensorConfig(backend="local", workers=2) if case.workers else TensorConfig(),
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
    leaves = jax.tree.leaves_with_path(result.last_params)
    weights = [[jax.tree_util.keystr(path), np.asarray(leaf).tobytes().hex()] for path, leaf in leaves]
    found: dict[str, Any] = {"losses": [record.loss for record in result.history], "weights": _hash(weights)}
    if not case.workers:
        summary = json.loads((folder / "summary.json").read_text())
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        found["bill"] = _hash({key: summary[key] for key in summary if key == "pipeline"})
        found["spans"] = _hash(events)
    return found


@functools.cache
def processor() -> str:
    """What rounding depends on: the processor, as far as compilers see it, and the compiler."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = platform.processor()
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    said = [found.group(1) for found in (model, flags) if found]
    return _hash([platform.machine(), jaxlib.__version__, *said])


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
