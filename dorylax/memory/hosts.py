"""The estimate of a run whose servers are hosts: one formula per kind of process, with its reason.

All sizes are in bytes. V and E are the data set's vertices and directed edges, S the servers. Steps, buffers and intervals
come from the plan, which depends on no graph.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import final

from dorylax.graph.data_shape import DataShape
from dorylax.graph.partition.metis import MOST_BISECTED
from dorylax.graph.partition.partitioners import Method
from dorylax.graph.rows import SPAN
from dorylax.graph.sharded_data import ShardedData, ShardEntry
from dorylax.jax_internals import Var
from dorylax.machine import Limit, cores, memory_limit, resident_bytes
from dorylax.memory.estimate import Estimate, Phase, Process
from dorylax.memory.phases import CODE, LIBRARIES, WORK, communities, phases
from dorylax.ops.primitives.structure import Direction
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.messages import MemberSpec
from dorylax.pipeline.hosts.spec import spread
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.stages import StageSizes, stage_cost
from dorylax.pipeline.transport.delivery import WINDOW_BYTES
from dorylax.program.jaxpr.symbols import SYMBOLS, Space, value_bytes
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.steps import Publication, Step

_OF_VERTICES = ("features", "labels", "vertex inputs", "masks")  # arrays with a row per vertex
# Memory of a host that has traced a small model and holds no data: private pages, and file pages, which the processes of a
# machine share. `_RUNNING` is added on a graph server by compiled stages and running threads.
_OWN, _SHARED, _RUNNING = 140 * 2**20, 150 * 2**20, 30 * 2**20


@final
@dataclasses.dataclass(frozen=True)
class Cut:
    """Sizes of the largest shard of a partition.

    Attributes:
        rows: n, the number of its vertices.
        edges: e, the number of its in-edges.
        ghosts: Numbers of ghosts, over in-edges and over out-edges.
        intervals: k, the number of intervals of a server.
        shorter: Number of padded intervals, whose rows are copied.
        interval_rows: Vertices of the largest interval, to which all intervals are padded.
        interval_edges: In-edges of the largest interval.
    """

    rows: int
    edges: int
    ghosts: tuple[int, int]
    intervals: int
    shorter: int
    interval_rows: int
    interval_edges: int

    @classmethod
    def of(cls, shards: Sequence[ShardEntry]) -> Cut:
        """Return the sizes of existing shards: for each number, the largest over all shards."""
        rows, edges = [entry.bounds for entry in shards], [entry.edge_bounds for entry in shards]
        lengths = [[last - first for first, last in itertools.pairwise(one)] for one in rows]
        longest = max(map(max, lengths))
        return cls(
            max(one[-1] for one in rows),
            max(one[-1] for one in edges),
            (max(entry.ghosts[0] for entry in shards), max(entry.ghosts[1] for entry in shards)),
            len(rows[0]) - 1,
            max(sum(length < longest for length in one) for one in lengths),
            longest,
            max(last - first for one in edges for first, last in itertools.pairwise(one)),
        )

    @classmethod
    def at_random(cls, shape: DataShape, servers: int, intervals: int) -> Cut:
        """Estimate the sizes before the graph is cut, as if it were cut at random, the worst case of partitioners."""
        V, E = shape.num_vertices, shape.num_edges
        rows, edges = -(-V // servers), -(-E // servers)
        # A vertex of another server has no edge to this one with probability (1 − 1/S)^(E/V).
        ghosts = min(edges, round((V - rows) * (1 - (1 - 1 / servers) ** (E / V))))
        return cls(rows, edges, (ghosts, ghosts), intervals, intervals, -(-rows // intervals), -(-edges // intervals))

    def ghosts_of(self, direction: Direction) -> int:
        """Number of ghosts over in-edges or over out-edges."""
        return self.ghosts[0 if direction == "in" else 1]

    @property
    def sources(self) -> int:
        """Estimated distinct sources of an interval's in-edges, as if drawn at random from the server's rows and ghosts."""
        seen = self.rows + self.ghosts[0]
        return min(self.interval_edges, round(seen * -math.expm1(-self.interval_edges / seen)))


def estimate_hosts(
    config: PipelineConfig,
    plans: Sequence[Plan],
    parameters: int,
    shape: DataShape,
    shards: ShardedData | None,
    *,
    loads: bool = True,
    row_normalise: bool = False,
) -> Estimate:
    """Estimate the memory of hosts and driver without compiling: together on this machine, or each by itself on a cluster.

    Args:
        config: Configuration of the pipeline.
        plans: As for `graph_server`.
        parameters: Bytes of the parameters and of the optimizer's state.
        shape: Shape of the data set.
        shards: Existing shards; None: the driver has the data set and writes shards.
        loads: Whether the driver has yet to load it.
        row_normalise: Whether its features are then scaled.
    """
    here = config.hosts != "ray"
    hosts = Counter(map(_composition, spread(config.servers, config.parameter_servers, config.num_hosts)))
    processes = hosts.total() + 1 if here else 1
    cut = Cut.at_random(shape, config.servers, config.intervals) if shards is None else Cut.of(shards.summary.shards)
    resources = Resources.of_host(config, config.ray.cpus or cores())
    servers = {
        "graph": graph_server(shape, cut, plans, config, resources),
        # Newest weights, stashed weights, optimizer state, and accumulated gradients.
        "parameter": {"parameters": (2 + (config.staleness or 0) + 3) * parameters},
    }
    kinds = {kind: _host(kind, servers, _shared_by(_OWN + _SHARED, processes)) for kind in hosts}
    process = Process(resident_bytes(), 0)
    base = {LIBRARIES: process.libraries}
    before: list[Phase] = []
    data: dict[str, int] = {}
    if shards is None:
        if loads:  # otherwise the data set is already in memory, and part of the process
            before.append(phases(shape, process, community=False, row_normalise=row_normalise, compiled=None)[0])
            data = {"data set": sum(shape.copy().values())}
        before.append(Phase("cut", base | data | cutting(shape, cut, config)))
    driver = Phase("driver", {LIBRARIES: _shared_by(process.libraries, processes), **data})
    if not here:
        room = None if config.ray.memory is None else Limit(config.ray.memory, "ray")
        elsewhere = Estimate(shape, tuple(kinds.values()), room, process)
        return Estimate(shape, (*before, driver), memory_limit(), process, elsewhere=elsewhere)
    together = {_many(hosts[kind], phase.name): hosts[kind] * phase.total for kind, phase in kinds.items()}
    running = Phase("all processes", {**together, "driver": driver.total})
    return Estimate(shape, (*before, *kinds.values(), driver, running), memory_limit(), process)


def _shared_by(libraries: int, processes: int) -> int:
    """Share of `libraries` bytes that counts for one of so many processes on a machine."""
    return libraries - _SHARED + _SHARED // processes


def _composition(host: tuple[MemberSpec, ...]) -> tuple[int, int]:
    """Return the numbers of a host's graph servers and parameter servers."""
    graph = sum(member.role == "graph" for member in host)
    return graph, len(host) - graph


