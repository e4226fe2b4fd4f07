"""What a simulation says an epoch takes on this machine, beside what it takes.

    python benchmarks/validity.py        # measures the machine first, in three minutes in which nothing else runs
    python benchmarks/validity.py --cluster mine.yaml --first 4 --count 4

The machine is described once, by `dorylax calibrate`. Each configuration is then simulated on that description, and run on
the real clock: a GCN with dropout on a generated graph, by servers and workers that are threads or processes of this
machine. The median of the epochs that come after those in which a run settles is compared. The error is predicted over
measured, less one.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optax

from dorylax.calibration.description import cluster_of, to_text
from dorylax.calibration.machine import doubts, measure
from dorylax.calibration.sizes import Sizes
from dorylax.config import RunConfig
from dorylax.cost import Cluster, find_cluster
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.timeline import Span
from dorylax.program.model.kinds import take_apart
from dorylax.simulation.here import here
from dorylax.simulation.inputs import Inputs
from dorylax.simulation.run import settling, simulate
from dorylax.trainer.from_config import build_model, prepare_data
from dorylax.trainer.step.objective import Objective
from harness.command_line import parsed, parser_of, write_json

Settings = dict[str, Any]

_LINK = {"tensor.backend": "local", "tensor.workers": 4, "tensor.slots": 4, "tensor.latency": 0.01}
CONFIGURATIONS: dict[str, Settings] = {
    "threads, 1 server, 4 intervals, no-pipe": {"intervals": 4, "mode": "no-pipe"},
    "threads, 1 server, 4 intervals, pipe": {"intervals": 4, "mode": "pipe"},
    "threads, 1 server, 8 intervals, async": {"intervals": 8, "mode": "async"},
    "threads, 2 servers, 2 intervals, pipe": {"servers": 2, "intervals": 2, "mode": "pipe"},
    "threads, 4 servers, 2 intervals, async": {"servers": 4, "intervals": 2, "mode": "async"},
    "workers, 1 server, 4 intervals, no-pipe": {"intervals": 4, "mode": "no-pipe", "tensor.backend": "local"},
    "workers, 1 server, 8 intervals, pipe": {"intervals": 8, "mode": "pipe", "tensor.backend": "local"},
    "workers, 2 servers, 4 intervals, async": {
        "servers": 2,
        "intervals": 4,
        "mode": "async",
        "tensor.backend": "local",
        "tensor.workers": 2,
    },
    "4 workers, 100 MB/s, 1 server, 8 intervals, pipe": {
        "intervals": 8,
        "mode": "pipe",
        **_LINK,
        "tensor.bandwidth": 100e6,
    },
    "4 workers, 25 MB/s, 1 server, 8 intervals, async": {
        "intervals": 8,
        "mode": "async",
        **_LINK,
        "tensor.bandwidth": 25e6,
    },
    "4 workers, 100 MB/s, 1 server, 4 intervals, no-pipe": {
        "intervals": 4,
        "mode": "no-pipe",
        **_LINK,
        "tensor.bandwidth": 100e6,
    },
    "processes, 2 servers, 2 intervals, no-pipe": {
        "servers": 2,
        "intervals": 2,
        "mode": "no-pipe",
        "hosts": "processes",
    },
    "processes, 2 servers, 4 intervals, pipe": {"servers": 2, "intervals": 4, "mode": "pipe", "hosts": "processes"},
    "processes, 4 servers, 2 intervals, async": {"servers": 4, "intervals": 2, "mode": "async", "hosts": "processes"},
}
"""By name, what is set of `pipeline` and `tensor`."""


def settings_of(data: Path, hidden: int, seed: int, given: Settings) -> Settings:
    """All settings of a configuration."""
    dotted = {key if "." in key else f"pipeline.{key}": value for key, value in given.items()}
    model = {"model.name": "gcn", "model.hidden_features": hidden, "model.dropout": 0.5}
    return {"data.name": str(data), "data.row_normalise": False, **model, "train.seed": seed, **dotted}


class Ran:
    """What a run was seen to take.

    Args:
        epochs: seconds of each that counts.
        tasks: of each kind of task, how many there were and their seconds, in an epoch.
    """

    def __init__(self, epochs: list[float], tasks: dict[str, tuple[float, float]]) -> None:
        self.epochs, self.tasks = epochs, tasks
        self.median = statistics.median(epochs)


def run(config: RunConfig, data: Dataset, epochs: int) -> Ran:
    """Trains on the real clock; as many epochs count, and those before in which it settles do not."""
    assert config.pipeline is not None
    of = Pipeline if config.pipeline.hosts == "inline" else HostsPipeline
    pipeline = of.of(
        take_apart(build_model(config, data), data.graph),
        data,
        optax.adam(0.01),
        config.pipeline,
        loss=Objective.of(None, data).rows,
        seed=config.train.seed,
    )
    spans: list[Span] = []
    running = pipeline.start(pipeline.parts.params, None, pipeline.parts.state, trace=spans.append)
    with contextlib.closing(running):
        for _ in range(settling(config.pipeline) + 1):
            running.run_epoch()
        spans.clear()
        seconds = [running.run_epoch().seconds for _ in range(epochs)]
    counts, busy = Counter[str](), defaultdict[str, float](float)
    for span in spans:
        name = f"{span.resource} {span.name.partition(' → ')[0]}"
        counts[name] += 1
        busy[name] += span.end - span.start
    return Ran(seconds, {name: (counts[name] / epochs, busy[name] / epochs) for name in counts})


def described(arguments: argparse.Namespace, folder: Path) -> Cluster:
    """The machine, as it is measured now or was before."""
    if arguments.cluster is not None:
        return find_cluster(arguments.cluster)
    sizes = Sizes(**TINY) if arguments.tiny else Sizes()
    measured = measure(folder, lambda *_: None, sizes)
    for doubt in doubts(measured):
        print(f"warning: {doubt}")
    path = folder / "machine.yaml"
    path.write_text(to_text(cluster_of(measured, "this-machine", 0.0)))
    return find_cluster(path)


TINY = {
    "seconds": 0.01,
    "rows_bytes": (2**16, 2**18),
    "pass_bytes": 2**18,
    "copied_bytes": 2**18,
    "sent_seconds": 0.01,
    "epochs": 2,
    "reference_epochs": 2,
}


def compare(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Each configuration, predicted and run."""
    cluster = described(arguments, folder)
    made = load("communities", size=arguments.size, num_vertices=arguments.vertices, num_edges=arguments.edges)
    path = folder / "graph.npz"
    made.save_npz(path)
    chosen = list(CONFIGURATIONS.items())[arguments.first :][: arguments.count]
    data, inputs = None, Inputs()
    for name, given in chosen:
        settings = settings_of(path, arguments.hidden, arguments.seed, given)
        config = RunConfig.resolve(settings)
        if data is None:
            data = prepare_data(config.data)
            print(f"{data.graph}, {data.num_features} features, hidden width {arguments.hidden}", flush=True)
        found = simulate(here(name, settings, cluster), inputs=inputs)
        ran = run(config, data, arguments.epochs)
        error = found.epoch / ran.median - 1
        print(f"{name:<52} {found.epoch:7.3f} s {ran.median:7.3f} s {100 * error:+6.1f} %", flush=True)
        if arguments.tasks:
            show_tasks(found, ran)
        yield {"name": name, "predicted": found.epoch, "measured": ran.median, "epochs": ran.epochs, "error": error}


