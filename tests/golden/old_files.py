"""Files of an earlier version, in tests/golden/old_files: the script that made them, and the facts read from them.

`python tests/golden/old_files.py FOLDER` makes them with the dorylax that Python imports. The repository has those of the
wheel of commit cad1e655, made in a separate environment:

    git archive cad1e655 | tar -x -C SOURCES
    pip wheel --no-deps -w WHEELS SOURCES && pip install --no-deps --target PACKAGES WHEELS/dorylax-*.whl
    PYTHONPATH=PACKAGES:tests python tests/golden/old_files.py tests/golden/old_files

`files.tar.xz` holds the files, `results.json` the facts and the results of uninterrupted runs. Do not make them
again: later versions must keep reading them. A new layout gets an archive beside this one.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support import compilation

    compilation.quickly()

import numpy as np
import scipy.sparse as sp
import yaml
from flax import nnx

from dorylax import Dataset, Graph, RunConfig, Trainer, experiments, load
from dorylax.cli import main
from dorylax.experiments.run import main as run_sweep
from dorylax.graph.partition import Partition
from dorylax.inference.loader import Model
from dorylax.layers import GCN
from dorylax.program import DataSpec, optimise, trace
from dorylax.program.artefact.export import save
from dorylax.program.artefact.stage_file import load as load_stage
from golden.cases import kind, rounding_as_recorded

FOLDER = Path(__file__).parent / "old_files"
ARCHIVES = ("plain", "edges", "compressed", "multilabel", "imported", "reordered", "large")
EPOCHS = 6
CRASH = 4  # epochs until the process of an interrupted run dies; its last checkpoint is of one epoch less
_SHARED = {
    "data.name": "plain.npz",
    "model.name": "gcn",
    "model.hidden_features": 4,
    "train.epochs": EPOCHS,
    "train.checkpoint_every": CRASH - 1,
}
_PIPELINE = {"pipeline.servers": 2, "pipeline.intervals": 2, "pipeline.mode": "async", "pipeline.partition": "parts"}
_VIRTUAL = {"pipeline.clock": "virtual", "pipeline.update": "per_interval", "pipeline.parameter_servers": 2}
RUNS = {
    "single": _SHARED,
    "pipeline": {**_SHARED, **_PIPELINE, **_VIRTUAL},
    "hosts": {**_SHARED, **_PIPELINE, "pipeline.hosts": "processes"},  # its checkpoint has parts of servers
}
_SWEEP = {
    "base": {
        **_SHARED,
        "train.epochs": 2,
        "train.checkpoint_every": 0,
        "pipeline.servers": 2,
        "pipeline.clock": "virtual",
    },
    "zip": {"pipeline.mode": ["pipe", "async"]},
    "compare": {"baseline": {"pipeline.mode": "pipe"}, "target": 0.2},
}


def make() -> None:
    """Writes the archive of all files and results.json into the current folder."""
    _make_archives()
    command("partition", "--data", "plain.npz", "--servers", "2", "--intervals", "2", "--out", "parts")
    whole = {}
    for name in RUNS:
        train(name, name=f"whole-{name}")
        whole[name] = facts_of_run(f"whole-{name}")
        if name == "single":
            command("export", "whole-single", "--out", "model.zip")
        shutil.rmtree(f"whole-{name}")
        crash = f"from golden import old_files; old_files.train({name!r}, crash=True)"
        assert subprocess.run([sys.executable, "-c", crash], check=False).returncode == CRASH
    Path("sweep.yaml").write_text(yaml.safe_dump(_SWEEP, sort_keys=False))
    assert run_sweep(["--sweep", "sweep.yaml", "--out", "sweep", "--no-report", "--jobs", "1"]) == 0
    program = optimise(trace(GCN(5, 4, 3, rngs=nnx.Rngs(0)), DataSpec.of(load("plain.npz"))))
    save(program.export(), "stages")
    for lock in Path().rglob(".lock"):
        lock.unlink()
    with tarfile.open("files.tar.xz", "w:xz") as archive:
        for path in sorted(Path().iterdir()):
            if path.name != "files.tar.xz":
                archive.add(path, filter=_anonymous)
    facts = {name: read() for name, read in FACTS.items()}
    Path("results.json").write_text(lines({"kind": kind(), "facts": facts, "whole": whole}))
    for path in Path().iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in ("files.tar.xz", "results.json"):
            path.unlink()


def lines(value: Any, depth: int = 2) -> str:
    """JSON with a line for each of the inner values."""
    if not isinstance(value, dict) or not depth:
        return json.dumps(value)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {lines(inner, depth - 1)}" for key, inner in value.items()) + "\n}"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)


def train(settings: str, name: str | None = None, *, crash: bool = False) -> None:
    """Trains one of `RUNS`, in a folder of its name or another one."""
    config = RunConfig.resolve(RUNS[settings])
    with mock.patch("platform.platform", return_value="Linux"):
        Trainer.from_config(config, run_directory=name or settings, observers=[_Crash()] if crash else []).fit()


class _Crash:
    """An observer that kills the process."""

    def started(self, total_epochs: int, first_epoch: int) -> None:
        pass

    def epoch(self, record: Any) -> None:
        if record.epoch == CRASH - 1:
            os._exit(CRASH)

    def finished(self, result: Any) -> None:
        pass


def _make_archives() -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 40, (2, 160))
    x, labels = rng.normal(size=(40, 5)).astype(np.float32), rng.integers(0, 3, 40)
    masks = {f"{name}_mask": np.arange(40) % 3 == k for k, name in enumerate(("train", "val", "test"))}
    Dataset("plain", Graph.from_edge_index(edges, 40).symmetrise(), x, labels, 3, **masks).save_npz("plain.npz")
    weighted = Graph.from_edge_index(edges, 40, edge_weight=rng.random(160).astype(np.float32))
    inputs = {"vertex_inputs": {"pos": x[:, :2]}, "edge_inputs": {"length": rng.random((160, 2)).astype(np.float32)}}
    Dataset("edges", weighted, x, labels, 3, **masks, **inputs).save_npz("edges.npz")
    several = rng.integers(0, 2, (40, 4))
    Dataset("multilabel", weighted, x, several, 4, multilabel=True, **masks).save_npz("multilabel.npz")
    sparse = sp.csr_array(np.where(x > 1, x, 0))
    rows = {f"features_{part}": getattr(sparse, part) for part in ("indptr", "indices", "data", "shape")}
    adjacency = sp.csr_array(sp.coo_array((np.ones(160), edges), (40, 40)))
    np.savez_compressed("compressed.npz", indptr=adjacency.indptr, indices=adjacency.indices, labels=labels, **rows)
    Path("edges.tsv").write_text("".join(f"v{a}\tv{b}\t{a + b}\n" for a, b in edges.T))
    np.save("x.npy", x)
    names = ("--ids", "names", "--columns", "source,target,weight", "--features", "x.npy", "--labels", "y.npy")
    np.save("y.npy", labels)
    command("import", "edges.tsv", *names, "--out", "imported.npz", "--memory", "1GiB")
    command("reorder", "edges.npz", "--out", "reordered.npz")
    wide = np.zeros((40, 1 << 15), np.float32)  # 5 MiB: memory-mapped
    wide[:, :5] = x
    Dataset("large", weighted, wide, labels, 3, **masks).save_npz("large.npz")
    for name in ("edges.tsv", "x.npy", "y.npy"):
        Path(name).unlink()


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

if __name__ == "__main__":
    Path(sys.argv[1]).mkdir()
    with chdir(sys.argv[1]), rounding_as_recorded(), mock.patch("platform.platform", return_value="Linux"):
        make()
