"""The recipe for ogbn-arxiv, a GCN with BatchNorm in training mode, on one machine and in pipelines: the same training.

Three GCN layers of width 256, BatchNorm and dropout 0.5 between them, Adam with learning rate 0.01 (W. Hu et al., "Open
Graph Benchmark", NeurIPS 2020), on a generated graph of ogbn-arxiv's size. Each row is a way to train; its losses and last
parameters are compared with those of `jax.value_and_grad` of the model in one piece, by relative distance. (Not the two
biases before a BatchNorm, which takes them off again: their gradient is 0 but for rounding, of which Adam makes full steps.)

    python benchmarks/arxiv_recipe.py                    # 5 epochs, about 4 minutes on two cores
    python benchmarks/arxiv_recipe.py --scale 0.05 --epochs 2 --runs "one piece, jax.grad" "async, S = 1"
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

import dorylax
from dorylax import PipelineConfig, TensorConfig, Trainer
from dorylax.layers import GCN
from harness.command_line import parsed, parser_of, write_json

VERTICES, EDGES, FEATURES, CLASSES = 169_343, 2 * 1_166_243, 128, 40  # both directions of each edge
LOCAL = TensorConfig(backend="local", workers=1)
RUNS: dict[str, dict[str, Any]] = {
    "one piece, jax.grad": {"optimize": False},
    "one machine, split": {},
    "pipe, 1 server × 4 intervals": {"pipeline": PipelineConfig(servers=1, intervals=4)},
    "pipe, 2 servers × 4 intervals": {"pipeline": PipelineConfig(servers=2, intervals=4)},
    "pipe, 4 servers × 2 intervals, 2 parameter servers": {
        "pipeline": PipelineConfig(servers=4, intervals=2, parameter_servers=2)
    },
    "pipe, 2 servers × 4 intervals, local workers": {"pipeline": PipelineConfig(servers=2, intervals=4, tensor=LOCAL)},
    "async, S = 0": {"pipeline": PipelineConfig(servers=2, intervals=4, mode="async", staleness=0)},
    "async, S = 1": {"pipeline": PipelineConfig(servers=2, intervals=4, mode="async", staleness=1)},
}
"""Ways to train; asynchronous ones compute something else, and are there to be seen training."""

_TAKEN_OFF = ("['convs'][0]['bias']", "['convs'][1]['bias']")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of vertices and edges (default: 1)")
    parser.add_argument("--epochs", type=int, default=5, help="(default: 5)")
    parser.add_argument(
        "--runs", nargs="+", default=list(RUNS), choices=list(RUNS), metavar="NAME", help="(default: all)"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parsed(parser, scale=0.002, epochs=1, runs=["one piece, jax.grad", "one machine, split"])
    data = dorylax.load(
        "communities",
        num_vertices=round(VERTICES * options.scale),
        num_edges=2 * round(EDGES * options.scale / 2),
        num_features=FEATURES,
        num_classes=CLASSES,
    )
    rows: list[dict[str, Any]] = []
    expected: dict[str, np.ndarray] = {}
    for name in options.runs:
        row, params = train(name, data, options.epochs, RUNS[name])
        expected = expected or params
        rows.append(row)
        row["losses_apart"] = max(abs(a - b) / b for a, b in zip(row["losses"], rows[0]["losses"], strict=True))
        row["parameters_apart"] = max(
            float(np.linalg.norm(params[path] - array) / np.linalg.norm(array)) for path, array in expected.items()
        )
        losses = " ".join(f"{loss:.4f}" for loss in row["losses"])
        print(
            f"{name:52} losses {losses}  apart {row['losses_apart']:.1e}  parameters {row['parameters_apart']:.1e}  "
            f"{row['seconds']:.1f} s an epoch",
            flush=True,
        )
    write_json(options.json, {"vertices": data.graph.num_vertices, "edges": data.graph.num_edges, "runs": rows})


def train(name: str, data: Any, epochs: int, how: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One way to train, and the last parameters that are compared."""
    rngs = nnx.Rngs(params=0, dropout=0)
    model = GCN(FEATURES, 256, CLASSES, num_layers=3, dropout=0.5, norm="batch", rngs=rngs)
    begin = time.perf_counter()
    trainer = Trainer(model, data, optimizer=optax.adam(0.01), epochs=epochs, eval_every=epochs, **how)
    result = trainer.fit()
    row = {
        "name": name,
        "losses": [record.loss for record in result.history],
        "test_accuracy": result.test_accuracy,
        "seconds": result.seconds_per_epoch,
        "wall": time.perf_counter() - begin,
    }
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(result.last_params)}
    return row, {path: leaf for path, leaf in leaves.items() if path not in _TAKEN_OFF}


if __name__ == "__main__":
    main()
