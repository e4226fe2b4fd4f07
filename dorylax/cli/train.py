"""`dorylax train`: one configuration, one or several seeds, a run directory with one folder per seed."""

from __future__ import annotations

import datetime
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dorylax.cli.options import configured, data_option
from dorylax.config import RunConfig
from dorylax.config.check import Checked, check_value, checked, flatten
from dorylax.config.files import Overrides
from dorylax.experiments.names import data_name, title
from dorylax.experiments.runner import directory
from dorylax.experiments.sweep import SEED, Study
from dorylax.experiments.sweep_file import one_setting
from dorylax.graph.manifest import is_data_path
from dorylax.memory.process_limits import check_process
from dorylax.settings.errors import ConfigError
from dorylax.store.durable import is_temporary
from dorylax.store.folder_lock import LOCK
from dorylax.store.run_directory import RunDirectory, RunDirectoryError
from dorylax.terminal.failures import FAILED, INTERRUPTED, TERMINATED, stop
from dorylax.terminal.files import OUTPUT_FOLDER
from dorylax.terminal.options import option
from dorylax.terminal.output import print_json

_NAMES = ("data.name", "model.name", "task.name")
_OF_RECIPES = ("data.row_normalise", "train.epochs", "train.recipe")
"""Keys that recipes set, in addition to all of models and optimizers."""


@click.command()
@data_option
@option(
    "--model NAME",
    "gcn, gat, gatv2, sage, gin, sgc, appnp, gcnii, mpnn, mlp, or yours as FILE.py:CLASS, with its arguments as --set "
    "model.options.NAME=VALUE.",
)
@option("--task NAME", "The task, such as link-prediction [default: from the labels].")
@option("--metric NAME", "The validation metric, such as macro_f1 or roc_auc.")
@option("--recipe NAME", "default, published, tuned, tuned/cora, say [default: by the data].")
@option("--epochs N", "Passes over the graph.")
@option("--seeds N", "Train with train.seed and the next N-1 seeds [default: 1].")
@configured(
    data="data.name",
    model="model.name",
    task="task.name",
    metric="train.metric",
    recipe="train.recipe",
    epochs="train.epochs",
)
@option("--out DIR", "Run directory [default: runs/<time>-…].", type=OUTPUT_FOLDER)
@option("--resume", "Continue the run in --out.")
@option("--no-save", "Write no run directory.")
@option("--json", "Print the results as one JSON object.", name="as_json")
def train(
    overrides: Overrides, *, seeds: str | None, out: Path | None, resume: bool, no_save: bool, as_json: bool
) -> None:
    """Train a model on a graph.

    Defaults come from the recipe of the model on the data (docs/recipes.md). A configuration file overrides the recipe,
    and options override the file. docs/configuration.md lists all keys.
    """
    if resume and (out is None or no_save):
        raise ConfigError("--resume needs the --out of the run to continue, and excludes --no-save")
    if no_save and out is not None:
        raise ConfigError("--no-save and --out exclude each other")
    given, code = overrides
    data = click.get_current_context().params["data"]
    if data is not None and is_data_path(data) and Path(data).exists():
        given = Checked(given | {"data.name": str(Path(data).absolute())})  # for `dorylax predict` in any folder
    memory_checked = given.get("single.memory") != "ignore"
    if memory_checked:
        check_process()
    if seeds is not None and (not re.fullmatch(r"[0-9]{1,9}", seeds) or int(seeds) < 1):
        raise ConfigError(f"--seeds must be a whole number ≥ 1, got {seeds!r}")
    count = int(seeds or 1)
    config = RunConfig.resolve(given, code=code)
    if resume and out is not None and (before := _recorded(out, given, config)):
        given = Checked(checked(before) | given)
        config = RunConfig.resolve(given, code=code)
    first, name = config.train.seed, f"{data_name(config)}-{config.model.name}"
    check_value(SEED, first + count - 1)
    sweep = one_setting(name, given, range(first, first + count), code)
    folder = None if no_save else (out or _default_folder(name))
    elsewhere = folder is not None and _check_folder(folder, resume, config.train.checkpoints)

    if memory_checked:
        check_process(config.pipeline)
    if folder is not None and elsewhere:  # the runs may be there as checkpoints in another place
        from dorylax.trainer.saving.places import has_checkpoints

        if not any(has_checkpoints(directory(folder, run), run.config.train.checkpoints) for run in sweep.runs):
            raise ConfigError(
                f"--out {folder} holds no run to continue, and train.checkpoints = {config.train.checkpoints} no "
                f"checkpoints of one in {folder.absolute()}: omit --resume to start one"
            )

    from dorylax.cli.seeds import asynchrony, bill, failure, results, train_seeds
    from dorylax.experiments.table import print_summary

    said = None if as_json else config.recipe().line(config.dotted())
    outcomes, stopped = train_seeds(sweep, folder, resume=resume, said=said)
    if stopped is not None:
        stop(f"{stopped}{_how_to_resume(folder)}", INTERRUPTED if stopped == "interrupted" else TERMINATED)
    if as_json:
        print_json(results(outcomes, folder))
    else:
        print_summary(Study(sweep, outcomes, folder), title(config))
        for found in (asynchrony(outcomes), bill(outcomes)):
            if found is not None:
                click.echo(found)
        if folder is not None:
            click.echo(f"run directory: {folder}")
    if failed := [outcome for outcome in outcomes if outcome.error is not None]:
        several = f"error: {len(failed)} of {len(outcomes)} seeds failed"
        stop(failure(failed[0]) if len(outcomes) == 1 else several, FAILED)