def _host(kind: tuple[int, int], servers: Mapping[str, Mapping[str, int]], base: int) -> Phase:
    """Return the memory of a host with so many graph servers and parameter servers."""
    counts = {role: count for role, count in zip(servers, kind, strict=True) if count}
    found = {LIBRARIES: base}
    for role, count in counts.items():
        found |= {name: count * size for name, size in servers[role].items()}
    return Phase(" and ".join(_many(count, f"{role} server") for role, count in counts.items()), found)


def _many(count: int, name: str) -> str:
    return name if count == 1 else f"{count} × {name}"


def graph_server(
    shape: DataShape, cut: Cut, plans: Sequence[Plan], config: PipelineConfig, threads: Resources
) -> dict[str, int]:
    """Peak memory of a graph server by component: before training, or while all its intervals train and it evaluates.

    Args:
        shape: Shape of the data set.
        cut: Sizes of the largest shard.
        plans: The plan of a training epoch, and that of an evaluation, if there are any, which may run at the same time.
        config: Configuration of the pipeline.
        threads: Slots, workers and graph threads of the server.
    """
    n, copies = cut.rows, not config.synchronous
    whole = shape.copy()
    of_vertices = sum(whole.get(name, 0) for name in _OF_VERTICES)
    live = [_live(plan, cut, copies=copies and plan is plans[0]) for plan in plans]
    # Training stages run on the server's slots, unless workers run them; evaluation stages run on its graph threads.
    slots = [threads.slots if threads.workers == 0 else 0, threads.graph_threads]
    once = sum(count * _call(plan.once, cut) for count, plan in zip(slots, plans, strict=False))
    epoch = sum(count * _call(plan.epoch, cut) for count, plan in zip(slots, plans, strict=False))

    def messages(plan: Plan, read: Iterable[Publication]) -> int:
        """Bytes of messages in flight, received and sent, for one value at a time; `Window` bounds them."""
        found = [0]
        for one in read:
            row, count = _row(plan, one.var), cut.ghosts_of(one.direction)
            window = max(WINDOW_BYTES, cut.interval_rows * row)
            # If every server has every row, whole intervals are sent without a copy.
            copies = 1 if count >= shape.num_vertices - n else 2
            found.append(min(count * row, (config.servers - 1) * window) + copies * min(count * row, window))
        return max(found)

    always = {
        CODE: _RUNNING,
        "shard": _shard(shape, cut, plans, copies=copies),
        "rows": round(of_vertices * n / shape.num_vertices) + 12 * n,  # with ids and positions
        "rows of intervals": sum(_padded(plan, cut) for plan in plans),
        "edge inputs": whole.get("edge inputs", 0) * cut.edges // max(1, shape.num_edges),
    }
    # Training and evaluation are prepared in turn; each frees the rows that only its preparation reads.
    before = [
        {
            "kept from epoch to epoch": sum(kept for kept, _ in live[:number]),
            "buffers": _published(plan, cut, _read(plan, once=True)),
            "messages": messages(plan, _read(plan, once=True)),
            WORK: cut.intervals * _live_before(plan, cut) + once,
        }
        for number, plan in enumerate(plans)
    ]
    within = {
        "kept from epoch to epoch": sum(kept for kept, _ in live),
        "buffers": sum(_published(plan, cut, _read(plan, once=False)) + _pushed(plan, cut) for plan in plans),
        "messages": max(messages(plan, _read(plan, once=False)) for plan in plans),
        WORK: cut.intervals * sum(most for _, most in live) + epoch,
    }
    parts = always | max(*before, within, key=lambda held: sum(held.values()))
    return {name: size for name, size in parts.items() if size}


