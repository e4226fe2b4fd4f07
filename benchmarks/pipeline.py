"""The pipeline compared with the single-machine trainer, and the engine's overhead per task.

    python benchmarks/pipeline.py                    # 100,000 vertices, 10 million edges
    python benchmarks/pipeline.py --intervals 4 8 16 --rounds 5

Both train the same GCN with dropout on the same data in the same process, epoch by epoch in turn; medians of seconds
per epoch. The pipeline has one server, tensor tasks inline, on the real clock. The second part runs one task at a time
(`no-pipe`) on a small graph, so that the time outside tasks is the engine's: Python, asyncio, threads' hand-overs, messages
to the parameter server.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor

import optax
from flax import nnx

from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.timeline import Span
from dorylax.program.model.flax_nnx import take_apart
from dorylax.trainer import EpochRecord, Trainer, TrainResult
from harness.command_line import parsed, parser_of


def gcn(data: Dataset, hidden: int) -> GCN:
    """The model."""
    return GCN(data.num_features, hidden, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0))


class Turns:
    """A `Trainer` that trains an epoch whenever it is its turn, in a thread of its own.

    Args:
        data: Data set.
        hidden: Width of the hidden layer.
        epochs: Number of turns.
        pipeline: The `Trainer`'s; None for one machine.
    """

    def __init__(self, data: Dataset, hidden: int, epochs: int, pipeline: PipelineConfig | None = None) -> None:
        options = {"epochs": epochs, "eval_every": epochs, "observers": [self], "pipeline": pipeline}
        trainer = Trainer(gcn(data, hidden), data, optimizer=optax.adam(0.01), **options)
        self._epochs, self._seconds = epochs, 0.0
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._pool = ThreadPoolExecutor(1)
        self._result = self._pool.submit(trainer.fit)
        self._result.add_done_callback(lambda _: self._waits.release())
        self._waits.acquire()

    def turn(self) -> float:
        """Trains one epoch; its seconds."""
        self._go.release()
        self._waits.acquire()
        if self._result.done():
            self._result.result()  # raises what has ended it
        return self._seconds

    def close(self) -> None:
        """Trains the rest of the epochs."""
        self._go.release(self._epochs + 1)
        self._pool.shutdown()

    def started(self, total_epochs: int, first_epoch: int) -> None:  # noqa: ARG002
        """See `Observer`."""
        self._wait()

    def epoch(self, record: EpochRecord) -> None:
        """See `Observer`."""
        self._seconds = record.seconds
        self._wait()

    def finished(self, result: TrainResult) -> None:
        """See `Observer`."""

    def _wait(self) -> None:
        self._waits.release()
        self._go.acquire()


def beside_single(data: Dataset, hidden: int, intervals: list[int], rounds: int) -> None:
    """Prints seconds per epoch and ratios."""
    configs = {f"pipe, {count} intervals": PipelineConfig(intervals=count) for count in intervals}
    with contextlib.ExitStack() as stack:
        runs: dict[str, Turns] = {}
        for name, config in {"single": None, **configs}.items():
            runs[name] = Turns(data, hidden, rounds + 1, config)
            stack.callback(runs[name].close)
        for run in runs.values():
            run.turn()  # warms up, and makes the pipeline's buffers
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                seconds[name].append(run.turn())
    base = statistics.median(seconds["single"])
    for name, found in seconds.items():
        middle = statistics.median(found)
        print(f"{name:<20} {middle:7.3f} s per epoch   {middle / base:5.2f} × single   (fastest {min(found):.3f} s)")


def overhead(epochs: int) -> None:
    """Prints the time outside tasks, per task: the median of the epochs."""
    data = load("communities", size="tiny")
    for intervals in (1, 16):
        parts = take_apart(gcn(data, 16))
        pipeline = Pipeline.of(parts, data, optax.adam(0.01), PipelineConfig(mode="no-pipe", intervals=intervals))
        spans: list[Span] = []
        run = pipeline.start(parts.params, None, parts.state, trace=spans.append)
        run.run_epoch()
        inside, around = [], []
        for _ in range(epochs):
            spans.clear()
            seconds = run.run_epoch().seconds
            busy = sum(span.end - span.start for span in spans)
            inside.append(1e6 * busy / len(spans))
            around.append(1e6 * (seconds - busy) / len(spans))
        run.close()
        tenth, middle = statistics.quantiles(around, n=10)[0], statistics.median(around)
        print(
            f"one task at a time, {intervals:2} intervals, {len(spans):3} tasks per epoch: "
            f"{statistics.median(inside):4.0f} µs in a task, {middle:4.0f} µs around it "
            f"(a tenth of the epochs ≤ {tenth:.0f} µs)"
        )


def main() -> None:
    """Measures."""
    parser = parser_of(__doc__)
    parser.add_argument("--vertices", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--intervals", type=int, nargs="+", default=[8])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=200, help="of the second part")
    arguments = parsed(parser, vertices=400, edges=4000, hidden=8, intervals=[2], rounds=1, epochs=2)
    data = load("communities", size="medium", num_vertices=arguments.vertices, num_edges=arguments.edges)
    print(f"{data.graph}, {data.num_features} features, hidden width {arguments.hidden}")
    beside_single(data, arguments.hidden, arguments.intervals, arguments.rounds)
    overhead(arguments.epochs)


if __name__ == "__main__":
    main()
