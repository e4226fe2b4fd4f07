"""Real seconds to a validation accuracy: `pipe` against asynchronous training, with workers behind a shaped link.

The data set, model and optimizer of the sweep `asynchrony` (communities, 20,000 vertices, a GCN of width 16 with dropout,
Adam at 0.01), on one server with 16 intervals and 16 workers. Every request of a worker waits 30 ms in the median, and its
bytes pass at 200 Mbit/s. Latencies are lognormal with sigma 0.6, so that the slowest hundredth takes 4 times the median:
an assumption, the spread of warm invocations of AWS's Runtime Interface Emulator (2.0 ms, 7.9 ms for the slowest
hundredth). With `--latency-sigma 0` all requests take the same, and there is little that asynchrony could save: no interval
is ever late. Graph tasks take a tenth of an epoch, and the two cores are mostly idle, as they have to be for the link to be
what is measured.

Each mode trains alone, from the same initial weights, for `--epochs`; the weights after each epoch are kept, and evaluated
when all is over, so that nobody waits for that. The target is the mean best validation accuracy of `pipe` minus one point,
reached when the mean of three epochs is: the protocol of sweeps. The first epoch, in which workers compile, counts for
nobody. Seeds are of weights, dropout and the pipeline.

    python benchmarks/asynchrony.py                        # about 15 minutes
    python benchmarks/asynchrony.py --latency-sigma 0
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.experiments.measures import crossing, target_of
from dorylax.experiments.seed_statistics import mean_of_ratios
from dorylax.graph.dataset import Dataset
from dorylax.pipeline.engine import Pipeline
from harness.command_line import parsed, parser_of, write_json
from harness.shaped_link import TINY, add_options, dataset, pipeline

SIZES: dict[str, Any] = {
    "size": "small",
    "vertices": 20_000,
    "edges": 400_000,
    "hidden": 16,
    "intervals": 16,
    "workers": 16,
    "latency": 0.03,
    "latency_sigma": 0.6,
}
MODES: dict[str, dict[str, Any]] = {
    "pipe": {"mode": "pipe"},
    "async S=0": {"mode": "async", "staleness": 0},
    "async S=1": {"mode": "async", "staleness": 1},
}


class Curve(NamedTuple):
    """A run: seconds since its second epoch began, and validation accuracies, `[N]` each."""

    seconds: np.ndarray
    accuracies: np.ndarray


def main() -> None:
    parser = parser_of(__doc__)
    add_options(parser)
    parser.set_defaults(**SIZES)
    parser.add_argument("--epochs", type=int, default=100, help="of each run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parsed(parser, **TINY, epochs=4, seeds=1)
    data = dataset(options)
    curves: dict[str, list[Curve]] = {name: [] for name in MODES}
    for seed in range(options.seeds):
        for name, mode in MODES.items():
            curve = train(pipeline(data, options, mode, seed), data, options.epochs)
            curves[name].append(curve)
            print(
                f"{name}, seed {seed}: best validation accuracy {100 * curve.accuracies.max():.2f} %, "
                f"{np.diff(curve.seconds).mean():.2f} s an epoch",
                flush=True,
            )
    target = target_of([float(curve.accuracies.max()) for curve in curves["pipe"]])
    print(f"target {100 * target:.2f} %")
    reached = {name: [to_target(curve, target) for curve in mine] for name, mine in curves.items()}
    for name, mine in reached.items():
        words = []
        for place, what in enumerate(("epochs", "seconds")):
            ratio = mean_of_ratios([([one[place] for one in mine], [one[place] for one in reached["pipe"]])])
            mean = np.mean([one[place] for one in mine])
            words.append(f"{what} {mean:6.1f} ({ratio.estimate:.2f} × [{ratio.low:.2f}, {ratio.high:.2f}])")
        never = sum(one[2] for one in mine)
        print(f"{name:10} {'  '.join(words)}" + (f"  {never} of {len(mine)} never there" if never else ""))
    write_json(options.json, {name: [[*map(float, one)] for one in mine] for name, mine in reached.items()})


def train(trained: Pipeline, data: Dataset, epochs: int) -> Curve:
    """Runs to its end, undisturbed; then evaluates."""
    run = trained.start(trained.parts.params, None, trained.parts.state)
    params, seconds = [run.run_epoch().params], [0.0]
    begin = time.perf_counter()
    try:
        for _ in range(epochs - 1):
            params.append(run.run_epoch().params)
            seconds.append(time.perf_counter() - begin)
    finally:
        run.close()
    accuracy = validation(trained, data)
    return Curve(np.array(seconds), np.array([accuracy(one) for one in params]))


def validation(trained: Pipeline, data: Dataset) -> Callable[[Mapping[str, Any]], float]:
    """Validation accuracy as a function of parameters."""
    parts, features = trained.parts, jnp.asarray(data.features)

    @jax.jit
    def predicted(params: Any) -> Any:
        return parts.structure.apply_evaluate(params, parts.streams, parts.state, data.graph, features).argmax(-1)

    return lambda params: float((np.asarray(predicted(params)) == data.labels)[data.val_mask].mean())


def to_target(curve: Curve, target: float) -> tuple[int, float, bool]:
    """Epochs and seconds to the target, and whether it was never reached."""
    found = crossing(curve.accuracies.tolist(), target)
    epochs = len(curve.accuracies) if found is None else found
    return epochs, float(curve.seconds[epochs - 1]), found is None


if __name__ == "__main__":
    main()
