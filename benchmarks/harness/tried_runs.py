"""Small runs that trials disturb: their commands, and what they leave."""

from __future__ import annotations

from pathlib import Path

RUN = ("train", "--data", "communities", "--set", "data.size=tiny", "--epochs", "4")
SAVED_PIPELINE = (
    *("--set", "train.checkpoint_every=2"),
    *("--set", "pipeline.servers=2", "--set", "pipeline.clock=virtual"),
)


def files(whole: Path) -> list[str]:
    """But locks, the insides of arrays, whose names are random, and traces, which are of the process that trained."""
    left_out = (".lock", "trace.json")
    names = [str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file() and path.name not in left_out]
    return sorted(name for name in names if "/arrays/" not in name)


def same_results(one: Path, other: Path) -> bool:
    """Whether tables, metrics, and all of a summary but wall times are the same, and those of no bit is damaged."""
    from dorylax.runs import metrics
    from dorylax.runs.directory import RunDirectory

    runs = [RunDirectory(folder / "seed-0") for folder in (one, other)]
    summaries = [{**(run.summary or {}), "timings": None} for run in runs]
    tables = [(folder / "results.csv").read_bytes() for folder in (one, other)]
    return (
        summaries[0] == summaries[1]
        and tables[0] == tables[1]
        and runs[0].config == runs[1].config
        and metrics.of_run(runs[0]) == metrics.of_run(runs[1])
    )
