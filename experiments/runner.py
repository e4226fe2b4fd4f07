"""Runs the runs of a sweep, each with its own directory.

The directory of a run records whether it is done, so a sweep that is killed at any moment continues. A run that fails
leaves its traceback in `errors/`; the others go on, and the next start tries it again. The directory of a simulated run
holds one file, simulated.json: its settings, the content of `dorylax simulate --json`, its wall time and its environment.
Only functions that run something load JAX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from dorylax.config import ConfigError, DataConfig, RunConfig
from dorylax.config.resolve import NO_IDENTITY
from dorylax.environment import environment
from dorylax.errors import named
from dorylax.experiments.measures import of_result
from dorylax.experiments.sweep import Run, RunOutcome, Sweep
from dorylax.graph.manifest import is_data_path
from dorylax.near_matches import did_you_mean
from dorylax.observers.tensorboard import TensorBoard
from dorylax.runs.result import EpochRecord
from dorylax.store import metrics
from dorylax.store.digest import sealed, unsealed
from dorylax.store.durable import make_folder, write_file, write_json
from dorylax.store.run_directory import SCHEMA, RunDirectory, RunDirectoryError, check_schema, differences, now
from dorylax.user_code.lines import in_one_sentence, user_line

if TYPE_CHECKING:
    from dorylax.graph.dataset import Dataset
    from dorylax.graph.sharded_data import ShardedData
    from dorylax.observers.base import Observer

_SIMULATED = "simulated.json"


@final
@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of all runs.

    Attributes:
        tensorboard: Whether runs write event files into `tensorboard/` of their directories.
        failures: Errors that fail one run; any other ends the sweep.
        resume: Whether a run without a directory continues from checkpoints in `train.checkpoints`.
        kept_in: The sweep's folder, if runs run in a copy of a part of it.
    """

    tensorboard: bool = False
    failures: type[Exception] = Exception
    resume: bool = True
    kept_in: Path | None = None


USUAL = RunOptions()


def directory(folder: Path, run: Run) -> Path:
    """The directory of a run: `runs/KEY`, or `seed-3` if only seeds vary."""
    keyed = bool(run.setting) or run.simulation is not None
    return folder / "runs" / run.key if keyed else folder / f"seed-{run.config.train.seed}"


def error_file(folder: Path, run: Run) -> Path:
    """The file of a run's traceback; not in its directory, which may be the cause."""
    return folder / "errors" / f"{run.key}.txt"


def inspect(folder: Path, run: Run) -> RunOutcome:
    """The outcome of a run by its directory alone.

    A directory of another run, or with damaged files, is a failed run, which is tried again. (One that is named after its
    seed may have had fewer epochs; the trainer decides whether it can continue.)
    """
    path, error_path = directory(folder, run), error_file(folder, run)
    try:
        if run.simulation is not None:
            if (simulated := _inspect_simulated(run, path)) is not None:
                return simulated
        elif (path / "config.yaml").is_file():
            found = RunDirectory.open(path)
            changed = differences(found.config, run.config.to_dict()).keys() - set(NO_IDENTITY)
            if changed and run.setting:
                raise RunDirectoryError(
                    f"{path} holds another run than its name says ({min(changed)} differs): delete it"
                )
            if found.complete and not changed:
                metrics.of_run(found)  # a damaged one is written again
                return RunOutcome(run, "done", found.summary or {}, environment=found.environment)
    except RunDirectoryError as error:
        return RunOutcome(run, "failed", error=str(error))
    if error_path.is_file():
        return RunOutcome(run, "failed", error=_last_line(error_path.read_text(encoding="utf-8", errors="replace")))
    return RunOutcome(run, "open")


