"""Runs one after the other, in this process."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, final

from dorylax.experiments.executors.base import RunObserver, Watcher
from dorylax.experiments.runner import DataCache, RunOptions, run_one
from dorylax.experiments.sweep import Run, RunOutcome


@final
class InProcess:
    """See `Executor`; `cache` may hold data that is loaded already."""

    def __init__(self, cache: DataCache | None = None) -> None:
        self._cache = DataCache() if cache is None else cache

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """See `Executor`."""
        for index, run in enumerate(runs):
            watcher.begins(run)

            def say(name: str, *arguments: Any, run: Run = run) -> None:
                getattr(watcher, name)(run, *arguments)

            outcome = run_one(run, folder, RunObserver(say), self._cache, options)
            yield outcome
            if outcome.status == "open":
                return
            self._cache.keep_only([later.config.data for later in runs[index + 1 :]])
