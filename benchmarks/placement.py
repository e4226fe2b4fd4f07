"""Whether `tensor.placement=auto` finds the better of servers and functions.

    python benchmarks/placement.py                  # 10 minutes on two cores
    python benchmarks/placement.py --shapes communities --modes pipe --epochs 8

**Simulated.** Five shapes from communities to amazon on the virtual clock with contention, in `pipe` and `async`, with all
stages on servers, with the program's suggestion on functions, and with auto. All three are judged by the same preference:
seconds · dollars^weight, at weight 0 (time alone) and 1 (the inverse of value). Epochs are the last third, so that intervals
have spread and cold starts are over. The last line is the largest loss of auto against the better of both.

**Measured.** On the real clock, local workers behind a link with a latency and a bandwidth. Synchronous training: the three
pipelines live at a time and take turns, an epoch each, in an order that rotates, since an epoch after one of functions finds
colder caches; medians over all but the first four turns.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any, NamedTuple

from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes, Scenario
from harness.command_line import parsed, parser_of
from harness.shaped_link import TINY, add_options, dataset, pipeline

SHAPES: dict[str, tuple[GraphSizes, dict[str, Any]]] = {
    "communities": (GraphSizes(20_000, 400_000, 64, 10), {"pipeline.intervals": 4}),
    "predict-propagate": (
        GraphSizes(200_000, 2_000_000, 256, 40),
        {
            "model.name": "appnp",
            "model.num_layers": 3,
            "model.hidden_features": 1024,
            "model.edge_dropout": 0.0,
            "pipeline.intervals": 64,
            "pipeline.cluster": "small",
        },
    ),
    "arxiv": (GraphSizes(169_343, 2_315_598, 128, 40), {"model.hidden_features": 256, "pipeline.intervals": 16}),
    "reddit-small": (
        GraphSizes(232_965, 114_800_000, 602, 41),
        {"model.hidden_features": 128, "pipeline.intervals": 64},
    ),
    "amazon": (
        GraphSizes(9_200_000, 313_900_000, 300, 25),
        {"model.hidden_features": 64, "pipeline.servers": 8, "pipeline.intervals": 90, "pipeline.parameter_servers": 4},
    ),
}
PLACES = ("servers", "functions", "auto")


class Epoch(NamedTuple):
    """A settled epoch.

    Attributes:
        seconds: Its time.
        dollars: Its price.
        calls: Calls of functions.
    """

    seconds: float
    dollars: float
    calls: int

    def objective(self, weight: float) -> float:
        """Seconds · dollars^weight."""
        return self.seconds * self.dollars**weight


def simulated(shape: str, mode: str, place: str, weight: float, epochs: int) -> Epoch:
    """A settled epoch on the virtual clock."""
    graph, settings = SHAPES[shape]
    given = {"pipeline.servers": 2, "model.name": "gcn", **settings, "pipeline.mode": mode, "train.epochs": epochs}
    given |= {"tensor.placement": place, "tensor.price_weight": weight}
    found = simulate(Scenario.of(shape, given, graph=graph).on("functions"), epochs=epochs)
    last = max(1, epochs // 3)
    seconds = statistics.mean(found.epochs[-last:])
    calls = [(one.requests, one.milliseconds) for one in found.calls[-last:]]
    cluster = found.cluster
    rent = (
        found.servers * cluster.graph_server.price + found.parameter_servers * cluster.parameter_server.price
    ) / 3600
    requests, milliseconds = (sum(column) / last for column in zip(*calls, strict=True))
    per_second = cluster.function.memory_mb / 1024 * cluster.function.price_per_gb_second
    dollars = rent * seconds + milliseconds / 1e3 * per_second
    dollars += requests * cluster.function.price_per_million_requests / 1e6
    return Epoch(seconds, dollars, round(requests))


def measured(settings: argparse.Namespace) -> dict[str, float]:
    """Median seconds of an epoch on the real clock, by placement."""
    data, runs, seconds = dataset(settings), {}, {place: list[float]() for place in PLACES}
    try:
        for place in PLACES:
            made = pipeline(data, settings, {"mode": "pipe"}, placement=place, price_weight=0.0)
            runs[place] = made.start(made.parts.params, None, made.parts.state)
        for epoch in range(settings.turns):
            for turn in range(len(PLACES)):
                place = PLACES[(epoch + turn) % len(PLACES)]
                runs[place].barrier(epoch + 1)
                seconds[place].append(runs[place].run_epoch().seconds)
    finally:
        for run in runs.values():
            run.close()
    return {place: statistics.median(found[min(4, len(found) - 1) :]) for place, found in seconds.items()}


def main() -> None:
    """Prints a row per shape, mode and weight, and the measured seconds."""
    parser = parser_of(__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--modes", default="pipe,async")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--turns", type=int, default=12)
    add_options(parser)
    settings = parsed(parser, **TINY, shapes="communities", modes="pipe", epochs=6, turns=3)
    losses = []
    for shape in settings.shapes.split(","):
        for mode in settings.modes.split(","):
            pure = [simulated(shape, mode, place, 0.0, settings.epochs) for place in PLACES[:2]]
            for weight in (0.0, 1.0):
                found = [*pure, simulated(shape, mode, "auto", weight, settings.epochs)]
                losses.append(found[2].objective(weight) / min(one.objective(weight) for one in pure) - 1)
                cells = (
                    f"{place} {one.seconds * 1e3:,.1f} ms, {one.dollars * 1e6:,.1f} µ$, {one.calls} calls"
                    for place, one in zip(PLACES, found, strict=True)
                )
                print(f"{shape} {mode} weight {weight:g}: {'; '.join(cells)}; auto loses {losses[-1]:+.1%}", flush=True)
    print(f"largest loss of auto: {max(losses):+.1%}")
    times = measured(settings)
    shown = ", ".join(f"{place} {seconds:.3f} s" for place, seconds in times.items())
    print(f"measured: {shown}; auto loses {times['auto'] / min(times.values()) - 1:+.1%}")


if __name__ == "__main__":
    main()
