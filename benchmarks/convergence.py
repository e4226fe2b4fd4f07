"""Epochs to a target accuracy of asynchronous training, relative to synchronous training, by the published protocol.

    python benchmarks/convergence.py run communities --out results/communities      # 50 seeds; goes on where it stopped
    DORYLAX_DATA=… python benchmarks/convergence.py run pubmed --out results/pubmed  # 20 seeds
    python benchmarks/convergence.py run communities --seeds 10 --learning-rate 0.01 --epochs 160 --out results/slow
    python benchmarks/convergence.py report results/communities results/pubmed results/slow

All runs are in virtual time on the default cluster, so that they can be repeated bit for bit. The synchronous runs come
first; they fix the target (their mean best validation accuracy minus one point), which is written to `target.json` before
anything else is trained. What is counted, and how, is `dorylax.experiments.comparison`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.config import RunConfig
from dorylax.experiments.convergence import Crossing, crossing, target_of
from dorylax.experiments.seed_statistics import Interval, paired_difference, paired_ratio
from dorylax.trainer import Trainer, prepare_data

PIPE = "pipe"
VARIANTS: dict[str, dict[str, Any]] = {
    PIPE: {"pipeline.mode": "pipe"},
    **{
        f"async S={staleness} {update}": {
            "pipeline.mode": "async",
            "pipeline.staleness": staleness,
            "pipeline.update": update,
        }
        for staleness in (0, 1)
        for update in ("per_epoch", "per_interval")
    },
}
PIPELINE = {"pipeline.servers": 2, "pipeline.intervals": 4, "pipeline.clock": "virtual"}
# Three times the usual learning rate: a third of the epochs, and so a third of the hours for several hundred runs.
TRAINING = {"optimizer.learning_rate": 0.03, "train.epochs": 100}
STUDIES: dict[str, dict[str, Any]] = {
    "communities": {"data.size": "small", "model.hidden_features": 16},  # 20,000 vertices
    "pubmed": {},
}
SEEDS = {"communities": 50, "pubmed": 20}
SAME = 0.005  # "as accurate": the whole interval of the difference within half a point


def run(study: str, folder: Path, seeds: int, changes: dict[str, Any]) -> None:
    """Trains what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    base = {"data.name": study, "model.name": "gcn", **STUDIES[study], **TRAINING, **PIPELINE, **changes}
    data = prepare_data(RunConfig.resolve(base).data)
    for variant, settings in VARIANTS.items():
        for seed in range(seeds):
            path = folder / f"{variant.replace(' ', '_')}-{seed}.json"
            if path.exists():
                continue
            config = RunConfig.resolve({**base, **settings, "train.seed": seed})
            trainer = Trainer.from_config(config, data)
            result = trainer.fit()
            assert result.pipeline is not None
            best = max(record.val_accuracy or 0.0 for record in result.history)
            found = {
                "variant": variant,
                "seed": seed,
                "val_accuracy": [round(record.val_accuracy or 0.0, 6) for record in result.history],
                "best_val_accuracy": best,
                "test_accuracy": result.history[result.best_epoch or 0].test_accuracy,
                "seconds": sum(record.seconds for record in result.history),
                "counters": result.pipeline["counters"],
            }
            path.with_suffix(".part").write_text(json.dumps(found))
            path.with_suffix(".part").replace(path)
            print(f"{study} {variant} seed {seed}: best {best:.4f}", flush=True)
        if variant == PIPE and not (folder / "target.json").exists():
            target = target_of([entry["best_val_accuracy"] for entry in read(folder, PIPE)])
            (folder / "target.json").write_text(json.dumps({"target": target, "seeds": seeds}))


def read(folder: Path, variant: str) -> list[dict[str, Any]]:
    """The runs of a variant, by seed."""
    paths = sorted(
        folder.glob(f"{variant.replace(' ', '_')}-*.json"), key=lambda path: int(path.stem.rsplit("-", 1)[1])
    )
    return [json.loads(path.read_text()) for path in paths]


