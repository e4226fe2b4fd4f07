"""The pipeline beside the single-machine trainer, and what its engine adds to each task.

    python benchmarks/pipeline.py                    # 100,000 vertices, 10 million edges
    python benchmarks/pipeline.py --intervals 4 8 16 --rounds 5

Both train the same GCN with dropout on the same data in the same process, epoch by epoch in turn; medians of seconds
per epoch. The pipeline has one server, tensor tasks inline, on the real clock. The second part runs one task at a time
(`no-pipe`) on a small graph, so that whatever is not spent inside a task is the engine's: Python, asyncio, threads'
hand-overs, messages to the parameter server.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import optax
from flax import nnx

from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.graph.partition import locality_order
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.program.model.flax_nnx import take_apart
from dorylax.trainer.step.arrays import EpochInputs, TrainingArrays
from dorylax.trainer.step.functions import step_functions


def parts_of(data: Dataset, hidden: int) -> Any:
    """A 2-layer GCN, taken apart."""
    return take_apart(GCN(data.num_features, hidden, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))


class Single:
    """The single-machine trainer's step, with the optimised program, on rows in community order as the trainer has them."""

    def __init__(self, data: Dataset, hidden: int) -> None:
        data = data.reorder(locality_order(data.graph))
        parts = parts_of(data, hidden)
        functions = step_functions(parts.structure, optax.adam(0.01))
        gradient, _ = functions.optimised(parts, data)
        arrays = TrainingArrays.of(data)
        kept = gradient.keep(arrays)
        self._inputs = EpochInputs(parts.streams, kept.arrays, arrays, np.uint32(0), np.uint32(0))
        start, _ = functions.start.prepare(parts.params, parts.state)
        self._carry = start(parts.params, parts.state)
        self._step, _ = functions.step(gradient).prepare(self._carry, self._inputs)
        self._epoch = 0

    def epoch(self) -> float:
        """Trains one epoch; its seconds."""
        begin = time.perf_counter()
        self._carry, loss = self._step(self._carry, self._inputs._replace(epoch=np.uint32(self._epoch)))
        float(loss)
        self._epoch += 1
        return time.perf_counter() - begin


class Piped:
    """A pipeline of one server."""

    def __init__(self, data: Dataset, hidden: int, **settings: Any) -> None:
        parts = parts_of(data, hidden)
        pipeline = Pipeline.of(parts, data, optax.adam(0.01), PipelineConfig(**settings))
        self.run = pipeline.start(parts.params, None, parts.state)

    def epoch(self) -> float:
        """Trains one epoch; its seconds."""
        return self.run.run_epoch().seconds


def beside_single(data: Dataset, hidden: int, intervals: list[int], rounds: int) -> None:
    """Prints seconds per epoch and ratios."""
    runs: dict[str, Any] = {"single": Single(data, hidden)}
    for count in intervals:
        runs[f"pipe, {count} intervals"] = Piped(data, hidden, intervals=count)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            found = run.epoch()
            if number:  # the first warms up, and makes the pipeline's buffers
                seconds[name].append(found)
    base = statistics.median(seconds["single"])
    for name, found in seconds.items():
        middle = statistics.median(found)
        print(f"{name:<20} {middle:7.3f} s per epoch   {middle / base:5.2f} × single   (fastest {min(found):.3f} s)")
    for run in runs.values():
        if isinstance(run, Piped):
            run.run.close()


def overhead(epochs: int) -> None:
    """Prints what is spent outside tasks, per task: the median of the epochs."""
    data = load("communities", size="tiny")
    for intervals in (1, 16):
        run = Piped(data, 16, mode="no-pipe", intervals=intervals)
        run.epoch()
        inside, around = [], []
        for _ in range(epochs):
            before = len(run.run.spans)
            seconds = run.epoch()
            spans = run.run.spans[before:]
            busy = sum(span.end - span.start for span in spans)
            inside.append(1e6 * busy / len(spans))
            around.append(1e6 * (seconds - busy) / len(spans))
        tenth, middle = statistics.quantiles(around, n=10)[0], statistics.median(around)
        print(
            f"one task at a time, {intervals:2} intervals, {len(spans):3} tasks per epoch: "
            f"{statistics.median(inside):4.0f} µs in a task, {middle:4.0f} µs around it "
            f"(a tenth of the epochs ≤ {tenth:.0f} µs)"
        )
        run.run.close()


def hand_over(rounds: int = 3000) -> float:
    """Median seconds around a task of asyncio's own executor that takes 300 µs: what a machine takes for a hand-over now.

    The event loop halts while the thread works, and the thread after it, as the pipeline's do where one task runs at a time.
    """

    def work() -> float:
        begin = time.perf_counter()
        time.sleep(3e-4)
        return time.perf_counter() - begin

    async def measure() -> list[float]:
        loop, taken = asyncio.get_running_loop(), []
        with ThreadPoolExecutor(1) as pool:
            for _ in range(rounds):
                begin = time.perf_counter()
                inside = await loop.run_in_executor(pool, work)
                taken.append(time.perf_counter() - begin - inside)
        return taken

    return statistics.median(asyncio.run(measure()))


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--intervals", type=int, nargs="+", default=[8])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=200, help="of the second part")
    arguments = parser.parse_args()
    data = load("communities", size="medium", num_vertices=arguments.vertices, num_edges=arguments.edges)
    print(f"{data.graph}, {data.num_features} features, hidden width {arguments.hidden}")
    beside_single(data, arguments.hidden, arguments.intervals, arguments.rounds)
    overhead(arguments.epochs)
    print(f"a task of 300 µs in asyncio's own executor, one at a time: {1e6 * hand_over():4.0f} µs around it")


if __name__ == "__main__":
    main()
