"""The guarantee of bounded staleness, and the measurement: the mean squared norm of the gradient against epochs.

Dorylus (OSDI '21, section 5.3) proves for plain gradient descent with staleness S and step size min(1/ρ, 1/√N), that after N
updates the expected squared norm of the full gradient, at a random one of them, is O(1/√N). Here it is measured: for each N
a run of a GCN without dropout, whose step size is `--rate` · √(`--at` / N); after each epoch the exact gradient of the
loss at the newest weights, of the model in one piece; the mean of its squared norm over the N epochs. S is 0, 1, 2, 4 and K,
the number of intervals, with nothing but the bound (no freshness, no prediction, no stability gate), and once with the
defaults.

The theorem says nothing about Adam, dropout, or validation accuracy; its constant is unknown, so the line of its rate is
drawn through the first point of S = 0. It holds for every S < N / L, L being the number of layers, so the points of the
smallest N with S = K are outside of it.

    python benchmarks/gradient_norm.py --plot gradient-norm.png            # 20,000 vertices: about 40 minutes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import dorylax
from dorylax.graph.dataset import Dataset
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.program.model.base import ModelParts
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.model.loss import cross_entropy
from harness.command_line import parsed, parser_of, plotted, write_json

SERVERS = 2
PLAIN = {"freshness": 0, "predict_weights": "none", "stability_gate": False}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--size", default="small", help="of the graph `communities`")
    parser.add_argument("--epochs", type=int, nargs="+", default=[2**k for k in range(4, 11)], help="N")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--intervals", type=int, default=4, help="of each of the two servers")
    parser.add_argument("--rate", type=float, default=1.0, help="step size of the run of `--at` epochs")
    parser.add_argument("--at", type=int, default=64, help="see --rate")
    parser.add_argument("--plot", type=Path, help="draw the figure here")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parsed(parser, size="tiny", epochs=[2, 4], seeds=1, intervals=2)

    data = dorylax.load("communities", size=options.size)
    count = SERVERS * options.intervals
    ways: dict[str, dict[str, Any]] = {"pipe": {"mode": "pipe"}}
    ways |= {f"S = {s}": {"mode": "async", "staleness": s, **PLAIN} for s in (0, 1, 2, 4)}
    ways |= {f"S = K = {count}": {"mode": "async", "staleness": count, **PLAIN}, "defaults (S = 1)": {"mode": "async"}}
    found: dict[str, list[list[float]]] = {}
    for name, way in ways.items():
        config = PipelineConfig(servers=SERVERS, intervals=options.intervals, clock="virtual", **way)
        found[name] = [
            [
                mean_square(data, config, epochs, options.rate * (options.at / epochs) ** 0.5, seed)
                for seed in range(options.seeds)
            ]
            for epochs in options.epochs
        ]
        means = [float(np.mean(values)) for values in found[name]]
        line = "  ".join(f"N = {n}: {mean:.2e}" for n, mean in zip(options.epochs, means, strict=True))
        slope = np.polyfit(np.log(options.epochs), np.log(means), 1)[0]
        print(f"{name:18} {line}   ∝ N^{slope:.2f}", flush=True)
    write_json(options.json, {"epochs": options.epochs, "mean_squared_norms": found})
    if options.plot is not None:
        draw(options.plot, options.epochs, found)


def mean_square(data: Dataset, config: PipelineConfig, epochs: int, rate: float, seed: int) -> float:
    """The mean over a run's epochs of the squared norm of the full gradient."""
    parts = take_apart(GCN(data.num_features, 16, data.num_classes, dropout=0.0, rngs=nnx.Rngs(seed)))
    run = Pipeline.of(parts, data, optax.sgd(rate), config, seed=seed).start(parts.params, None, parts.state)
    square = squared_norm(parts, data)
    squares = [square(parts.params)]
    try:
        squares += [square(run.run_epoch().params) for _ in range(epochs - 1)]
    finally:
        run.close()
    return float(np.mean(squares))


def squared_norm(parts: ModelParts, data: Dataset) -> Callable[[Any], float]:
    """Of the gradient of the loss by all parameters, as a function of these."""
    features, labels = jnp.asarray(data.features), jnp.asarray(data.labels)
    weights = jnp.asarray(data.train_mask / data.train_mask.sum(), features.dtype)

    def loss(params: Any) -> Any:
        output = parts.structure.apply_evaluate(params, parts.streams, parts.state, data.graph, features)
        return (weights * cross_entropy(output, labels)).sum()

    gradient = jax.jit(jax.grad(loss))
    return lambda params: float(optax.tree.norm(gradient(params), squared=True))


def draw(path: Path, epochs: Sequence[int], found: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Means and ranges over seeds, and the rate of the theorem."""
    with plotted(path) as axes:
        for name, values in found.items():
            style = "o--" if name == "pipe" or name.startswith("defaults") else "o-"
            (line,) = axes.plot(epochs, [np.mean(each) for each in values], style, markersize=4, label=name)
            low, high = zip(*((min(each), max(each)) for each in values), strict=True)
            axes.fill_between(epochs, low, high, alpha=0.15, color=line.get_color())
        rate = [np.mean(found["S = 0"][0]) * (epochs[0] / n) ** 0.5 for n in epochs]
        axes.plot(epochs, rate, ":", color="0.3", label="rate of the theorem, 1/√N")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(epochs, [str(n) for n in epochs])
        axes.set(xlabel="N, epochs of the run (step size ∝ 1/√N)", ylabel="mean squared norm of the gradient")
        axes.legend(frameon=False, loc="lower left")
        axes.grid(alpha=0.3)


if __name__ == "__main__":
    main()
