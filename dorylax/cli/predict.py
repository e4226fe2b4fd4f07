"""`dorylax predict` and `dorylax export`: a trained model, from its run directory alone."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import click

from dorylax.cli.options import parse_value, trust_option
from dorylax.config import RunConfig
from dorylax.graph.manifest import is_data_path
from dorylax.memory.process_limits import check_process
from dorylax.runs.metric import ACCURACIES, METRICS, score_in
from dorylax.settings.errors import ConfigError
from dorylax.store.run_directory import FILES, RunDirectory
from dorylax.terminal.files import INPUT, OUTPUT, will_read
from dorylax.terminal.options import json_option, no_verify_option, option
from dorylax.terminal.output import percent, print_json, printable

_SUFFIXES = (".npz", ".csv")
_SHOWN_CLASSES = 20
_SHOWN_MASKS = {"train": "train", "val": "validation", "test": "test"}


_seed_option = option("--seed", "Which seed, if the run has several [default: the best by validation].", type=int)


@click.command()
@option("--run DIR", "A run directory.", name="folder", required=True, type=INPUT)
@_seed_option
@option("--data NAME_OR_FOLDER", "Predict on data other than the run's.")
@no_verify_option
@option("--out FILE.npz|csv", "Write the predictions.", type=OUTPUT)
@option("--all-pairs", "Also rank links that validate and test among all vertices.")
@trust_option
@json_option
def predict(*, folder: Path, seed: int | None, out: Path | None, all_pairs: bool, as_json: bool, **given: Any) -> None:
    """Predict with a trained model: the parameters of its best epoch, without dropout."""
    if out is not None and out.suffix not in _SUFFIXES:
        raise ConfigError(f"--out must end in .npz or .csv, got {str(out)!r}")
    check_process()
    path = choose_run(folder, seed)
    config, own = _config_of(path, **given)

    from dorylax.cli.predictions import by_class, mask_sizes, ranked, scores, write
    from dorylax.graph.sharded_data import ShardedData
    from dorylax.tasks import LinkPrediction, make_task
    from dorylax.trainer import Trainer, prepare_data
    from dorylax.trainer.saving.run_files import trained_labels
    from dorylax.trainer.step.objective import Objective

    task = make_task(config.task, config.data.split_seed)
    if all_pairs and not isinstance(task, LinkPrediction):
        raise ConfigError(f"--all-pairs ranks links, and {path} predicts none: train with --task link-prediction")
    dataset = prepare_data(config.data, known=None if given["data"] is None else trained_labels(path, own))
    trainer = Trainer.from_config(config, dataset, run_directory=path, resume=True)
    outputs, examples = trainer.predict(), trainer.data
    assert not isinstance(examples, ShardedData)
    objective = Objective.of(config.train.loss, examples, config.train.metric)
    found, classes = scores(outputs, examples, objective), by_class(outputs, examples)
    places = ranked(trainer.rows(), dataset, task) if all_pairs and isinstance(task, LinkPrediction) else {}
    if out is not None:
        write(out, outputs, examples)
    noun = examples.examples
    if as_json:
        content = {
            "schema": 1,
            "run": str(path),
            "metric": objective.metric,
            "accuracy" if objective.metric in ACCURACIES else "scores": found,
            noun: len(outputs),
            "classes": examples.num_classes,
            "class_names": None if examples.class_names is None else examples.class_names.tolist(),
            "by_class": classes or None,
            "all_pairs": places or None,
            "out": None if out is None else str(out),
        }
        print_json(content)
        return
    kind = METRICS[objective.metric]
    sizes = mask_sizes(examples)
    if not any(sizes.values()):
        click.echo(f"{len(outputs):,} {noun} without labels")
        found = {}
    for mask, value in found.items():
        shown = percent(value) if value is None or kind.fraction else kind.shown(value)
        click.echo(f"{_SHOWN_MASKS[mask]} {kind.title}: {shown} of {sizes[mask]:,} {noun}")
    if 0 < len(classes) <= _SHOWN_CLASSES:
        shares = [
            f"{name} {percent(one['test_accuracy'])} of {one['test_examples']:,}" for name, one in classes.items()
        ]
        click.echo(printable(f"test accuracy by class: {', '.join(shares)}"))
    for mask, values in places.items():
        shown = ", ".join(f"{METRICS[name].title} {percent(value)}" for name, value in values.items())
        click.echo(f"{_SHOWN_MASKS[mask]} links among all vertices: {shown}")
    if out is not None:
        click.echo(f"predictions: {out}")


@click.command()
@click.argument("run", type=INPUT)
@_seed_option
@option("--out FILE", "Write the model here.", required=True, type=OUTPUT)
@no_verify_option
@trust_option
def export(*, run: Path, seed: int | None, out: Path, **given: Any) -> None:
    """Export a trained model: one file that needs only JAX and NumPy.

    RUN is a run directory. The file takes any graph: python FILE INPUT.npz OUTPUT.npy.
    """
    check_process()
    path = choose_run(run, seed)
    config, _ = _config_of(path, **given)

    from dorylax.trainer import Trainer, prepare_data

    dataset = prepare_data(config.data)
    Trainer.from_config(config, dataset, run_directory=path, resume=True).export(out)
    click.echo(f"{config.model.name} of {path}: {out}, {out.stat().st_size:,} bytes")


def choose_run(folder: Path, seed: int | None = None) -> Path:
    """Return the directory of one run.

    Args:
        folder: Folder of a run, or of several seeds (`dorylax train --out`).
        seed: Seed of the run; None: the finished one with the best validation metric, the first of equals.

    Raises:
        ConfigError: There is no such run.
    """
    if (folder / "config.yaml").is_file():
        if seed is not None:
            raise ConfigError(f"--seed chooses among several seeds, but {folder} is one run")
        return folder
    seeds = {
        int(path.parent.name.removeprefix("seed-")): path.parent
        for path in folder.glob("seed-*/config.yaml")
        if re.fullmatch(r"seed-[0-9]+", path.parent.name)
    }
    if not seeds:
        raise ConfigError(f"{folder} is not a run directory: it has neither config.yaml nor seed-0/config.yaml")
    if seed is not None:
        if seed not in seeds:
            raise ConfigError(f"{folder} has no seed {seed}: it has {', '.join(map(str, sorted(seeds)))}")
        return seeds[seed]

    def merit(number: int) -> tuple[bool, float, int]:
        summary = RunDirectory.open(seeds[number]).summary or {}
        value = score_in(summary, "val")
        higher = METRICS.get(summary.get("metric", ""), METRICS["accuracy"]).higher
        return bool(summary), -math.inf if value is None else value if higher else -value, -number

    return seeds[max(seeds, key=merit)]


def _config_of(path: Path, *, trust: bool, no_verify: bool, data: str | None = None) -> tuple[RunConfig, RunConfig]:
    """Return the configuration to predict with, on the run's data or on others, and that of the run.

    Paths of data are resolved from here. Settings about the run's data and training do not apply to other data.

    Raises:
        ConfigError: The run's model was made in Python.
        InputError: The configuration names code, and is not trusted.
    """
    run = RunDirectory.open(path)
    content = run.config
    if "class" in content.get("model", {}):
        raise ConfigError(
            f"{path} is a run of a model made in Python ({content['model']['class']}): "
            "use Trainer(…, run_directory=…).predict() or export() there"
        )
    config = RunConfig.load(path / "config.yaml", trust=trust)
    located = run.located(config.data.name)
    name = located if is_data_path(located) else config.data.name
    code = (run.located(noted["file"]) for noted in run.user_code.values())
    will_read(name, *code, *(path / one for one in FILES), *run.checkpoints_path.rglob("*"))
    own = config = config.model_copy(update={"data": config.data.model_copy(update={"name": name})})
    if data is not None:
        other = parse_value("data.name", data)
        size = own.data.size if other == own.data.name else None
        kept = {section: values for section, values in own.to_dict().items() if section != "pipeline"}
        # Stopping rules are irrelevant here, and would require validation vertices.
        unset = dict.fromkeys(("train.target_accuracy", "train.target", "train.patience"))
        config = RunConfig.resolve(kept, {"data.name": other, "data.size": size, **unset}, code=own.code)
        will_read(data)
    return config.unverified() if no_verify else config, own
