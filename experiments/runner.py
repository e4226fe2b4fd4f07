"""Running a sweep: what is not done yet, each run leaving its directory.

A run is done when its directory says so, so that a sweep killed at any moment goes on where it was. A run that fails
leaves its traceback in `errors/` and does not keep the others from running; the next start tries it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from dorylax.config import ConfigError, DataConfig
from dorylax.durable import write_file
from dorylax.experiments.sweep import Run, Sweep
from dorylax.experiments.watcher import Told, Watcher
from dorylax.near_matches import did_you_mean
from dorylax.run_directory import RunDirectory, RunDirectoryError, differences
from dorylax.user_code import in_one_sentence, user_line

if TYPE_CHECKING:
    from dorylax.graph.dataset import Dataset
    from dorylax.tensorboard import TensorBoard
    from dorylax.trainer.observer import Observer


@final
@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """What became of one run.

    Attributes:
        run: the run.
        status: "done" (has come to its own end), "failed", or "open" (not run, or stopped by a signal).
        summary: the content of its summary.json; empty unless done.
        error: the last line of its traceback, which names the user's own line where it is to blame, or what is wrong with
            its directory; None unless failed.
        environment: the content of its environment.json; empty unless done.
    """

    run: Run
    status: Literal["done", "failed", "open"]
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str | None = None
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)


@final
@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What runs leave besides the usual files.

    Attributes:
        tensorboard: event files for TensorBoard, in `tensorboard/` of the run's directory.
    """

    tensorboard: bool = False


USUAL = RunOptions()
"""Nothing else."""


def directory(folder: Path, run: Run) -> Path:
    """Where a run of the sweep in `folder` leaves its files."""
    return folder / "runs" / run.key


def error_file(folder: Path, run: Run) -> Path:
    """Where the traceback of a run's failure is; not in its directory, which may be what is wrong."""
    return folder / "errors" / f"{run.key}.txt"


def inspect(folder: Path, run: Run) -> RunOutcome:
    """What is known about a run from its directory alone.

    A directory that belongs to something else, or whose files are damaged, is a run that failed: it is tried again, and
    does not keep the others from running.
    """
    path, error_path = directory(folder, run), error_file(folder, run)
    try:
        if (path / "config.yaml").is_file():
            found = RunDirectory.open(path)
            if changed := differences(found.config, run.config.to_dict()):
                raise RunDirectoryError(
                    f"{path} holds another run than its name says ({next(iter(changed))} differs): delete it"
                )
            if found.complete:
                return RunOutcome(run, "done", found.summary or {}, environment=found.environment)
    except RunDirectoryError as error:
        return RunOutcome(run, "failed", error=str(error))
    if error_path.is_file():
        return RunOutcome(run, "failed", error=_last_line(error_path.read_text(encoding="utf-8")))
    return RunOutcome(run, "open")


def check_data(sweep: Sweep) -> None:
    """Whether all data sets exist, in the sizes asked for, before hours are spent on the first of them.

    Raises:
        ConfigError: one does not; names the near ones.
    """
    from dorylax.graph import datasets

    known = datasets.names()
    for name in dict.fromkeys(run.config.data.name for run in sweep.runs):
        if name.endswith(".npz"):
            if not Path(name).is_file():
                raise ConfigError(f"data.name: there is no file {name}")
        elif name not in known:
            raise ConfigError(f"unknown data.name {name!r}: {did_you_mean(name, known)}")
    described = datasets.describe()
    for name, size in dict.fromkeys((run.config.data.name, run.config.data.size) for run in sweep.runs):
        if size is None:
            continue
        sizes = [entry.size_name for entry in described if entry.name == name and entry.size_name is not None]
        if not sizes:
            raise ConfigError(f"data.size {size!r}: {name} comes in one size, omit data.size")
        if size not in sizes:
            raise ConfigError(f"unknown data.size {size!r} of {name}: {did_you_mean(size, sizes)}")


def execute(
    runs: Sequence[Run], folder: Path, watcher: Watcher, options: RunOptions = USUAL
) -> Generator[RunOutcome, None, None]:
    """Runs one after the other, in this process.

    Args:
        runs: what is to be done.
        folder: the sweep's.
        watcher: told of what happens.
        options: what else runs leave.

    Yields:
        An outcome after each run; "open" once a signal has stopped a run, and then no more.
    """
    cache = DataCache()
    for index, run in enumerate(runs):
        watcher.begins(run)
        outcome = run_one(run, folder, Told(watcher, run), cache, options)
        yield outcome
        if outcome.status == "open":
            return
        cache.keep_only([later.config.data for later in runs[index + 1 :]])


def run_one(run: Run, folder: Path, observer: Observer, cache: DataCache, options: RunOptions = USUAL) -> RunOutcome:
    """Runs, or goes on with, one run; an exception is recorded, and the run has failed."""
    from dorylax.trainer import Trainer
    from dorylax.trainer.footprint import check_config

    path = directory(folder, run)
    try:
        if run.config.data not in cache:  # otherwise `fit` checks, beside the data that are there
            check_config(run.config)
        data = cache.get(run.config.data)
        with contextlib.ExitStack() as stack:
            observers = [observer, *(stack.enter_context(one) for one in _sinks(path, options))]
            trainer = Trainer.from_config(run.config, data, run_directory=path, resume=True, observers=observers)
            result = trainer.fit()
    except Exception as error:
        text, line = traceback.format_exc(), user_line(error)
        if line is not None:
            text += f"\n{line}: {in_one_sentence(error)}\n"
        elif hasattr(error, "__notes__"):  # JAX's, that it hides its frames, would be the last line
            text += f"\n{in_one_sentence(error)}\n"
        return fail(folder, run, text)
    error_file(folder, run).unlink(missing_ok=True)
    if result.stopped == "signal":
        return RunOutcome(run, "open")
    return inspect(folder, run)


def _sinks(path: Path, options: RunOptions) -> list[TensorBoard]:
    """Observers that write what the options ask for into a run's directory; to be closed."""
    if not options.tensorboard:
        return []
    from dorylax.tensorboard import TensorBoard

    return [TensorBoard(path / "tensorboard")]


def fail(folder: Path, run: Run, text: str) -> RunOutcome:
    """Records why a run has failed; the last line is what tables and messages say."""
    path = error_file(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text)
    return RunOutcome(run, "failed", error=_last_line(text))


@final
class DataCache:
    """Data sets by their configuration, each loaded once."""

    def __init__(self) -> None:
        self._loaded: dict[DataConfig, Dataset] = {}

    def __contains__(self, config: DataConfig) -> bool:
        return config in self._loaded

    def get(self, config: DataConfig) -> Dataset:
        """The data set, prepared as its configuration says."""
        from dorylax.trainer import prepare_data

        if config not in self._loaded:
            self._loaded[config] = prepare_data(config)
        return self._loaded[config]

    def keep_only(self, configs: Sequence[DataConfig]) -> None:
        """Lets go of all others."""
        self._loaded = {config: data for config, data in self._loaded.items() if config in configs}


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