def _shard(shape: DataShape, cut: Cut, plans: Sequence[Plan], *, copies: bool) -> int:
    """Bytes of the shard's arrays and of arrays derived on first use (`Shard.compact`, `transposed`, `merge`)."""
    n, e, (g_in, g_out), k, u = cut.rows, cut.edges, cut.ghosts, cut.intervals, cut.sources
    rows = 8 * (n + 1) + 4 * e
    size = rows if shape.symmetric else 2 * rows
    size += 16 * (g_in + g_out)  # ghosts, and about as many rows that are ghosts of peers
    pushes = any(step.kind == "push" for plan in plans for step in plan.steps)
    if copies or pushes:
        size += rows + 4 * k * u
    if pushes:
        size += k * (8 * u + 8 * cut.interval_edges)
        size += 8 * (n + g_in) + 4 * k * u + 8 * g_in + 4 * k * u
    return size


def _row(plan: Plan, var: Var) -> int:
    """Bytes of a row of a value."""
    return plan.program.analysis.row_bytes[var]


def _rows_of(variables: Iterable[Var], plan: Plan, cut: Cut, spaces: Container[Space] = ("vertex", "edge")) -> int:
    """Bytes of an interval's rows of these values, if they are rows of these spaces."""
    sizes = {SYMBOLS["vertex"]: cut.interval_rows, SYMBOLS["edge"]: cut.interval_edges}
    typed = ((var, plan.program.analysis.types.get(var)) for var in variables)
    return sum(value_bytes(var.aval, sizes) for var, of in typed if isinstance(of, Rows) and of.space in spaces)


def _padded(plan: Plan, cut: Cut) -> int:
    """Bytes of padded intervals' rows, which are copies, of the data that epochs read."""
    read = {var for step in plan.epoch for var in step.reads}
    inputs = [var for var in plan.program.traced.step.jaxpr.invars if var in read]
    return cut.shorter * _rows_of(inputs, plan, cut, ("vertex",))


def _read(plan: Plan, *, once: bool) -> list[Publication]:
    """Publications that only steps before training read, or those that epochs read."""
    of_once = plan.publications_of_once
    return [one for number, one in enumerate(plan.publications) if (number in of_once) == once]


def _published(plan: Plan, cut: Cut, read: Iterable[Publication]) -> int:
    """Bytes of the rows of these publications, including ghosts."""
    return sum((cut.rows + cut.ghosts_of(one.direction)) * _row(plan, one.var) for one in read)