def history_of(folder: Path | None, outcome: RunOutcome) -> Sequence[EpochRecord]:
    """Return the epochs of a run that is done; of simulated epochs only the seconds are known.

    Raises:
        RunDirectoryError: Its metrics.jsonl cannot be read.
    """
    if outcome.run.simulation is not None:
        epochs = outcome.summary["found"]["simulated_epochs"]
        return [_simulated_epoch(epoch, seconds) for epoch, seconds in enumerate(epochs)]
    assert folder is not None
    return metrics.of_run(RunDirectory.open(directory(folder, outcome.run)))


def check_data(sweep: Sweep) -> None:
    """Check that all data sets exist in the given sizes, and that a graph known by its sizes has enough vertices.

    Raises:
        ConfigError: A data set or size does not exist (the text names similar ones), or the graph is too small.
    """
    from dorylax.graph import datasets
    from dorylax.pipeline.prepare import check_counts

    with_data = dict[tuple[str, str | None], None]()
    for run in sweep.runs:
        if run.simulation is None or run.simulation.graph is None:
            with_data[run.config.data.name, run.config.data.size] = None
        elif run.config.pipeline is not None:
            check_counts(run.config.pipeline, run.simulation.graph.sizes().vertices)
    known, described = datasets.names(), datasets.describe()
    for name, size in with_data:
        if is_data_path(name):
            if not Path(name).exists():
                raise ConfigError(f"data.name: there is no folder {name}")
        elif name not in known:
            raise ConfigError(f"unknown data.name {name!r}: {did_you_mean(name, known)}")
        sizes = [entry.size_name for entry in described if entry.name == name and entry.size_name is not None]
        if size is not None and not sizes:
            raise ConfigError(f"data.size {size!r}: {name} comes in one size, omit data.size")
        if size is not None and size not in sizes:
            raise ConfigError(f"unknown data.size {size!r} of {name}: {did_you_mean(size, sizes)}")


def run_one(
    run: Run, folder: Path | None, observer: Observer, cache: DataCache, options: RunOptions = USUAL
) -> RunOutcome:
    """Run or continue one run; an exception of `options.failures` is recorded as its failure.

    Args:
        run: The run.
        folder: The sweep's folder, or None to write nothing.
        observer: Receives the epochs.
        cache: Data sets that are loaded already.
        options: Options of all runs.

    Raises:
        Exception: Any other exception of the run.
        OSError: The failure cannot be recorded.
    """
    from dorylax.trainer import Trainer

    path = None if folder is None else directory(folder, run)
    trainer: Trainer | None = None
    if folder is not None:
        forget_failure(folder, run)
    try:
        if run.simulation is not None:
            return simulate_one(run, path, observer)
        data = cache.load(run.config)
        with contextlib.ExitStack() as stack:
            observers = [observer]
            if path is not None and options.tensorboard:
                observers.append(stack.enter_context(TensorBoard(path / "tensorboard")))
            trainer = Trainer.from_config(
                run.config,
                data,
                run_directory=path,
                resume=path is not None and (options.resume or (path / "config.yaml").is_file()),
                observers=observers,
                kept_as=None if options.kept_in is None else directory(options.kept_in, run),
            )
            result = trainer.fit(interactive=False)
    except options.failures as error:
        text, line = traceback.format_exc(), user_line(error)
        if line is not None or hasattr(error, "__notes__"):  # else JAX's note on hidden frames would be the last line
            text += "\n" + ("" if line is None else f"{line}: ") + f"{in_one_sentence(error)}\n"
        failed = fail(folder, run, text)
        # A failure must not swallow Ctrl-C: an open run ends the sweep, which then finds the error's file.
        return RunOutcome(run, "open") if trainer is not None and trainer.stop_requested else failed
    if result.stopped == "signal":
        return RunOutcome(run, "open")
    return RunOutcome(run, "done", result.summary()) if folder is None else ended(folder, run)


def ended(folder: Path, run: Run) -> RunOutcome:
    """Return the outcome of a run that has just ended, and record the reason if its directory cannot be read."""
    found = inspect(folder, run)
    return found if found.error is None else fail(folder, run, found.error)


