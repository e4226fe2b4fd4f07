"""Trains the seeds of `dorylax train`, as a sweep of one setting, and collects their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, final

import click

from dorylax.cli.notices import compiling, functions_remark
from dorylax.config import RunConfig
from dorylax.config.recipe import DEFAULT
from dorylax.experiments.execution import Stopped, carry_out, has_begun, known_outcomes
from dorylax.experiments.executors.local import InProcess
from dorylax.experiments.folder import RESULTS, locked, write_sweep
from dorylax.experiments.names import title
from dorylax.experiments.runner import DataCache, RunOptions
from dorylax.experiments.seed_statistics import mean_std, median
from dorylax.experiments.sweep import Run, RunOutcome, Sweep
from dorylax.graph.features import largest_column
from dorylax.observers.progress import ProgressBar, dollars, duration
from dorylax.store.durable import remove_file, write_json
from dorylax.terminal.output import print_error
from dorylax.trainer import EpochRecord, TrainingError, prepare_data
from dorylax.trainer.footprint.of_config import check_config
from dorylax.trainer.from_config import shards_for

_LARGE = 10.0
"""Root mean square of a column."""


def train_seeds(
    sweep: Sweep, folder: Path | None, *, resume: bool, said: str | None
) -> tuple[list[RunOutcome], Stopped | None]:
    """Train the seeds that are not done, and write results.json; a diverged seed does not stop the others.

    Args:
        sweep: Sweep of one setting.
        folder: Folder of the sweep; it stays empty until the first run has begun to train. None: no files.
        resume: As for `RunOptions`.
        said: Line to print when the first seed begins to train.

    Returns:
        The outcome of each seed, in order, and the reason for an early stop, if any.

    Raises:
        Exception: An error that affects every seed: in the data, memory, the user's model or the folder.
    """
    cache = DataCache()
    with ExitStack() as stack:
        if folder is not None:
            stack.enter_context(locked(folder))
        known = known_outcomes(sweep, folder)
        todo = [outcome.run.config for outcome in known.values() if outcome.status != "done"]
        if todo:
            try:
                with compiling(todo[0].model.name):
                    check_config(todo[0])
                    if said is not None and (remark := functions_remark(todo[0])) is not None:
                        said = f"{said}\n{remark}"
                if shards_for(todo[0]) is None:
                    data = prepare_data(todo[0].data)
                    cache = DataCache({todo[0].data: data})
                    if todo[0].recipe().name == DEFAULT and (size := largest_column(data.features)) > _LARGE:
                        print_error(
                            f"warning: a column of the features has values around {size:.3g}, and the default recipe was "
                            "chosen on features around 1: standardise them (docs/recipes.md, features in units of their own)"
                        )
            except KeyboardInterrupt:
                return list(known.values()), "interrupted"
        bars = stack.enter_context(closing(_ProgressBars(said, reports=len(known) > 1)))
        outcomes, stopped = carry_out(
            known, folder, bars, executor=InProcess(cache), options=RunOptions(failures=TrainingError, resume=resume)
        )
        if folder is not None and has_begun(sweep.runs, folder):
            write_sweep(folder, sweep, [])
            if stopped is None:
                write_json(folder / RESULTS, results(list(outcomes.values()), folder))
            else:  # results of an earlier end, after which the seeds have continued
                remove_file(folder / RESULTS)
    if seeds := bars.too_short:
        epochs = todo[0].train.epochs
        print_error(
            f"warning: the loss of seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))} was still falling fast after "
            f"{epochs} epochs: train longer (--epochs {2 * epochs})"
        )
    return list(outcomes.values()), stopped


@final
class _ProgressBars:
    """A watcher with a progress bar for each run in turn, which prints a line before the first and, on request, failures.

    Attributes:
        too_short: Seeds that came to their last epoch while their loss was still falling fast.
    """

    def __init__(self, said: str | None, *, reports: bool) -> None:
        self._said, self._reports = said, reports
        self._bar = ProgressBar("")
        self.too_short: list[int] = []

    def close(self) -> None:
        self._bar.close()

    def begins(self, run: Run) -> None:
        self._bar = ProgressBar(f"{title(run.config)}{pipeline_label(run.config)}, seed {run.config.train.seed}")

    def started(self, run: Run, total_epochs: int, first_epoch: int) -> None:  # noqa: ARG002
        if self._said is not None:
            click.echo(self._said)
            self._said = None
        self._bar.started(total_epochs, first_epoch)

    def epoch(self, run: Run, record: EpochRecord) -> None:  # noqa: ARG002
        self._bar.epoch(record)

    def again(self, run: Run, why: str) -> None:
        """See `Watcher`. Runs in this process are only lost with it."""

    def finished(self, run: Run, summary: Mapping[str, Any]) -> None:
        self._bar.leave(summary)
        if summary["stopped"] == "epochs" and summary["still_falling"]:
            self.too_short.append(run.config.train.seed)

    def ends(self, outcome: RunOutcome) -> None:
        self._bar.close()
        if outcome.error is not None and self._reports:
            print_error(failure(outcome))


def failure(outcome: RunOutcome) -> str:
    """Return the line of a seed that failed."""
    return f"error: seed {outcome.run.config.train.seed}: {_reason(outcome)}"


def _reason(outcome: RunOutcome) -> str:
    """Return the error's text, without its class and source line."""
    return (outcome.error or "").rpartition(f"{TrainingError.__name__}: ")[2]


