"""Where a graph server runs its tensor stages: on functions or on its own threads.

The decision is `dorylax.cost.placement.decide`. It starts from the time model and is made again for every epoch from the
durations that this server has measured. It changes no result: both places run the same function on the same padded rows.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist, median
from typing import Any, NamedTuple, final

from dorylax.cost import Cluster, Function, TimeModel, Variation
from dorylax.cost.placement import Expected, Room, StageTimes, decide, expected
from dorylax.graph.shard import AnyShard
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.operators import Piece
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.stages import StageSizes, stage_cost
from dorylax.program.tasks.steps import Step

_REMEMBERED = 5
"""Number of epochs in the median of durations, so that a single straggler or cold start has no effect."""

_ENOUGH = 3
"""Epochs that must be measured. Until then the time model's value stands in for the others, so that one slow epoch does not
keep a stage away from a place for good."""

_GAIN = 0.05
"""Share of the objective by which another placement must be better. Below it, measurements differ by chance."""

_STEADY = Variation(sigma=0.0, straggler_probability=0.0, straggler_factor=1.0)


class Rows(NamedTuple):
    """Rows of one graph server.

    Attributes:
        intervals: Its intervals.
        vertices: Its vertices.
        edges: Edges into these vertices.
    """

    intervals: int
    vertices: int
    edges: int


def rows_of(shard: AnyShard) -> Rows:
    """Return the rows of a shard."""
    return Rows(shard.num_intervals, shard.bounds[-1] - shard.bounds[0], shard.edge_bounds[-1] - shard.edge_bounds[0])


@final
class Estimate:
    """Expected durations of a graph server's tasks, by the time model.

    Args:
        plan: The steps.
        rows: Rows of the server.
        sizes: Rows of each call.
        config: How to run.
        cluster: Speeds and prices.
        resources: Threads and slots of the server.
    """

    def __init__(
        self,
        plan: Plan,
        rows: Rows,
        *,
        sizes: StageSizes,
        config: PipelineConfig,
        cluster: Cluster,
        resources: Resources,
    ) -> None:
        steady = replace(
            cluster,
            contention=False,
            graph_server=replace(cluster.graph_server, variation=_STEADY),
            function=replace(cluster.function, variation=_STEADY),
        )
        self.settling = 2 * (config.staleness or 0)  # epochs until intervals have spread after a change
        self.weight, self.synchronous = config.tensor.price_weight, config.synchronous
        self._cluster, self._times, self._rows, self._sizes = cluster, TimeModel(steady, 0), rows, sizes
        shared = cluster.parameter_server.price * config.parameter_servers / config.servers
        rent = (cluster.graph_server.price + shared) / 3600
        self.room = Room(resources.graph_threads, resources.slots, rent)
        self.stages = {
            step.index: self._stage(step) for step in plan.epoch if step.kind == "stage" and step.space is not None
        }
        self.suggested = frozenset(step.index for step in plan.epoch if step.on_worker)
        self.graph_seconds = sum(self._graph(step) for step in plan.epoch if step.kind in ("gather", "push"))

    def dollars(self, seconds: float) -> float:
        """Return the price of a call on a function."""
        function = self._cluster.function
        billed = Function.billed_milliseconds(seconds) / 1e3 * function.memory_mb / 1024 * function.price_per_gb_second
        return billed + function.price_per_million_requests / 1e6

    def remark(self, kind: str) -> str | None:
        """Return a remark if functions would be slower or more expensive than the servers alone, else None.

        Args:
            kind: `tensor.placement`.
        """
        best, servers, functions = self.compare()
        time, price = functions.seconds / servers.seconds, functions.dollars / servers.dollars
        if not functions.on_functions or (time <= 1 and price <= 1):
            return None
        chosen = {"auto": best, "servers": servers, "functions": functions}[kind]
        return (
            f"by the time model, functions take {time:.2g} times the time of the servers alone and {price:.2g} times the "
            f"price: tensor.placement={kind} puts {len(chosen.on_functions)} of {len(self.stages)} stages on functions"
        )

    def compare(self) -> tuple[Expected, Expected, Expected]:
        """Compare three placements: the best, all stages on the server, and the program's suggestion for functions."""
        overlap = 0.0 if self.synchronous else 1.0
        servers, functions = (
            expected(self.stages, chosen, self.room, self.graph_seconds, overlap)
            for chosen in (frozenset[int](), self.suggested)
        )
        best = decide(self.stages, self.room, self.graph_seconds, overlap=overlap, price_weight=self.weight)
        return best, servers, functions

    def _stage(self, step: Step) -> StageTimes:
        count = (self._rows.vertices if step.space == "vertex" else self._rows.edges) / self._rows.intervals
        chunks = max(1, math.ceil(count / self._sizes.of(step)))
        calls, cost = self._rows.intervals * chunks, stage_cost(step, math.ceil(count / chunks))
        moved, cluster = cost.bytes_in + cost.bytes_out, self._cluster
        on_server = self._times.graph_task((), flops=cost.flops, bytes=moved, elementwise=cost.elementwise)
        on_function = self._times.tensor_task((), flops=cost.flops, bytes_in=cost.bytes_in, bytes_out=cost.bytes_out)
        assert isinstance(on_server, float)
        assert isinstance(on_function, float)
        together = min(calls, self.room.slots)
        slowest = math.exp(cluster.function.variation.sigma * NormalDist().inv_cdf(together / (together + 1)))
        network = together * moved / cluster.graph_server.network_bandwidth
        return StageTimes(calls, on_server, max(on_function * slowest, network), self.dollars(on_function))

    def _graph(self, step: Step) -> float:
        rows = self._rows
        piece = Piece(step, 0, -(-rows.vertices // rows.intervals), -(-rows.edges // rows.intervals))
        seconds = self._times.graph_task((), flops=piece.flops, bytes=piece.bytes)
        assert isinstance(seconds, float)
        return rows.intervals * seconds / min(rows.intervals, self.room.threads)


@final
class Placement:
    """Places the stages of one graph server, epoch by epoch.

    Args:
        estimate: Expected durations; None: no choice, the program's suggestion holds.
        fixed: Stages on functions whatever is measured; None: by time and price.
        probes: Whether the first interval tries the other place of each stage until both are measured `_ENOUGH` times. On
            the real clock the time model may describe other machines.
    """

    def __init__(self, estimate: Estimate | None, *, fixed: frozenset[int] | None = None, probes: bool = False) -> None:
        self._estimate, self._fixed, self._probes = estimate, fixed, probes
        self._changes: list[tuple[int, frozenset[int]]] = []
        self._epoch = -2
        self._seconds: dict[tuple[int, bool], list[float]] = defaultdict(list)  # of calls since the last decision
        self._medians: dict[tuple[int, bool], deque[float]] = {}  # by stage and place, of epochs
        self._graph = 0.0
        self._graph_epochs: deque[float] = deque(maxlen=_REMEMBERED)
        self._since, self._synchronous = 0.0, True  # of the last decision
        self._overlaps = {kind: deque[float](maxlen=_REMEMBERED) for kind in (False, True)}  # by `synchronous`

    @classmethod
    def of(
        cls,
        plan: Plan,
        rows: Rows,
        *,
        sizes: StageSizes,
        config: PipelineConfig,
        cluster: Cluster | None,
        resources: Resources,
    ) -> Placement:
        """Return the configured placement; arguments as for `Estimate`."""
        kind = config.tensor.placement
        if kind == "servers":
            return cls(None, fixed=frozenset())
        if kind == "functions" or cluster is None or not cluster.ships:
            return cls(None, fixed=frozenset(step.index for step in plan.steps if step.on_worker))
        return cls(
            Estimate(plan, rows, sizes=sizes, config=config, cluster=cluster, resources=resources),
            probes=config.clock == "real",
        )

    def on_functions(self, step: Step, epoch: int, interval: int, *, now: float, synchronous: bool) -> bool:
        """Return whether a stage of an interval runs on functions. The first call in an epoch decides for the whole epoch.

        Args:
            step: The stage.
            epoch: The epoch of the interval.
            interval: Number of the interval on this server.
            now: The time in seconds.
            synchronous: Whether the interval waits for all rows of this epoch.
        """
        if self._fixed is not None:
            return step.index in self._fixed
        if epoch > self._epoch:
            self._decide(epoch, now, synchronous=synchronous)
        chosen = next(chosen for since, chosen in reversed(self._changes) if since <= epoch)
        there = step.index in chosen
        if (
            self._probes
            and interval == 0
            and epoch >= 0
            and len(self._medians.get((step.index, not there), ())) < _ENOUGH
        ):
            return not there
        return there

    def measured(self, step: Step, seconds: float, *, on_functions: bool) -> None:
        """Record a call of a stage, or (`on_functions` False) any other task of the server's threads."""
        if self._fixed is not None:
            return
        if step.kind == "stage":
            self._seconds[step.index, on_functions].append(seconds)
        else:
            self._graph += seconds

    def times(self) -> tuple[dict[int, StageTimes], float]:
        """Return the durations of stages, measured or else expected, and the time of graph tasks."""
        assert self._estimate is not None
        stages = dict(self._estimate.stages)
        for (index, there), seconds in self._medians.items():
            if index not in stages:  # computed once
                continue
            modelled = stages[index].function_seconds if there else stages[index].server_seconds
            found = median([*seconds, *[modelled] * (_ENOUGH - len(seconds))])
            if there:
                stages[index] = stages[index]._replace(
                    function_seconds=found, function_dollars=self._estimate.dollars(found)
                )
            else:
                stages[index] = stages[index]._replace(server_seconds=found)
        graph = median(self._graph_epochs) if self._graph_epochs else self._estimate.graph_seconds
        return stages, graph

    def _decide(self, epoch: int, now: float, *, synchronous: bool) -> None:
        assert self._estimate is not None
        room, weight = self._estimate.room, self._estimate.weight
        self._fold(epoch)
        stages, graph = self.times()
        if self._changes and self._epoch > self._changes[-1][0] + self._estimate.settling:
            last = expected(stages, self._changes[-1][1], room, graph, 0.0)
            if last.waiting and now > self._since:  # otherwise an earlier process measured, with another clock
                self._overlaps[self._synchronous].append(last.overlap(now - self._since))
        seen = self._overlaps[synchronous]
        overlap = median(seen) if len(seen) >= _ENOUGH else float(not synchronous)
        self._epoch, self._since, self._synchronous = epoch, now, synchronous
        found = decide(stages, room, graph, overlap=overlap, price_weight=weight)
        if self._changes:
            same = expected(stages, self._changes[-1][1], room, graph, overlap)
            if found.objective(weight) > (1 - _GAIN) * same.objective(weight):
                return
        self._changes = [*self._changes[-64:], (epoch, found.on_functions)]

    def _fold(self, epoch: int) -> None:
        """Record the durations since the last decision, except a stage's first epoch in a place, which has cold starts."""
        if epoch > 0:
            for key, seconds in sorted(self._seconds.items()):
                found = self._medians.get(key)
                if found is None:
                    self._medians[key] = deque(maxlen=_REMEMBERED)
                else:
                    # The epoch waits for the slowest call of functions; threads take one call after the other.
                    found.append(max(seconds) if key[1] else sum(seconds) / len(seconds))
            assert self._estimate is not None
            self._graph_epochs.append(self._graph / self._estimate.room.threads)
        self._seconds.clear()
        self._graph = 0.0

    def state(self) -> dict[str, Any] | None:
        """Return the decisions and durations, for a checkpoint; JSON values. None for a fixed placement."""
        if self._fixed is not None:
            return None
        return {
            "epoch": self._epoch,
            "chosen": [self._changes[-1][0], sorted(self._changes[-1][1])] if self._changes else None,
            "seconds": [[*key, seconds] for key, seconds in sorted(self._seconds.items())],
            "medians": [[*key, list(seconds)] for key, seconds in sorted(self._medians.items())],
            "graph": [self._graph, list(self._graph_epochs)],
            "since": [self._since, self._synchronous],
            "overlaps": [list(self._overlaps[kind]) for kind in (False, True)],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`."""
        self._epoch = int(state["epoch"])
        chosen = state["chosen"]
        self._changes = [] if chosen is None else [(int(chosen[0]), frozenset(chosen[1]))]
        self._seconds = defaultdict(list, {(index, there): seconds for index, there, seconds in state["seconds"]})
        self._medians = {(index, there): deque(seconds, _REMEMBERED) for index, there, seconds in state["medians"]}
        self._graph, epochs = state["graph"]
        self._graph_epochs = deque(epochs, _REMEMBERED)
        self._since, self._synchronous = state["since"]
        self._overlaps = {kind: deque(state["overlaps"][kind], _REMEMBERED) for kind in (False, True)}