def summarise(folder: Path) -> dict[str, Any]:
    """What a study has shown."""
    target = json.loads((folder / "target.json").read_text())["target"]
    baseline = read(folder, PIPE)
    pipe_epochs = [crossing(entry["val_accuracy"], target).epochs for entry in baseline]
    rows = []
    for variant in VARIANTS:
        entries = read(folder, variant)
        if [entry["seed"] for entry in entries] != [entry["seed"] for entry in baseline]:
            raise SystemExit(f"{folder}: {variant} is not finished: {len(entries)} of {len(baseline)} seeds")
        crossings = [crossing(entry["val_accuracy"], target) for entry in entries]
        rows.append(_row(variant, entries, crossings, baseline, pipe_epochs))
    return {"study": folder.name, "target": target, "seeds": len(baseline), "rows": rows}


def _row(
    variant: str, entries: list[Any], crossings: list[Crossing], baseline: list[Any], pipe_epochs: list[int]
) -> dict[str, Any]:
    accuracy = paired_difference(*_both("test_accuracy", entries, baseline))
    read_rows = sum(entry["counters"]["rows_read"] for entry in entries)
    return {
        "variant": variant,
        "epochs": float(np.mean([one.epochs for one in crossings])),
        "censored": sum(one.censored for one in crossings),
        "ratio": vars(paired_ratio([one.epochs for one in crossings], pipe_epochs)),
        "best_val_accuracy": float(np.mean([entry["best_val_accuracy"] for entry in entries])),
        "test_accuracy": float(np.mean([entry["test_accuracy"] for entry in entries])),
        "test_difference": vars(accuracy),
        "as_accurate": accuracy.inside(SAME),
        "stale": sum(entry["counters"]["stale_rows"] for entry in entries) / read_rows,
        "seconds_per_epoch": float(np.mean([entry["seconds"] / len(entry["val_accuracy"]) for entry in entries])),
    }


def _both(name: str, entries: list[Any], baseline: list[Any]) -> tuple[list[float], list[float]]:
    return [entry[name] for entry in entries], [entry[name] for entry in baseline]


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The study as a Markdown table."""
    yield f"{found['study']}: {found['seeds']} seeds, target {100 * found['target']:.2f} % validation accuracy"
    yield ""
    yield (
        "| run | epochs to target | censored | ratio to pipe [95 %] | test accuracy | difference in points [95 %] "
        "| as accurate | rows read that were stale | virtual ms per epoch |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in found["rows"]:
        ratio, difference = Interval(**row["ratio"]), Interval(**row["test_difference"])
        yield (
            f"| {row['variant']} | {row['epochs']:.1f} | {row['censored']} "
            f"| {ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] | {100 * row['test_accuracy']:.2f} % "
            f"| {100 * difference.estimate:+.2f} [{100 * difference.low:+.2f}, {100 * difference.high:+.2f}] "
            f"| {'yes' if row['as_accurate'] else 'no'} | {100 * row['stale']:.0f} % "
            f"| {1e3 * row['seconds_per_epoch']:.1f} |"
        )


def main() -> None:
    """Runs, or reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("study", choices=list(STUDIES))
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--seeds", type=int)
    running.add_argument("--learning-rate", type=float, default=TRAINING["optimizer.learning_rate"])
    running.add_argument("--epochs", type=int, default=TRAINING["train.epochs"])
    reporting = commands.add_parser("report")
    reporting.add_argument("folders", type=Path, nargs="+")
    reporting.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        changes = {"optimizer.learning_rate": arguments.learning_rate, "train.epochs": arguments.epochs}
        run(arguments.study, arguments.out, arguments.seeds or SEEDS[arguments.study], changes)
        return
    studies = [summarise(folder) for folder in arguments.folders]
    for found in studies:
        print("\n".join(lines(found)), end="\n\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(studies, indent=1) + "\n")


if __name__ == "__main__":
    main()
