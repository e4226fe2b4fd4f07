"""How much of the network's time the pipeline hides: the same training in three modes, with workers behind a slow link.

    python benchmarks/latency_hiding.py           # 6 minutes on two cores
    python benchmarks/latency_hiding.py --vertices 11648 --edges 5740000 --intervals 12 --epochs 2

The same GCN with dropout on the same graph, `tensor.backend=local`: every request of a worker waits 20 ms, and its bytes
pass at 200 Mbit/s. The modes differ in `pipeline.mode` alone: `no-pipe` (one task at a time), `pipe` (tasks overlap, every
scatter is a barrier), `async` with S = 0 that waits for no fresh rows (no barriers within an epoch), and runs the same
tasks. Three pipelines live at a time and take turns, an epoch each; when one's turn ends all its intervals stand between two
epochs, as S = 0 has it anyway. The
first turns start workers and compile, and do not count. Medians are over all others.

**Lower bound** of an epoch: how long its busiest resource works, the largest of

- graph: seconds of graph tasks / graph threads;
- tensor: seconds of calls / workers. A call has its worker to itself until it is answered, so waiting for the link counts;
- parameters: seconds that a parameter server computes,

by the spans of the epoch itself. No other order of its tasks on these resources would have ended earlier. Where tasks
overlap they take longer than alone, because they share cores; so the bound is also given for tasks as long as they take in
`no-pipe`, which is stricter.

**Sizes.** Latency can be hidden where there is something else to do meanwhile. The graph is a tenth of `reddit-small`: its
mean degree (493), features (602) and classes (41), and the width that the README has for it, 128. Such a graph has heavy
gathers, and the rows of an interval travel for about as long as its requests wait. Four calls of each stage for each of six
workers (24 intervals) keep short what a barrier costs: workers begin one after the other as gathers end, and wait for the
last. Six workers are more than cores, since they mostly wait; one graph thread leaves a core for what they compute and for
the data plane. Graph tasks then take a little less than half as long as workers do. Were both equally busy, barriers would
cost `pipe` a third of the epoch whatever the engine did: some stages follow gathers that take longer than they, some none.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dorylax.graph.dataset import Dataset
from dorylax.pipeline.timeline import Span
from harness.command_line import parsed, parser_of
from harness.shaped_link import TINY, add_options, dataset, pipeline

MODES: dict[str, dict[str, Any]] = {
    "no-pipe": {"mode": "no-pipe"},
    "pipe": {"mode": "pipe"},
    "async S=0": {"mode": "async", "staleness": 0, "freshness": 0, "stale_price": 0},
}


class Epoch(NamedTuple):
    """What one epoch took.

    Attributes:
        seconds: until the slowest interval had finished.
        spans: its tasks.
        busy: seconds that each resource worked, by name, divided by how many there are of it.
        shipped: bytes of tensors between servers and workers, both ways.
    """

    seconds: float
    spans: Sequence[Span]
    busy: Mapping[str, float]
    shipped: int

    @property
    def bound(self) -> float:
        """Seconds that the busiest resource worked."""
        return max(self.busy.values())


class Run:
    """A pipeline in one mode, and the epochs that count."""

    def __init__(self, data: Dataset, settings: argparse.Namespace, mode: Mapping[str, Any]) -> None:
        self.pipeline = pipeline(data, settings, mode)
        parts = self.pipeline.parts
        self._spans: list[Span] = []
        self.run = self.pipeline.start(parts.params, None, parts.state, trace=self._spans.append)
        self._units = {"graph": settings.graph_threads, "tensor": settings.workers}
        self._data, self._intervals = data, settings.intervals
        self.cold: list[float] = []
        self.epochs: list[Epoch] = []

    def turn(self, *, counts: bool) -> None:
        """Trains an epoch; none goes on while another pipeline has its turn."""
        self.run.barrier(len(self.cold) + len(self.epochs) + 1)
        shipped = self._shipped()
        self._spans.clear()
        seconds = self.run.run_epoch().seconds
        spans = list(self._spans)
        busy: dict[str, float] = defaultdict(float)
        for span in spans:
            resource = span.resource if span.resource in self._units else f"{span.resource} {span.server}"
            busy[resource] += (span.end - span.start) / self._units.get(resource, 1)
        if counts:
            self.epochs.append(Epoch(seconds, spans, busy, self._shipped() - shipped))
        else:
            self.cold.append(seconds)

    def _shipped(self) -> int:
        counters = self._backend._data.counters  # the public interface does not count what travels
        return int(counters.bytes_sent + counters.bytes_received)

    def expected(self) -> int:
        """Bytes that the program ships per epoch, by its cost: weights to every worker that was needed."""
        graph, workers = self._data.graph, len(self._backend._invoker.pids)
        program = self.pipeline.prepared.plan.program
        found = program.cost(graph.num_vertices, graph.num_edges, intervals=self._intervals, workers=workers)
        return found.epoch.shipped_bytes

    @property
    def _backend(self) -> Any:
        return self.run._member.hosts[0].server.controller._backend

    def middle(self) -> Epoch:
        """The epoch of median length (the shorter of two)."""
        return sorted(self.epochs, key=lambda epoch: epoch.seconds)[(len(self.epochs) - 1) // 2]

    def seconds(self) -> float:
        """Median seconds per epoch."""
        return statistics.median(epoch.seconds for epoch in self.epochs)

    def busy(self) -> dict[str, float]:
        """Median seconds per epoch that each resource worked."""
        return {
            name: statistics.median(epoch.busy.get(name, 0.0) for epoch in self.epochs)
            for name in sorted({name for epoch in self.epochs for name in epoch.busy})
        }


def report(runs: Mapping[str, Run]) -> None:
    """Prints seconds, bounds, ratios and bytes."""
    for name, run in runs.items():
        busy = ", ".join(f"{resource} {seconds:.2f}" for resource, seconds in run.busy().items())
        fastest, slowest = (pick(epoch.seconds for epoch in run.epochs) for pick in (min, max))
        print(
            f"{name:<10} {run.seconds():6.2f} s per epoch ({fastest:.2f} to {slowest:.2f}), busy: {busy}; "
            f"before: {', '.join(f'{seconds:.1f}' for seconds in run.cold)} s"
        )
    serial, pipe, free = (run.seconds() for run in runs.values())
    alone = max(runs["no-pipe"].busy().values())
    to_bound = statistics.median(epoch.seconds / epoch.bound for epoch in runs["pipe"].epochs)
    print(f"no-pipe / pipe {serial / pipe:5.2f}   (aim ≥ 1.9)")
    print(f"async / pipe   {free / pipe:5.2f}   (aim ≤ 1)")
    print(f"pipe / bound   {to_bound:5.2f}   (aim ≤ 1.25), with tasks as long as in no-pipe {pipe / alone:.2f}")
    for name, run in runs.items():
        expected = run.expected()
        least, most = (pick(epoch.shipped for epoch in run.epochs) / expected - 1 for pick in (min, max))
        print(
            f"{name:<10} {run.middle().shipped / 1e6:.3f} MB shipped per epoch, Program.cost() {expected / 1e6:.3f} MB; "
            f"epochs differ by {100 * least:+.2f} to {100 * most:+.2f} % (aim: within 2 %)"
        )


def main() -> None:
    """Measures."""
    parser = parser_of(__doc__)
    add_options(parser)
    parser.add_argument("--warm-up", type=int, default=2, help="epochs of each mode that do not count")
    parser.add_argument("--epochs", type=int, default=5, help="of each mode that count")
    arguments = parsed(parser, **TINY, warm_up=1, epochs=1)
    data = dataset(arguments)
    print(
        f"{data.graph}, {data.num_features} features, hidden width {arguments.hidden}, {arguments.intervals} intervals, "
        f"{arguments.graph_threads} graph threads, {arguments.workers} workers"
    )
    runs: dict[str, Run] = {}
    try:
        for name, mode in MODES.items():
            runs[name] = Run(data, arguments, mode)
        for number in range(arguments.warm_up + arguments.epochs):
            for run in runs.values():
                run.turn(counts=number >= arguments.warm_up)
        report(runs)
    finally:
        for run in runs.values():
            run.run.close()


if __name__ == "__main__":
    main()