def _pushed(plan: Plan, cut: Cut) -> int:
    """Bytes of sums per source with terms from several intervals."""
    sums = cut.intervals * cut.sources + cut.ghosts[0]
    return sum(sums * _row(plan, step.writes[0]) for step in plan.steps if step.kind == "push")


def _live_before(plan: Plan, cut: Cut) -> int:
    """Peak bytes of an interval between two steps before training, where all intervals wait for each other's rows."""
    now: set[Var] = set()
    most = 0
    for step in plan.once:
        now = (now | set(step.writes)) - set(step.forget)
        most = max(most, _rows_of(now, plan, cut))
    return most


def _live(plan: Plan, cut: Cut, *, copies: bool) -> tuple[int, int]:
    """Bytes that all intervals keep from epoch to epoch, and one interval's peak within an epoch.

    `copies`: Whether an interval copies rows that it reads more than once; a push always copies them.
    """
    kept = {var for step in plan.once for var in step.writes} - {var for step in plan.once for var in step.forget}
    now: set[Var] = set()
    copied: set[Publication] = set()
    most = 0
    for step in plan.epoch:
        now |= set(step.writes)
        numbers = [operand.publication for operand in step.operands if operand.publication is not None]
        read = {plan.publications[number] for number in numbers}
        if step.kind == "push" or (copies and any(one.copied for one in read)):
            copied |= read
        # A push holds the interval's sums per source before they are added to the buffer.
        partial = cut.sources * _row(plan, step.writes[0]) if step.kind == "push" else 0
        own = sum(cut.sources * _row(plan, one.var) for one in copied)
        most = max(most, _rows_of(now, plan, cut) + own + partial)
        now -= set(step.forget)
    return cut.intervals * _rows_of(kept, plan, cut), most


def _call(steps: Sequence[Step], cut: Cut) -> int:
    """Bytes of the largest stage call: operands copied by XLA, results, and as much again for intermediates."""
    sizes = StageSizes(cut.interval_rows, cut.interval_edges)
    costs = [stage_cost(step, sizes.of(step)) for step in steps if step.kind == "stage" and step.space is not None]
    return max((cost.bytes_in + 2 * cost.bytes_out for cost in costs), default=0)


def cutting(shape: DataShape, cut: Cut, config: PipelineConfig) -> dict[str, int]:
    """Peak memory of the driver in addition to its data set, while it cuts and writes shards one after the other."""
    V, E, whole = shape.num_vertices, shape.num_edges, shape.copy()
    directions = 1 if shape.symmetric else 2
    ids = 4 if shape.edge_ids_fit else 0
    moments = [{WORK: communities(shape)}]
    if config.partition is None:
        moments.append({WORK: partitioning(shape, config.partitioner, config.servers)})
    once = {"reversed graph": whole.get("reversed graph", 0), "edge order": ids * E}
    # From `transpose` without ids, or from `edge_order` of a graph that was reordered before.
    moments.append(once | {WORK: max(0 if shape.symmetric else 6 * E, 28 * E if ids and shape.reordered else 0)})
    of_vertices = sum(whole.get(name, 0) for name in _OF_VERTICES)
    of_edges = whole.get("edge inputs", 0) + ids * (2 if shape.own_edge_ids else 1) * E
    shard = directions * (8 * (cut.rows + 1) + 4 * cut.edges) + 16 * sum(cut.ghosts)
    rows = of_vertices * cut.rows // max(1, V) + 12 * cut.rows + of_edges * cut.edges // max(1, E)
    # Owners of ghosts, their order and positions, and the spans of edges that each thread sorts.
    work = directions * config.servers * V + 24 * V + 28 * SPAN * min(os.cpu_count() or 1, 8, -(-cut.edges // SPAN))
    moments.append(once | {"shard": shard, "rows": rows, WORK: work})
    found = max(moments, key=lambda held: sum(held.values()))
    return {name: size for name, size in found.items() if size}


def partitioning(shape: DataShape, method: Method, servers: int) -> int:
    """Bytes that partitioning needs in addition to the data set."""
    V, E = shape.num_vertices, shape.num_edges
    if method == "metis":  # a 64-bit copy of the graph (two for k-way), and coarser graphs with about as many edges
        return (24 if servers <= MOST_BISECTED else 32) * E + 60 * V
    reversed_graph = 0 if shape.symmetric or method != "ldg" else 14 * E
    # LDG reads the neighbours of at most 1/256 of all vertices at a time.
    return reversed_graph + 60 * V + (0 if method != "ldg" else 40 * E * (1 if shape.symmetric else 2) // 256)
