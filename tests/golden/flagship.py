"""The README's main job, `experiments/run.py --sweep`, and a small one on the same path: their tables and files."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from dorylax.experiments.run import main
from dorylax.experiments.sweep import CONFIGS
from golden.cases import kind

FOLDER = Path(__file__).parent / "flagship"
SIZES = ("small", "full")


def files(size: str) -> tuple[list[Path], Path]:
    """The recorded tables of this kind of processor, and the recorded list of files.

    After 120 epochs, the losses of AMD's Zen 5 differ in the sixth digit from those of other processors with AVX2, at the
    same commit, so it has a table of its own: `full-zen5.csv`.
    """
    return sorted((FOLDER / kind().replace(" ", "-")).glob(f"{size}*.csv")), FOLDER / f"{size}-files.txt"


def run(size: str, folder: Path) -> tuple[str, str]:
    """Runs the sweep in an empty folder.

    Returns:
        Its results.csv, and the paths of all files that it leaves: those of runs once, with KEY for the run's key.
    """
    words = []
    if size == "small":
        sweep = yaml.safe_load((CONFIGS / "flagship.yaml").read_text())
        training, heavy = sweep["parts"].values()
        training["base"] |= {"data.size": "tiny", "train.epochs": 6}
        training["seeds"] = 1
        heavy["base"] |= {
            "graph.vertices": 2000,
            "graph.edges": 20_000,
            "pipeline.intervals": 4,
            "simulation.epochs": 4,
        }
        for part in (training, heavy):
            part["zip"] = {key: values[:2] for key, values in part["zip"].items()}
        file = folder / "small.yaml"
        file.write_text(yaml.safe_dump(sweep, sort_keys=False))
        words = [str(file), "--jobs", "1"]
    out = folder / "out"
    assert main(["--sweep", *words, "--out", str(out)]) == 0
    left = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    left = {re.sub(r"/arrays-\w+", "/arrays-ID", re.sub(r"^runs/\w+", "runs/KEY", path)) for path in left}
    return (out / "results.csv").read_text(), "\n".join(sorted(left)) + "\n"
