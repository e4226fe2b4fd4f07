"""Simulated runs: their directory holds one file, simulated.json, written once the run is done.

The file has the run's settings, the content of `dorylax simulate --json`, its wall time, and its environment.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dorylax.environment import environment
from dorylax.errors import named
from dorylax.experiments.measures import of_result
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.runs.result import EpochRecord
from dorylax.store.digest import sealed, unsealed
from dorylax.store.durable import make_folder, write_json
from dorylax.store.run_directory import SCHEMA, RunDirectoryError, now

if TYPE_CHECKING:
    from dorylax.observers.base import Observer

_FILE = "simulated.json"


def simulate_one(run: Run, path: Path | None, observer: Observer) -> RunOutcome:
    """Simulate a run; `path` is its directory, or None to write nothing.

    Raises:
        ConfigError, ScenarioError, SplitError, ValueError, OSError: As `simulate`; or the file system refuses.
    """
    from dorylax.simulation.run import settling, simulate  # loads JAX

    assert run.simulation is not None
    begun = time.perf_counter()
    scenario = run.simulation.scenario(run.name, run.config)
    epochs = min(run.simulation.how.epochs or settling(scenario.pipeline) + 2, run.config.train.epochs)
    observer.started(epochs, 0)
    found = simulate(scenario, epochs=epochs, on_epoch=lambda done: observer.epoch(_record(done - 1, math.nan)))
    content = {
        "schema": SCHEMA,
        "run": run.key,
        "settings": run.dotted(),
        "found": found.to_dict(),
        "wall_seconds": time.perf_counter() - begun,
        "environment": {**environment(), "started": now()},
    }
    if path is not None:
        make_folder(path)
        write_json(path / _FILE, sealed(content))
    return _done(run, content)


def inspect_simulated(run: Run, path: Path) -> RunOutcome | None:
    """The outcome of a run by its directory; None if it is not done.

    Raises:
        RunDirectoryError: Its file is damaged, or belongs to another run.
    """
    file = path / _FILE
    try:
        with named(file):
            text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = unsealed(json.loads(text), without=0)
        if content["schema"] > SCHEMA:
            raise RunDirectoryError(
                f"{file} has schema {content['schema']}, this version of dorylax reads up to {SCHEMA}: update it"
            )
        if content["run"] != run.key:
            raise RunDirectoryError(f"{path} holds another run than its name says: delete it")
        return _done(run, content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunDirectoryError(f"{file} is damaged ({error}): delete it, and the run is simulated again") from None


def history(summary: Mapping[str, Any]) -> Sequence[EpochRecord]:
    """The simulated epochs in an outcome's summary; only their seconds are known."""
    return [_record(epoch, seconds) for epoch, seconds in enumerate(summary["found"]["simulated_epochs"])]


def _record(epoch: int, seconds: float) -> EpochRecord:
    return EpochRecord(epoch, math.nan, None, None, None, seconds)


def _done(run: Run, content: Mapping[str, Any]) -> RunOutcome:
    found = content["found"]
    summary = {**of_result(found), "found": found, "timings": {"wall": content["wall_seconds"]}}
    return RunOutcome(run, "done", summary, environment=dict(content["environment"]))