def pipeline_label(config: RunConfig) -> str:
    """Describe the pipeline for a progress line, such as `, async S=1 on 4 servers, virtual time`; empty without one."""
    pipeline = config.pipeline
    if pipeline is None:
        return ""
    bound = "" if pipeline.staleness is None else f" S={pipeline.staleness}"
    servers = f"{pipeline.servers} server{'s' if pipeline.servers > 1 else ''}"
    return f", {pipeline.mode}{bound} on {servers}" + (", virtual time" if pipeline.clock == "virtual" else "")


def results(outcomes: Sequence[RunOutcome], folder: Path | None) -> dict[str, Any]:
    """Return all results as one object of plain values (docs/json.md lists the fields)."""
    config = outcomes[0].run.config

    def per_seed(name: str, usual: Any = None) -> list[Any]:
        return [outcome.summary.get(name, usual) for outcome in outcomes]

    def over_seeds(name: str) -> dict[str, Any]:
        mean, std = mean_std(per_seed(name))
        return {"mean": mean, "std": std, "per_seed": per_seed(name)}

    usual, others = ("test_accuracy", "val_accuracy"), ("test_loss", "val_loss", "test_score", "val_score")
    measured = [name for name in others if any(name in outcome.summary for outcome in outcomes)]
    return {
        "schema": 1,
        "metric": next((metric for metric in per_seed("metric") if metric is not None), "accuracy"),
        "seeds": [outcome.run.config.train.seed for outcome in outcomes],
        **{name: over_seeds(name) for name in (*usual, *measured)},
        "final_loss": per_seed("final_loss"),
        "best_epoch": per_seed("best_epoch"),
        "epochs": per_seed("epochs", 0),
        "stopped": per_seed("stopped", "failed"),
        "errors": [None if outcome.error is None else _reason(outcome) for outcome in outcomes],
        "seconds_per_epoch": median(per_seed("seconds_per_epoch")),
        "pipeline": None if config.pipeline is None else per_seed("pipeline"),
        "run_directory": None if folder is None else str(folder),
        "config": config.to_dict(),
    }


def bill(outcomes: Sequence[RunOutcome]) -> str | None:
    """Return the cost of all seeds together, in one line; None without a bill."""
    summaries = [outcome.summary.get("pipeline") or {} for outcome in outcomes]
    bills = [summary["bill"] for summary in summaries if summary.get("bill")]
    if not bills:
        return None
    parts = {name.replace("_", " "): sum(one[name] for one in bills) for name in ("graph_servers", "parameter_servers")}
    parts["functions"] = sum(one["function_time"] + one["function_requests"] for one in bills)
    listed = ", ".join(f"{name} {dollars(amount)}" for name, amount in parts.items() if amount)
    seconds = duration(sum(one["seconds"] for one in bills))
    return (
        f"bill: {dollars(sum(parts.values()))} for {seconds} ({listed or 'all free'}; prices of cluster "
        f"{bills[0]['cluster']}, {bills[0]['prices_as_of']})"
    )


def asynchrony(outcomes: Sequence[RunOutcome]) -> str | None:
    """Return in how many epochs the stability gate was open, in one line; None without a gate."""
    summaries = [outcome.summary for outcome in outcomes]
    gated = [one for one in summaries if (one.get("pipeline") or {}).get("epochs_ahead") is not None]
    if not gated:
        return None
    ahead, epochs = sum(one["pipeline"]["epochs_ahead"] for one in gated), sum(one["epochs"] for one in gated)
    return f"asynchrony: ran ahead in {ahead} of {epochs} epochs; the stability gate was closed in the others"