def _recorded(folder: Path, given: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """Return values that a recipe may set and that differ between the runs in a folder and a new configuration.

    Values that the user gives now take precedence. The result is empty if a recipe is given, or if the run cannot be read or
    trains something else, which the resumed run reports.
    """
    path = next(iter(sorted(folder.glob("seed-*/config.yaml"))), None)
    if path is None or "train.recipe" in given:
        return {}
    try:
        values = flatten(RunDirectory.open(path.parent).config)
    except (RunDirectoryError, ConfigError):
        return {}
    fresh = config.dotted()
    if any(values.get(key) != fresh.get(key) for key in _NAMES):
        return {}
    # With another optimizer, the run's optimizer options may not exist.
    other = values.get("optimizer.name") != fresh["optimizer.name"]
    prefixes = ("model.", *(() if other else ("optimizer.",)))
    return {
        key: value
        for key, value in values.items()
        if (key in _OF_RECIPES or key.startswith(prefixes)) and key not in given and fresh.get(key) != value
    }


def _default_folder(name: str) -> Path:
    stem = path = Path("runs", f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{name}")
    number = 1
    while path.exists():
        number += 1
        path = stem.with_name(f"{stem.name}-{number}")
    return path


def _check_folder(folder: Path, resume: bool, checkpoints: str | None) -> bool:
    """Refuse foreign folders, and earlier runs without --resume; return whether a run may exist only as checkpoints."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file, not a folder")
    entries = [one for one in folder.glob("*") if not is_temporary(one.name) and one.name != LOCK]
    # A run that ended before its first file leaves at most empty folders.
    ours = all(re.fullmatch(r"seed-[0-9]+", entry.name) for entry in entries)
    seeds = folder.is_dir() and (ours or any(folder.glob("seed-*/config.yaml")))
    if resume and not entries and checkpoints is not None:
        return True
    if resume and not seeds:
        raise ConfigError(f"--out {folder} holds no run to continue: omit --resume to start one")
    if entries and not resume:
        hint = "add --resume to continue it, or choose another folder" if seeds else "choose another folder"
        raise ConfigError(f"--out {folder} is not empty: {hint}")
    return False


def _how_to_resume(folder: Path | None) -> str:
    """Return the command that resumes, for the end of a message: the given one, with --out and --resume."""
    if folder is None:
        return ""
    if not folder.is_dir():
        return " before anything was trained; the same command starts again"
    context = click.get_current_context()
    words = []
    for parameter in context.command.params:
        value = context.params[str(parameter.name)]
        if parameter.name in ("out", "resume") or value in (None, False):
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], str(one)]
    return f"; continue with: dorylax train {shlex.join([*words, '--out', str(folder), '--resume'])}"
