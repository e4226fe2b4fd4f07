"""`dorylax predict`: the outputs of a trained model, from its run directory alone."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from jaxtyping import Float32

from dorylax.cli.overrides import parse_value
from dorylax.durable import write_file
from dorylax.settings.errors import ConfigError

if TYPE_CHECKING:
    from dorylax.config import RunConfig
    from dorylax.graph.dataset import Dataset

_SUFFIXES = (".npz", ".csv")
_MASKS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}


@click.command()
@click.option("--run", "folder", metavar="DIR", required=True, type=click.Path(path_type=Path), help="A run directory.")
@click.option("--seed", type=int, help="Which seed of a run with several [default: best validation accuracy].")
@click.option("--data", metavar="NAME_OR_NPZ", help="Predict on other data than the run's.")
@click.option("--out", metavar="FILE.npz|csv", type=click.Path(path_type=Path), help="Write the predictions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def predict(*, folder: Path, seed: int | None, data: str | None, out: Path | None, as_json: bool) -> None:
    """Predict with a trained model: the parameters of its best epoch, without dropout."""
    if out is not None and out.suffix not in _SUFFIXES:
        raise ConfigError(f"--out must end in .npz or .csv, got {str(out)!r}")
    path = choose_run(folder, seed)
    config = _config(path)
    if data is not None:
        config = _on_other_data(config, parse_value("data.name", data))

    from dorylax.trainer import Trainer, prepare_data

    dataset = prepare_data(config.data)
    logits = Trainer.from_config(config, dataset, run_directory=path, resume=True).predict()
    accuracy = scores(logits, dataset)
    if out is not None:
        _write(out, logits, dataset)
    content = {
        "schema": 1,
        "run": str(path),
        "metric": "micro_f1" if dataset.multilabel else "accuracy",
        "accuracy": accuracy,
        "vertices": logits.shape[0],
        "classes": logits.shape[1],
        "out": None if out is None else str(out),
    }
    if as_json:
        click.echo(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False))
        return
    from dorylax.cli.outcome import percent

    name = "micro-F1" if dataset.multilabel else "accuracy"
    for mask, value in accuracy.items():
        label = "validation" if mask == "val" else mask
        click.echo(f"{label} {name}: {percent(value)} of {int(getattr(dataset, _MASKS[mask]).sum()):,} vertices")
    if out is not None:
        click.echo(f"predictions: {out}")


def choose_run(folder: Path, seed: int | None = None) -> Path:
    """The directory of one run.

    Args:
        folder: of a run, or of several seeds (`dorylax train --out`).
        seed: which of several; None: the finished one with the best validation accuracy, the first of equals.

    Raises:
        ConfigError: there is no such run.
    """
    if (folder / "config.yaml").is_file():
        if seed is not None:
            raise ConfigError(f"--seed chooses among several seeds, {folder} is one run")
        return folder
    seeds = {
        int(path.parent.name.removeprefix("seed-")): path.parent
        for path in folder.glob("seed-*/config.yaml")
        if re.fullmatch(r"seed-[0-9]+", path.parent.name)
    }
    if not seeds:
        raise ConfigError(f"--run {folder} is not a run directory: it has neither config.yaml nor seed-0/config.yaml")
    if seed is not None:
        if seed not in seeds:
            raise ConfigError(f"--run {folder} has no seed {seed}: it has {', '.join(map(str, sorted(seeds)))}")
        return seeds[seed]

    def merit(number: int) -> tuple[bool, float, int]:
        from dorylax.run_directory import RunDirectory

        summary = RunDirectory.open(seeds[number]).summary or {}
        return bool(summary), summary.get("val_accuracy") or 0.0, -number

    return seeds[max(seeds, key=merit)]


def scores(logits: Float32[np.ndarray, "V C"], data: Dataset) -> dict[str, float | None]:
    """Accuracy (micro-F1 for multi-label data) by mask, as fractions; None where the mask is empty."""
    import jax

    from dorylax.program.loss import confusion_counts, micro_f1

    masks = np.stack([getattr(data, name) for name in _MASKS.values()])
    counts = np.asarray(confusion_counts(*map(jax.numpy.asarray, (logits, data.labels, masks))))
    return {
        name: micro_f1(count) if mask.any() else None for name, count, mask in zip(_MASKS, counts, masks, strict=True)
    }


def _config(path: Path) -> RunConfig:
    """The configuration in a run directory."""
    from dorylax.config import RunConfig
    from dorylax.run_directory import RunDirectory

    content = RunDirectory.open(path).config
    if "class" in content.get("model", {}):
        raise ConfigError(
            f"{path} is a run of a model made in Python ({content['model']['class']}): "
            "predict with Trainer(…, run_directory=…).predict() there"
        )
    return RunConfig.load(path / "config.yaml")


def _on_other_data(config: RunConfig, name: str) -> RunConfig:
    """The configuration with other data: what concerns the run's own data, or training, is dropped."""
    size = config.data.size if name == config.data.name else None
    kept = {section: values for section, values in config.to_dict().items() if section != "pipeline"}
    # When to stop does not matter here, and would ask for validation vertices.
    changes = {"data.name": name, "data.size": size, "train.target_accuracy": None, "train.patience": None}
    return type(config).resolve(kept, changes)


def _write(path: Path, logits: Float32[np.ndarray, "V C"], data: Dataset) -> None:
    predictions: np.ndarray = logits > 0 if data.multilabel else logits.argmax(axis=1).astype(np.int32)
    if path.suffix == ".npz":
        write_file(path, lambda file: np.savez(file, logits=logits, predictions=predictions))
    else:
        write_file(path, _csv(predictions, data))


def _csv(predictions: np.ndarray, data: Dataset) -> str:
    """A row per vertex; of multi-label data, classes are separated by spaces."""
    split = np.select([getattr(data, name) for name in _MASKS.values()], list(_MASKS), default="")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("vertex", "prediction", "label", "split"))
    for vertex, (prediction, label) in enumerate(zip(predictions, data.labels, strict=True)):
        writer.writerow((vertex, _classes(prediction), _classes(label), split[vertex]))
    return stream.getvalue()


def _classes(value: Any) -> str:
    return " ".join(map(str, np.flatnonzero(value))) if np.ndim(value) else str(value)
