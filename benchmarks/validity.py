"""Simulated seconds of an epoch on this machine, compared with measured ones.

    python benchmarks/validity.py        # measures the machine first, for some minutes without other load
    python benchmarks/validity.py --cluster mine.yaml --first 4 --count 4

The machine is described once, as by `dorylax calibrate`. Each configuration is then simulated on that description, and run
on the real clock: a GCN with dropout on a generated graph, by servers and workers that are threads or processes of this
machine. The median of the epochs that come after those in which a run settles is compared. The error is predicted over
measured, less one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dorylax.calibration.description import cluster_of, to_text
from dorylax.calibration.machine import doubts, measure
from dorylax.calibration.steps import Sizes
from dorylax.config import RunConfig
from dorylax.cost import Cluster, find_cluster
from dorylax.graph.datasets import load
from dorylax.simulation.run import Inputs, simulate
from dorylax.trainer.from_config import prepare_data
from harness.command_line import parsed, parser_of, write_json
from harness.one_machine import Here, References, epochs_of, measured_references

Settings = dict[str, Any]

_REFERENCE_EPOCHS = 20

_LINK = {
    "tensor.backend": "local",
    "tensor.placement": "functions",
    "tensor.workers": 4,
    "tensor.slots": 4,
    "tensor.latency": 0.01,
}
_FAST, _SLOW = {**_LINK, "tensor.bandwidth": 100e6}, {**_LINK, "tensor.bandwidth": 25e6}
_WORKERS = {"tensor.backend": "local", "tensor.placement": "functions"}
_TWO_WORKERS = _WORKERS | {"tensor.workers": 2}
_PROCESSES = {"hosts": "processes"}
CONFIGURATIONS: dict[str, Settings] = {
    f"{where}, {servers} servers, {intervals} intervals, {mode}": {
        **{"servers": servers, "intervals": intervals, "mode": mode},
        **settings,
    }
    for where, servers, intervals, mode, settings in (
        ("threads", 1, 4, "no-pipe", {}),
        ("threads", 1, 4, "pipe", {}),
        ("threads", 1, 8, "async", {}),
        ("threads", 2, 2, "pipe", {}),
        ("threads", 4, 2, "async", {}),
        ("workers", 1, 4, "no-pipe", _WORKERS),
        ("workers", 1, 8, "pipe", _WORKERS),
        ("workers", 2, 4, "async", _TWO_WORKERS),
        ("4 workers, 100 MB/s", 1, 8, "pipe", _FAST),
        ("4 workers, 25 MB/s", 1, 8, "async", _SLOW),
        ("4 workers, 100 MB/s", 1, 4, "no-pipe", _FAST),
        ("processes", 2, 2, "no-pipe", _PROCESSES),
        ("processes", 2, 4, "pipe", _PROCESSES),
        ("processes", 4, 2, "async", _PROCESSES),
    )
}
"""By name, settings of `pipeline` and `tensor`."""


def settings_of(data: Path, hidden: int, seed: int, given: Settings) -> Settings:
    """All settings of a configuration."""
    dotted = {key if "." in key else f"pipeline.{key}": value for key, value in given.items()}
    model = {"model.name": "gcn", "model.hidden_features": hidden, "model.dropout": 0.5}
    return {"data.name": str(data), "data.row_normalise": False, **model, "train.seed": seed, **dotted}


def described(arguments: argparse.Namespace, folder: Path) -> Cluster:
    """The machine, as it is measured now or was before."""
    if arguments.cluster is not None:
        return find_cluster(arguments.cluster)
    if arguments.tiny:
        from support import calibrations

        measured = calibrations.measured()
    else:
        measured = measure(lambda *_: None, Sizes())
    for doubt in doubts(measured):
        print(f"warning: {doubt}")
    path = folder / "machine.yaml"
    path.write_text(to_text(cluster_of(measured, "this-machine", 0.0)))
    return find_cluster(path)


def references_of(arguments: argparse.Namespace) -> References:
    """Measurements of reference runs on this machine."""
    if arguments.tiny:
        from support import calibrations

        return References(**calibrations.REFERENCES)
    return measured_references(_REFERENCE_EPOCHS)


def compare(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Each configuration, predicted and run."""
    here = Here(described(arguments, folder), references_of(arguments))
    made = load("communities", size=arguments.size, num_vertices=arguments.vertices, num_edges=arguments.edges)
    path = folder / "graph"
    made.save(path)
    chosen = list(CONFIGURATIONS.items())[arguments.first :][: arguments.count]
    data, inputs = None, Inputs()
    for name, given in chosen:
        settings = settings_of(path, arguments.hidden, arguments.seed, given)
        config = RunConfig.resolve(settings)
        if data is None:
            data = prepare_data(config.data)
            print(f"{data.graph}, {data.num_features} features, hidden width {arguments.hidden}", flush=True)
        found = simulate(here.scenario(name, settings), inputs=inputs)
        ran = [seconds for seconds, _ in epochs_of(config, data, arguments.epochs)]
        measured = statistics.median(ran)
        error = found.epoch / measured - 1
        print(f"{name:<52} {found.epoch:7.3f} s {measured:7.3f} s {100 * error:+6.1f} %", flush=True)
        yield {"name": name, "predicted": found.epoch, "measured": measured, "epochs": ran, "error": error}


def main() -> None:
    """Measures."""
    parser = parser_of(__doc__)
    parser.add_argument("--cluster", help="name or file of a description of this machine, by `dorylax calibrate`")
    parser.add_argument("--size", default="medium", help="of `communities`: its features and classes")
    parser.add_argument("--vertices", type=int, default=40_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=9, help="that count")
    parser.add_argument("--first", type=int, default=0, help="number of the first configuration")
    parser.add_argument("--count", type=int, default=len(CONFIGURATIONS), help="of configurations")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parsed(parser, vertices=400, edges=4000, hidden=8, epochs=1, count=1)
    with tempfile.TemporaryDirectory() as folder:
        found = list(compare(arguments, Path(folder)))
    errors = [abs(one["error"]) for one in found]
    print(
        f"{len(found)} configurations: median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %"
    )
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()
