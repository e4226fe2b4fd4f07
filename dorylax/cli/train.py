"""`dorylax train`: one configuration, one or several seeds, a run directory with one folder per seed."""

from __future__ import annotations

import datetime
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dorylax.cli.failures import FAILED, INTERRUPTED, TERMINATED, CommandError
from dorylax.cli.overrides import collect
from dorylax.cli.patience import compiling, says_when_slow
from dorylax.durable import write_json
from dorylax.settings.errors import ConfigError

if TYPE_CHECKING:
    from dorylax.cli.outcome import SeedOutcome
    from dorylax.config import RunConfig
    from dorylax.graph.dataset import Dataset


@click.command()
@click.option("--data", metavar="NAME_OR_NPZ", help="Data set (`dorylax datasets`), or the path of an .npz.")
@click.option("--model", metavar="NAME", help="gcn, gat, gatv2, sage, gin, sgc, appnp, gcnii, mpnn or mlp.")
@click.option("--epochs", metavar="N", help="Passes over the graph.")
@click.option("--seeds", metavar="N", help="Train with the seeds 0 … N-1 [default: train.seed alone].")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Any key of the configuration; repeatable.")
@click.option("--config", "file", metavar="FILE.yaml", type=click.Path(path_type=Path), help="Read keys from a file.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Run directory [default: runs/<time>-…].")
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--no-save", is_flag=True, help="Write no run directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object.")
def train(
    *,
    data: str | None,
    model: str | None,
    epochs: str | None,
    seeds: str | None,
    settings: tuple[str, ...],
    file: Path | None,
    out: Path | None,
    resume: bool,
    no_save: bool,
    as_json: bool,
) -> None:
    """Train a model on a graph.

    What is not given comes from the model's published recipe. A configuration file overrides the recipe, and options
    override the file. docs/configuration.md lists all keys.
    """
    if resume and (out is None or no_save):
        raise ConfigError("--resume needs the --out of the run to continue, and goes without --no-save")
    if no_save and out is not None:
        raise ConfigError("--no-save and --out exclude each other")
    if data is not None and data.endswith(".npz") and Path(data).is_file():
        data = str(Path(data).absolute())  # so that `dorylax predict` finds it from any folder
    given = collect(file, {"data.name": data, "model.name": model, "train.epochs": epochs}, settings)
    numbers = _seed_numbers(seeds, settings)

    from dorylax.cli.outcome import report, show
    from dorylax.config import RunConfig

    config = RunConfig.resolve(given)
    folder = None if no_save else (out or _default_folder(config))
    if folder is not None:
        _check_folder(folder, resume)
    if numbers is None:
        numbers = [config.train.seed]
    outcomes = _train_seeds(config, numbers, folder)
    content = report(config, outcomes, folder)
    if folder is not None:
        write_json(folder / "results.json", content)
    if as_json:
        click.echo(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False))
    else:
        show(config, outcomes, folder)
    if diverged := [outcome.seed for outcome in outcomes if outcome.error]:
        raise CommandError(f"error: {len(diverged)} of {len(outcomes)} seeds failed", FAILED)


def _train_seeds(config: RunConfig, numbers: Sequence[int], folder: Path | None) -> list[SeedOutcome]:
    """Trains every seed that is not finished yet; a seed that fails does not keep the others from training."""
    from dorylax.cli.outcome import SeedOutcome
    from dorylax.progress import ProgressBar
    from dorylax.trainer import Trainer, TrainingError, prepare_data
    from dorylax.trainer.footprint import check_config

    outcomes: list[SeedOutcome] = []
    dataset: Dataset | None = None
    for seed in numbers:
        one = type(config).resolve(config.to_dict(), {"train.seed": seed})
        path = None if folder is None else folder / f"seed-{seed}"
        if path is not None and (summary := finished(path, one)) is not None:
            outcomes.append(SeedOutcome.from_summary(seed, summary))
            continue
        try:
            if dataset is None:
                with says_when_slow(compiling(one.model.name)):
                    check_config(one)
                dataset = prepare_data(config.data)
            label = f"{one.model.name} on {data_label(one)}{pipeline_label(one)}, seed {seed}"
            with ProgressBar(label) as bar:
                trainer = Trainer.from_config(
                    one, dataset, run_directory=path, resume=path is not None, observers=(bar,)
                )
                result = trainer.fit()
        except KeyboardInterrupt:
            raise CommandError(f"interrupted{_how_to_resume(folder)}", INTERRUPTED) from None
        except TrainingError as error:
            click.echo(f"error: seed {seed}: {error}", err=True)
            outcomes.append(SeedOutcome(seed, error=str(error)))
            continue
        if result.stopped == "signal":
            raise CommandError(f"terminated{_how_to_resume(folder)}", TERMINATED)
        outcomes.append(SeedOutcome.from_result(seed, result))
    return outcomes


