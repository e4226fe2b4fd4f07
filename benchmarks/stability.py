"""The cost and gain of the stability gate, group by group, the worst first: from the folder of a sweep.

Each group of `experiments/configs/stability.yaml` compares asynchronous training at its defaults with synchronous training.
Differences of validation accuracy are in points: of the best epoch, and of the mean of the last 20. The ratios of epochs and
time are to the sweep's target; ≥ and ≤ mark bounds, where runs of one side never reach it. The worst group loses most in
either accuracy, or in epochs, where a hundredth counts as a tenth of a point.

    python experiments/run.py --sweep stability --out runs/stability
    python benchmarks/stability.py runs/stability
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from dorylax.experiments.analysis import Group, analyse
from dorylax.experiments.folder import read_study
from dorylax.experiments.run import main as run_sweep
from dorylax.experiments.sweep import CONFIGS
from harness.command_line import parsed, parser_of, write_json


class Row(NamedTuple):
    """A group: its name, intervals a server, seeds, the share of epochs ahead, and what asynchrony changes."""

    name: str
    intervals: int
    seeds: int
    ahead: float
    sign: str
    epochs: float | None
    seconds: float | None
    best: float
    last: float

    @property
    def loss(self) -> float:
        """How much worse it is than its baseline, in points."""
        return max(-self.best, -self.last, 10 * ((self.epochs or 1) - 1))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="of the sweep, finished or not")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parsed(parser)
    if not options.tiny and options.folder is None:
        parser.error("give the folder of a sweep, as runs/stability")
    with tempfile.TemporaryDirectory() as folder:
        report(_tiny(Path(folder)) if options.tiny else options.folder, options.json)


def report(folder: Path, json: Path | None) -> None:
    """Prints the table of a folder."""
    groups = analyse(read_study(folder))
    rows = sorted((row for group in groups for row in _rows(group)), key=lambda row: -row.loss)
    print(f"{'':60}    K seeds  ahead   epochs ×   time ×     best  last 20")
    for row in rows:
        ratios = "".join(" " * 10 if x is None else f"{row.sign:>4}{x:6.2f}" for x in (row.epochs, row.seconds))
        print(
            f"{row.name:60} {row.intervals:4} {row.seeds:5} {row.ahead:6.0%} {ratios}  {row.best:+7.2f}  {row.last:+7.2f}"
        )
    for intervals in sorted({row.intervals for row in rows}):
        opened = [row for row in rows if row.intervals == intervals and row.ahead and row.seconds is not None]
        if opened:
            epochs, seconds = (statistics.fmean(map(key, opened)) for key in (lambda r: r.epochs, lambda r: r.seconds))
            print(
                f"K = {intervals}, {len(opened)} groups in which it opens: epochs {epochs:.2f} ×, time {seconds:.2f} ×"
            )
    write_json(json, [row._asdict() for row in rows])


def _rows(group: Group) -> Iterator[Row]:
    for variant in group.variants:
        found = variant.finding
        if variant.is_baseline or found is None or not {"best", "last"} <= found.differences.keys():
            continue
        ahead = sum(run.summary["pipeline"]["epochs_ahead"] or 0 for run in variant.runs)
        ratios = {measure: ratio.estimate for measure, ratio in found.ratios.items()}
        yield Row(
            group.name or variant.runs[0].run.config.data.name,
            variant.runs[0].run.config.dotted()["pipeline.intervals"],
            len(found.runs),
            ahead / sum(len(run.history) for run in variant.runs),
            found.sign or "",
            ratios.get("epochs"),
            ratios.get("seconds"),
            100 * found.differences["best"].estimate,
            100 * found.differences["last"].estimate,
        )


def _tiny(folder: Path) -> Path:
    """A sweep of two runs."""
    sweep = yaml.safe_load((CONFIGS / "stability.yaml").read_text())
    sweep["base"] |= {"data.name": "communities", "data.size": "tiny", "train.epochs": 12, "pipeline.intervals": 2}
    sweep |= {"zip": sweep["zip"][1], "seeds": [300], "compare": {"baseline": {"pipeline.mode": "pipe"}}}
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(sweep))
    run_sweep(["--sweep", str(file), "--out", str(folder / "out"), "--no-report", "--jobs", "1"])
    return folder / "out"


if __name__ == "__main__":
    main()
