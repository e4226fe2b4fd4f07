"""Files of an earlier version, in tests/golden/old_files, and the facts read from them.

The wheel of commit cad1e655 wrote `files.tar.xz`, and `results.json` with the facts and the results of uninterrupted
runs, by a script that this file had until commit 9c20517c. Do not make them again: later versions must keep reading
them. A new layout gets an archive beside this one.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
import runpy
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dorylax import Dataset, experiments, load
from dorylax.cli import main
from dorylax.experiments.run import main as run_sweep
from dorylax.graph.partition import Partition
from dorylax.inference.loader import Model
from dorylax.program.artefact.stage_file import load as load_stage

FOLDER = Path(__file__).parent / "old_files"
ARCHIVES = ("plain", "edges", "compressed", "multilabel", "imported", "reordered", "large")
RUNS = ("single", "pipeline", "hosts")  # the checkpoint of the last one has parts of servers


def _rows_of_results() -> list[dict[str, str]]:
    with Path("sweep/results.csv").open() as file:
        return list(csv.DictReader(file))


def _sweep() -> Any:
    before = _rows_of_results()
    sweep = yaml.safe_load(Path("sweep.yaml").read_text())
    sweep["base"]["tensor.placement"] = "functions"  # what that version did; another placement needs new runs
    Path("sweep.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False))
    assert run_sweep(["--sweep", "sweep.yaml", "--out", "sweep", "--no-report"]) == 0  # nothing is left to run
    for old, new in zip(before, _rows_of_results(), strict=True):
        kept = [
            key for key in old if key in new
        ]  # settings that are new, or retired, since have columns in one of them
        assert {key: old[key] for key in kept} == {key: new[key] for key in kept}
    frame = experiments.load("sweep")
    return json.loads(frame[["pipeline.mode", "epoch", "loss", "val_accuracy", "dollars"]].to_json(orient="values"))


def _outputs() -> dict[str, str]:
    """Names of the files that commands write, with the columns, fields or members of each."""
    command("partition", "--data", "plain.npz", "--servers", "2", "--intervals", "2", "--out", "new/parts")
    command("export", "single", "--out", "new/model.zip")
    command("predict", "--run", "single", "--out", "new/predicted.npz")
    command("reorder", "edges.npz", "--out", "new/reordered")
    assert run_sweep(["--sweep", "sweep.yaml", "--out", "new/sweep", "--no-report", "--jobs", "1"]) == 0
    return contents("new")


def contents(folder: str) -> dict[str, str]:
    """Paths of all files, and the columns, fields or members of each; of a checkpoint, whose layout is new, the folder."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.parent.name == "checkpoints":
            found[re.sub(r"runs/\w+", "runs/KEY", path.relative_to(folder).as_posix())] = ""
        elif path.is_file() and path.name != ".lock" and "checkpoints" not in path.parts:
            name = re.sub(r"runs/\w+", "runs/KEY", path.relative_to(folder).as_posix())
            found[name] = _fields(path)
    return found


def _fields(path: Path) -> str:
    if path.suffix in (".npz", ".zip"):
        return " ".join(zipfile.ZipFile(path).namelist())
    if path.suffix == ".json":
        return " ".join(json.loads(path.read_text()))
    if path.suffix in (".csv", ".jsonl"):
        first = path.read_text().splitlines()[0]
        return first if path.suffix == ".csv" else " ".join(json.loads(first))
    return ""


def predictions(name: str) -> dict[str, Any]:
    """Scores and outputs of a run, by the command; the hash is of all outputs, to the last bit."""
    answer = json.loads(command("predict", "--run", name, "--out", "predicted.npz", "--json"))
    with np.load("predicted.npz") as archive:
        logits, classes = archive["logits"], archive["predictions"]
    Path("predicted.npz").unlink()
    return {
        "accuracy": answer["accuracy"],
        "first": logits[:2].tolist(),
        "classes": "".join(map(str, classes)),
        "hash": _hash(logits),
    }


def facts_of_run(name: str) -> dict[str, Any]:
    """Results and files of a finished run; on the real clock, only those that cannot vary."""
    lines = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
    summary = json.loads(Path(name, "summary.json").read_text())
    found = {"epochs": [line["epoch"] for line in lines], "stopped": summary["stopped"], "files": contents(name)}
    if name.endswith("hosts"):
        return found
    found |= {key: summary[key] for key in ("best_epoch", "val_accuracy", "test_accuracy", "final_loss")}
    found |= {"losses": [line["loss"] for line in lines], "predictions": predictions(name)}
    if name.endswith("pipeline"):
        found["pipeline"] = {key: value for key, value in summary["pipeline"].items() if key != "epochs_ahead"}  # new
        servers = [json.loads(line) for line in Path(name, "servers.jsonl").read_text().splitlines()]
        values = [{key: line[key] for key in line if key not in ("schema", "digest")} for line in servers]
        found["servers"] = hashlib.sha256(json.dumps(values).encode()).hexdigest()
        found["trace"] = hashlib.sha256(Path(name, "trace.json").read_bytes()).hexdigest()
    return found


def command(*words: str) -> str:
    """Runs the command line; returns its output."""
    out = StringIO()
    with redirect_stdout(out):
        assert main(words) == 0, words
    return out.getvalue()


def _arrays(data: Dataset) -> dict[str, Any]:
    """Hashes of all arrays of a data set."""
    graph = data.graph
    offsets, sources = graph.host_rows()
    arrays = {"offsets": offsets, "sources": sources, "edge_ids": graph.edge_ids, "features": data.features}
    arrays |= {name: getattr(data, name) for name in ("labels", "train_mask", "val_mask", "test_mask")}
    arrays |= {**graph.edge_data, **data.vertex_inputs, **data.edge_inputs}
    hashes = {name: _hash(np.asarray(array)) for name, array in arrays.items()}
    return {"name": data.name, "classes": data.num_classes, "multilabel": data.multilabel, **hashes}


def _hash(array: np.ndarray) -> str:
    if array.dtype == object:  # no array
        return "absent"
    return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"


def _exported() -> dict[str, Any]:
    """Outputs of the exported model on another graph: by the code in the file, and by the loader of this version."""
    models = {"alone": runpy.run_path("model.zip")["Model"](), "loaded": Model("model.zip")}
    graph, x = np.array([[0, 1, 2, 2], [1, 2, 0, 2]]), np.linspace(-1, 1, 20).reshape(4, 5)
    return {name: model(graph, x).tolist() for name, model in models.items()}


def _called(path: Path) -> list[Any]:
    """Outputs of a stage for four rows."""
    stage = load_stage(path)
    inputs = []
    for spec in stage.inputs:
        shape = [size if isinstance(size, int) else 4 for size in spec.shape]
        inputs.append(np.linspace(-1, 1, math.prod(shape)).reshape(shape).astype(spec.dtype))
    return [np.asarray(output).tolist() for output in stage(*inputs)]


FACTS: dict[str, Callable[[], Any]] = {
    "archives": lambda: {name: _arrays(load(f"{name}.npz")) for name in ARCHIVES},
    "partition": lambda: [*map(int, Partition.load("parts").parts)],
    "sweep": _sweep,
    "predictions": lambda: {name: predictions(name) for name in RUNS},
    "exported": _exported,
    "stages": lambda: {path.stem: _called(path) for path in sorted(Path("stages").glob("*.stage"))},
    "outputs": _outputs,
}
"""Readers of the files in the current folder, by subject."""