def finished(path: Path, config: RunConfig) -> dict[str, Any] | None:
    """The summary of a run that has come to its end under exactly this configuration; None where it is still to do."""
    from dorylax.run_directory import RunDirectory, differences

    if not (path / "config.yaml").is_file():
        return None
    run = RunDirectory.open(path)
    return run.summary if run.complete and not differences(run.config, config.to_dict()) else None


def data_label(config: RunConfig) -> str:
    """The data set's name as people say it: a path without folder and suffix."""
    return Path(config.data.name).name.removesuffix(".npz")


def pipeline_label(config: RunConfig) -> str:
    """What a progress line says about the pipeline, empty where there is none: `, async S=1 on 4 servers, virtual time`."""
    pipeline = config.pipeline
    if pipeline is None:
        return ""
    bound = "" if pipeline.staleness is None else f" S={pipeline.staleness}"
    servers = f"{pipeline.servers} server{'s' if pipeline.servers > 1 else ''}"
    return f", {pipeline.mode}{bound} on {servers}" + (", virtual time" if pipeline.clock == "virtual" else "")


def _seed_numbers(seeds: str | None, settings: Sequence[str]) -> list[int] | None:
    """0 … N-1 of `--seeds N`; None where it is not given."""
    if seeds is None:
        return None
    if any(setting.partition("=")[0].strip() == "train.seed" for setting in settings):
        raise ConfigError("--seeds and --set train.seed exclude each other")
    if not re.fullmatch(r"[0-9]{1,9}", seeds) or int(seeds) < 1:
        raise ConfigError(f"--seeds must be a whole number ≥ 1, got {seeds!r}")
    return list(range(int(seeds)))


def _default_folder(config: RunConfig) -> Path:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    stem = f"{now}-{data_label(config)}-{config.model.name}"
    return next(
        path
        for number in range(1, 1_000_000)
        if not (path := Path("runs") / (stem if number == 1 else f"{stem}-{number}")).exists()
    )


def _check_folder(folder: Path, resume: bool) -> None:
    """Never writes into somebody else's folder, nor over an earlier run."""
    from dorylax.run_directory import is_leftover

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file, not a folder")
    entries = [entry for entry in folder.iterdir() if not is_leftover(entry)] if folder.is_dir() else []
    # A run that was ended before it wrote anything has made at most empty folders.
    ours = all(re.fullmatch(r"seed-[0-9]+", entry.name) for entry in entries)
    seeds = bool(entries) and (ours or any(folder.glob("seed-*/config.yaml")))
    used = bool(entries)
    if resume and not seeds and not (folder.is_dir() and ours):
        raise ConfigError(f"--out {folder} holds no run to continue: omit --resume to start one")
    if used and not resume:
        hint = "add --resume to continue it, or choose another folder" if seeds else "choose another folder"
        raise ConfigError(f"--out {folder} is not empty: {hint}")


def _how_to_resume(folder: Path | None) -> str:
    """The command that goes on, for the end of a message: the one that was given, with --out and --resume."""
    if folder is None:
        return ""
    if not folder.is_dir():
        return " before anything was trained; the same command starts again"
    context = click.get_current_context()
    words = []
    for option in context.command.params:
        value = context.params[str(option.name)]
        if option.name in ("out", "resume") or value in (None, False):
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [option.opts[0]] if value is True else [option.opts[0], str(one)]
    return f"; continue with: dorylax train {shlex.join([*words, '--out', str(folder), '--resume'])}"