def show_tasks(found: Any, ran: Ran) -> None:
    """What each kind of task takes in an epoch, predicted and seen."""
    epochs = len(found.epochs)
    predicted = {f"{one.resource} {one.name}": (one.number / epochs, one.seconds / epochs) for one in found.tasks}
    for key in sorted(predicted.keys() | ran.tasks.keys()):
        (a, b), (c, d) = predicted.get(key, (0, 0)), ran.tasks.get(key, (0, 0))
        print(f"    {key:<40} {a:6.1f} {b:8.4f} s    {c:6.1f} {d:8.4f} s")


def main() -> None:
    """Measures."""
    parser = parser_of(__doc__)
    parser.add_argument("--cluster", type=Path, help="description of this machine, by `dorylax calibrate`")
    parser.add_argument("--size", default="medium", help="of `communities`: its features and classes")
    parser.add_argument("--vertices", type=int, default=40_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=9, help="that count")
    parser.add_argument("--first", type=int, default=0, help="number of the first configuration")
    parser.add_argument("--count", type=int, default=len(CONFIGURATIONS), help="of configurations")
    parser.add_argument("--tasks", action="store_true", help="print what each kind of task takes")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parsed(parser, vertices=400, edges=4000, hidden=8, epochs=1, count=2)
    with tempfile.TemporaryDirectory() as folder:
        found = list(compare(arguments, Path(folder)))
    errors = [abs(one["error"]) for one in found]
    print(
        f"{len(found)} configurations: median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %"
    )
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()