def simulate_one(run: Run, path: Path | None, observer: Observer) -> RunOutcome:
    """Simulate a run; `path` is its directory, or None to write nothing.

    Raises:
        ScenarioError, SplitError, ValueError, OSError: As for `dorylax.simulation.run.simulate`.
    """
    from dorylax.simulation.run import settling, simulate  # loads JAX

    assert run.simulation is not None
    begun, scenario = time.perf_counter(), run.simulation.scenario(run.name, run.config)
    epochs = min(run.simulation.how.epochs or settling(scenario.pipeline) + 2, run.config.train.epochs)
    observer.started(epochs, 0)
    found = simulate(
        scenario, epochs=epochs, on_epoch=lambda done: observer.epoch(_simulated_epoch(done - 1, math.nan))
    )
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
        write_json(path / _SIMULATED, sealed(content))
    return _simulated(run, content)


def _inspect_simulated(run: Run, path: Path) -> RunOutcome | None:
    """Return the outcome of a simulated run by its directory; None if it is not done."""
    file = path / _SIMULATED
    try:
        with named(file):
            text = file.read_text(encoding="utf-8")
        content = unsealed(json.loads(text), without=0)
        check_schema(str(file), content["schema"], SCHEMA)
        if content["run"] != run.key:
            raise RunDirectoryError(f"{path} holds another run than its name says: delete it")
        return _simulated(run, content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunDirectoryError(f"{file} is damaged ({error}): delete it, and the run is simulated again") from None


def _simulated_epoch(epoch: int, seconds: float) -> EpochRecord:
    return EpochRecord(epoch, math.nan, None, None, None, seconds)


def _simulated(run: Run, content: Mapping[str, Any]) -> RunOutcome:
    found = content["found"]
    summary = {**of_result(found), "found": found, "timings": {"wall": content["wall_seconds"]}}
    return RunOutcome(run, "done", summary, environment=dict(content["environment"]))


def fail(folder: Path | None, run: Run, text: str) -> RunOutcome:
    """Record a run's failure; tables and messages show the last line of the text."""
    if folder is not None:
        path = error_file(folder, run)
        make_folder(path.parent)
        write_file(path, text)
    return RunOutcome(run, "failed", error=_last_line(text))


def forget_failure(folder: Path, run: Run) -> None:
    """Remove the traceback of an earlier attempt; otherwise the run counts as failed if a signal stops it."""
    with contextlib.suppress(OSError):
        error_file(folder, run).unlink(missing_ok=True)


def clear_errors(folder: Path, outcomes: Iterable[RunOutcome]) -> None:
    """Remove tracebacks of runs that are done by now, and `errors/` if it is empty; call it once nothing runs."""
    with contextlib.suppress(OSError):
        for outcome in outcomes:
            if outcome.status == "done":
                error_file(folder, outcome.run).unlink(missing_ok=True)
        (folder / "errors").rmdir()


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


@final
class DataCache:
    """Data sets by configuration; each is loaded once, by a run that fits in memory."""

    def __init__(self, loaded: Mapping[DataConfig, Dataset] | None = None) -> None:
        self._loaded = dict(loaded or {})

    def load(self, config: RunConfig) -> Dataset | ShardedData:
        """The prepared data set of a run, or its shards.

        Raises:
            RunError: The run does not fit in memory. (For cached data `Trainer.fit` checks it.)
            ValueError, OSError: As for `shards_for` and `prepare_data`.
        """
        from dorylax.trainer import prepare_data
        from dorylax.trainer.footprint.of_config import check_config
        from dorylax.trainer.from_config import shards_for

        if (shards := shards_for(config)) is not None:
            check_config(config)
            return shards
        if config.data not in self._loaded:
            check_config(config)
            self._loaded[config.data] = prepare_data(config.data)
        return self._loaded[config.data]

    def keep_only(self, configs: Sequence[DataConfig]) -> None:
        """Drop all others."""
        self._loaded = {config: data for config, data in self._loaded.items() if config in configs}
