"""Training on preemptible hosts: a replay of a trace under a recovery policy, on the virtual clock.

`POLICIES` decide, as on real hosts. Each epoch takes the simulated time of a scenario whose servers share their hosts:
with m graph servers on the busiest host, every server has 1/m of its host's speed, network and memory. The busiest host sets
the pace, because all others wait for its rows. Parameter servers are on demand, and never vanish.

A shadow receives all boundary rows of its server too, so the network is simulated with as many bytes more; gradient rows
count as well, which overestimates them. It computes the forward steps while its threads are idle; the seconds that do not
fit extend the epoch.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, final

from dorylax.pipeline.recovery.base import (
    Assignment,
    Decision,
    EpochEnded,
    Event,
    Fleet,
    Joined,
    Lost,
    Noticed,
    Server,
    place_shadows,
)
from dorylax.pipeline.recovery.catalogue import POLICIES
from dorylax.simulation.preemption_traces import PreemptionTrace
from dorylax.simulation.result import Simulated
from dorylax.simulation.run import Inputs, simulate
from dorylax.simulation.scenario import Scenario, ScenarioError

_HOUR = 3600.0
_FLOAT32 = 4
_EDGE_BYTES = 8  # source and position
_MOST = 50
"""A replay ends without success after so many times the undisturbed time, and a day."""

Phase = Literal["train", "wasted", "wait", "recover"]


@final
@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds and prices of recoveries.

    Attributes:
        start: Seconds until a granted node can join (Bamboo's simulator).
        rendezvous: Seconds in which hosts agree on a new generation (Bamboo's simulator).
        reload: Seconds to load a checkpoint (Bamboo, measured).
        checkpoint: Seconds between two checkpoints (Bamboo's time of one).
        notice: Seconds between a notice and the end of a node: 120 on AWS; 0: without notice.
        spot_price: Price of a preemptible host, relative to on demand (p3.2xlarge: $0.91 and $3.06, Bamboo).
    """

    start: float = 45.0
    rendezvous: float = 30.0
    reload: float = 51.0
    checkpoint: float = 89.0
    notice: float = 120.0
    spot_price: float = 0.91 / 3.06


@final
class EpochTimes:
    """Simulated epochs of a scenario on servers alone by load of the busiest host; simulates each load once.

    Raises:
        ScenarioError: The scenario has functions, or a load does not fit the memory of a host.
    """

    def __init__(self, scenario: Scenario, epochs: int | None = None) -> None:
        if scenario.cluster.functions:
            raise ScenarioError("preemptions are of servers: simulate them on cpu or gpu")
        self.scenario, self._epochs, self._inputs = scenario, epochs, Inputs()
        self._found: dict[tuple[int, float, bool], Simulated] = {}

    def simulated(self, load: int, more_bytes: float = 0.0, shadows: bool = False) -> Simulated:
        """Return the simulation in which each host runs `load` graph servers, and messages have a share of bytes more."""
        key = load, more_bytes, shadows
        if key not in self._found:
            cluster, parts = self.scenario.cluster, float(load)
            server = cluster.graph_server
            gpu = server.gpu and dataclasses.replace(
                server.gpu,
                flops=server.gpu.flops / parts,
                memory_bandwidth=server.gpu.memory_bandwidth / parts,
                memory=server.gpu.memory / parts / (1 + shadows),
            )
            shared = dataclasses.replace(
                server,
                flops=server.flops / parts,
                memory_bandwidth=server.memory_bandwidth / parts,
                total_memory_bandwidth=server.total_memory_bandwidth / parts,
                network_bandwidth=server.network_bandwidth / parts / (1 + more_bytes),
                overhead=server.overhead * parts,
                memory=server.memory / parts / (1 + shadows),
                gpu=gpu,
            )
            changed = dataclasses.replace(cluster, graph_server=shared)
            try:
                self._found[key] = simulate(
                    dataclasses.replace(self.scenario, cluster=changed), epochs=self._epochs, inputs=self._inputs
                )
            except ScenarioError as error:
                raise ScenarioError(f"{load} graph servers on a host: {error}") from None
        return self._found[key]

    def epoch(self, load: int, *, shadows: bool = False) -> float:
        """Return the seconds of an epoch, with shadows or without."""
        found = self.simulated(load)
        if not shadows:
            return found.epoch
        network = [task for task in found.tasks if task.resource == "network"]
        together = sum(task.seconds for task in network)
        rows = sum(task.seconds for task in network if task.name == "SC")
        with_rows = self.simulated(load, rows / together if together else 0.0, shadows=True)
        threads = with_rows.servers * self.scenario.cluster.graph_server.tasks
        idle = (1 - with_rows.utilisation.graph_servers) * with_rows.epoch * threads
        forward = self.forward_share(load) * self._busy(with_rows)
        return with_rows.epoch + max(0.0, forward - idle) / threads

    def forward_share(self, load: int) -> float:
        """Return the share of forward tasks in the seconds of graph servers."""
        found = self.simulated(load)
        tasks = [task for task in found.tasks if task.resource == "graph"]
        forward = sum(task.seconds for task in tasks if not task.name.startswith("∇"))
        return forward / sum(task.seconds for task in tasks)

    @property
    def shard_seconds(self) -> float:
        """Seconds to fetch a shard over its host's network: features and edges, from sizes."""
        sizes = self.scenario.graph
        if sizes is None:
            _, shape, _ = self._inputs.of(self.scenario)
            vertices, edges, features = shape.num_vertices, shape.num_edges, shape.num_features
        else:
            vertices, edges, features = sizes.vertices, sizes.edges, sizes.features
        size = vertices * features * _FLOAT32 + edges * _EDGE_BYTES
        return size / self.scenario.pipeline.servers / self.scenario.cluster.graph_server.network_bandwidth

    @staticmethod
    def _busy(found: Simulated) -> float:
        return sum(task.seconds for task in found.tasks if task.resource == "graph") / len(found.epochs)


class Replayed(NamedTuple):
    """The result of a replay.

    Attributes:
        finished: Whether the run reached its number of epochs.
        seconds: Seconds of the run.
        dollars: Dollars of hosts, from when they are granted, and of parameter servers.
        epochs: Useful epochs.
        wasted: Epochs that were computed and lost, with fractions.
        by_phase: Seconds of useful training, of lost training, of waits for hosts, and of recoveries.
        host_seconds: Seconds of rented hosts.
        decisions: Numbers of decisions by action and reason.
    """

    finished: bool
    seconds: float
    dollars: float
    epochs: int
    wasted: float
    by_phase: dict[Phase, float]
    host_seconds: float
    decisions: Counter[tuple[str, str]]

    @property
    def rate(self) -> float:
        """Useful epochs per hour.

        Its mean over traces is liveput: the expected throughput over preemption scenarios (Parcae, NSDI '24).
        """
        return self.epochs / self.seconds * _HOUR


def home_of(servers: int, hosts: int) -> Assignment:
    """Return graph servers dealt to hosts in turn."""
    return tuple(tuple(("graph", server) for server in range(host, servers, hosts)) for host in range(hosts))


def on_demand(times: EpochTimes, hosts: int) -> Replayed:
    """Return the run without preemptions at the full price."""
    scenario = times.scenario
    load = -(-scenario.pipeline.servers // hosts)
    epochs = scenario.config.train.epochs
    seconds = epochs * times.epoch(load)
    dollars = _dollars(scenario, seconds, hosts * seconds, 1.0)
    return Replayed(True, seconds, dollars, epochs, 0.0, {"train": seconds}, hosts * seconds, Counter())


def replay(
    trace: PreemptionTrace, start: float, policy: str, times: EpochTimes, *, hosts: int, costs: Costs
) -> Replayed:
    """Replay a trace from a second on until the scenario's epochs are trained.

    Args:
        trace: The trace, scaled to the number of hosts.
        start: Seconds after its start.
        policy: Name of the recovery policy.
        times: Times of epochs.
        hosts: Number of hosts (≥ 1); graph servers are dealt to them in turn.
        costs: Costs of recoveries.

    Raises:
        ScenarioError: An assignment does not fit the memory of a host.
    """
    return _Replay(trace, start, policy, times, hosts=hosts, costs=costs).run()


@final
class _Replay:
    """The state of a replay; arguments as for `replay`."""

    def __init__(
        self, trace: PreemptionTrace, start: float, policy: str, times: EpochTimes, *, hosts: int, costs: Costs
    ) -> None:
        self.trace, self.policy, self.times, self.costs = trace, POLICIES[policy], times, costs
        self.home = self.assigned = home_of(times.scenario.pipeline.servers, hosts)
        self.target = times.scenario.config.train.epochs
        self.limit = _MOST * self.target * times.epoch(max(map(len, self.home))) + 24 * _HOUR
        changes = trace.from_second(start, self.limit)
        events: list[tuple[float, int, str, str]]
        events = [(one.seconds, order, one.kind, one.node) for order, one in enumerate(changes)]
        if costs.notice:
            events += [
                (max(0.0, seconds - costs.notice), order, "notice", node)
                for seconds, order, kind, node in events
                if kind == "remove"
            ]
        # At one instant, nodes are granted last, so that a lost host is seen.
        rank = {"notice": 0, "remove": 1, "add": 2}
        self.events = sorted(events, key=lambda one: (one[0], rank[one[2]], one[1]))
        self.place = 0
        self.now, self.host_seconds, self.done, self.wasted = 0.0, 0.0, 0, 0.0
        self.by_phase: dict[Phase, float] = defaultdict(float)
        self.decisions = Counter[tuple[str, str]]()
        self.node: dict[int, str] = {}  # of hosts that run or start
        self.ready: dict[int, float] = {}  # of hosts that start
        self.wanted: list[int] = []  # hosts without a node
        self.spare: list[str] = []
        self.noticed: set[str] = set()
        self.loaded = [frozenset[Server]()] * hosts
        self.shadows: dict[Server, int] = {}
        self.phase: Phase = "wait"
        self.ends = math.inf
        self.begun = self.lost = 0.0
        self.unfinished, self.reload = False, False
        self.saved: list[tuple[float, int]] = [(0.0, 0)]
        self.ended: list[tuple[float, float]] = []

    @property
    def alive(self) -> frozenset[int]:
        return frozenset(self.node.keys() - self.ready.keys())

    def run(self) -> Replayed:
        self._begin()
        while self.done < self.target and self.now < self.limit:
            trace = self.events[self.place][0] if self.place < len(self.events) else math.inf
            ready = min(self.ready.values(), default=math.inf)
            then = min(trace, ready, self.ends)
            if math.isinf(then):
                break
            self.host_seconds += len(self.node) * (then - self.now)
            self.by_phase[self.phase] += then - self.now
            self.now = then
            if then == self.ends:
                self._phase_ended()
            elif then == ready:
                self._joined()
            else:
                self._changed()
        finished = self.done >= self.target
        scenario = self.times.scenario
        dollars = _dollars(scenario, self.now, self.host_seconds, self.costs.spot_price)
        return Replayed(
            finished, self.now, dollars, self.done, self.wasted, dict(self.by_phase), self.host_seconds, self.decisions
        )

    def _begin(self) -> None:
        """Take the first nodes, which are ready, and every shard is loaded."""
        while self.place < len(self.events) and self.events[self.place][0] == 0:
            _, _, kind, node = self.events[self.place]
            self.place += 1
            if kind == "add":
                self.spare.append(node)
            elif node in self.spare:
                self.spare.remove(node)
        for host in range(len(self.home)):
            if self.spare:
                self.node[host] = self.spare.pop(0)
                self.loaded[host] = frozenset(self.home[host])
        missing = tuple(host for host in range(len(self.home)) if host not in self.node)
        if missing:
            self._decide(Lost(missing))
        else:
            if self.policy.keeps_shadows:
                self._place_shadows()
            self._train()

    def _fleet(self) -> Fleet:
        leaving = frozenset(host for host in self.alive if self.node[host] in self.noticed)
        return Fleet(
            home=self.home,
            assigned=self.assigned,
            alive=self.alive,
            leaving=leaving,
            starting=frozenset({*self.ready, *self.wanted}),
            shadows=self.shadows,
            training=self.unfinished,
            synchronous=self.times.scenario.pipeline.synchronous,
            checkpoint=self._saved() > 0,
        )

    def _saved(self) -> int:
        return self.saved[bisect.bisect_right(self.saved, (self.now, self.target)) - 1][1]

    def _decide(self, event: Event) -> str:
        """Ask the policy, carry its decision out, and return the action."""
        fleet = self._fleet()
        decision = self.policy.decide(fleet, event)
        self.decisions[decision.action, decision.reason] += 1
        if decision.action == "move" and isinstance(event, EpochEnded):  # between two epochs there is time to save
            self.saved.append((self.now, self.done))
        if decision.action == "take over":
            self._take_over(decision)
        elif decision.action == "move":
            self._interrupt()
            if decision.since == "checkpoint":
                back = self._saved()
                self._waste(self.done - back)
                self.done, self.reload = back, True
                self.saved = [one for one in self.saved if one[1] <= back]
            self.assigned = decision.assigned
        self._request(decision.start, fleet)
        if decision.action == "move":
            self.phase, self.ends = "wait", math.inf
            self._recover()
        return decision.action

    def _waste(self, epochs: int) -> None:
        """Count the last useful epochs as lost."""
        for seconds, _ in self.ended[len(self.ended) - epochs :]:
            self.by_phase["train"] -= seconds
            self.by_phase["wasted"] += seconds
        del self.ended[len(self.ended) - epochs :]
        self.wasted += epochs

    def _interrupt(self) -> None:
        """Give up the unfinished epoch, if it is under way."""
        if self.phase != "train" or not self.unfinished:
            return
        spent = self.now - self.begun
        self.by_phase["train"] -= spent
        self.by_phase["wasted"] += spent
        self.wasted += spent / (self.ends - self.begun)

    def _take_over(self, decision: Decision) -> None:
        """Finish the epoch with fewer hosts; shadows compute the backward steps of lost servers from their start."""
        left = (self.ends - self.now) / (self.ends - self.begun)
        before, self.assigned = self.assigned, decision.assigned
        load, shares = max(map(len, before)), self.times.forward_share(max(map(len, self.home)))
        again = max(0.0, 1 - left - shares) * self.times.epoch(load)
        self.ends = self.now + again + left * self._epoch_seconds()
        self.shadows = {server: keeper for server, keeper in self.shadows.items() if keeper in self.alive}

    def _request(self, hosts: Sequence[int], fleet: Fleet) -> None:
        for host in hosts:
            if host in fleet.leaving:  # it runs no server from now on
                del self.node[host]
                self.loaded[host] = frozenset()
            if host not in self.node and host not in self.wanted:
                self.wanted.append(host)
        while self.wanted and self.spare:
            host = self.wanted.pop(0)
            self.node[host], self.ready[host] = self.spare.pop(0), self.now + self.costs.start

    def _recover(self) -> None:
        """Begin a generation if all of its hosts are there; otherwise go on waiting."""
        needed = {host for host, servers in enumerate(self.assigned) if servers}
        if not needed <= self.alive:
            return
        held = [set(servers) for servers in self.assigned]
        if self.policy.keeps_shadows:
            self._place_shadows()
            for server, keeper in self.shadows.items():
                held[keeper].add(server)
        fetched = max(len(mine - self.loaded[host]) for host, mine in enumerate(held))
        self.loaded = [self.loaded[host] | mine for host, mine in enumerate(held)]
        seconds = self.costs.rendezvous + fetched * self.times.shard_seconds + self.reload * self.costs.reload
        self.phase, self.ends = "recover", self.now + seconds + self.times.simulated(1).prepare

    def _place_shadows(self) -> None:
        zones = [self.trace.zone(self.node.get(host, "")) for host in range(len(self.home))]
        self.shadows = place_shadows(self.assigned, zones if self.trace.zones else ())

    def _epoch_seconds(self) -> float:
        load = max(map(len, self.assigned))
        return self.times.epoch(load, shadows=self.policy.keeps_shadows)

    def _train(self) -> None:
        self.phase, self.begun, self.unfinished, self.reload = "train", self.now, True, False
        self.ends = self.now + self._epoch_seconds()

    def _phase_ended(self) -> None:
        if self.phase == "train":
            self.done += 1
            self.unfinished = False
            self.ended.append((self.now - self.begun, self.now))
            if self.now >= self.saved[-1][0] + self.costs.checkpoint:
                self.saved.append((self.now, self.done))
            if self.done == self.target:
                return
            if self._decide(EpochEnded()) == "move":
                return
        self._train()

    def _joined(self) -> None:
        hosts = tuple(host for host, seconds in self.ready.items() if seconds <= self.now)
        for host in hosts:
            del self.ready[host]
        if self.phase == "wait":
            self._recover()
        else:
            self._decide(Joined(hosts))

    def _changed(self) -> None:
        """Apply the changes of one kind at one instant."""
        now, _, kind, _ = self.events[self.place]
        nodes = list[str]()
        while self.place < len(self.events) and (self.events[self.place][0], self.events[self.place][2]) == (now, kind):
            nodes.append(self.events[self.place][3])
            self.place += 1
        if kind == "add":
            self.spare += nodes
            self._request((), self._fleet())
            return
        self.spare = [node for node in self.spare if node not in nodes]
        hosts = [host for host, node in self.node.items() if node in nodes]
        for host in [host for host in hosts if host in self.ready]:  # never joins
            del self.ready[host], self.node[host]
            self.wanted.append(host)
        hit = tuple(sorted(self.alive & set(hosts)))
        if kind == "notice":
            self.noticed |= set(nodes)
            event: Event = Noticed(hit, self.costs.notice)
        else:
            for host in hit:
                del self.node[host]
                self.loaded[host] = frozenset()
            event = Lost(hit)
        self._request((), self._fleet())
        if hit:
            self._decide(event)


def _dollars(scenario: Scenario, seconds: float, host_seconds: float, spot: float) -> float:
    cluster = scenario.cluster
    parameters = seconds * scenario.pipeline.parameter_servers * cluster.parameter_server.price
    return (host_seconds * cluster.graph_server.price * spot + parameters) / _HOUR


def table_row(runs: Sequence[Replayed]) -> dict[str, Any]:
    """Return the means over replays, with half the width of their 95 % intervals (Student's t) for time and dollars."""
    import numpy as np
    from scipy.special import stdtrit

    def interval(values: Sequence[float]) -> tuple[float, float]:
        if len(values) < 2:
            return float(values[0]), math.nan
        return float(np.mean(values)), float(
            stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / len(values) ** 0.5
        )

    decisions = sum((one.decisions for one in runs), Counter[tuple[str, str]]())
    return {
        "finished": sum(one.finished for one in runs),
        "replays": len(runs),
        "seconds": interval([one.seconds for one in runs]),
        "dollars": interval([one.dollars for one in runs]),
        "liveput": interval([one.rate for one in runs]),
        "wasted": interval([one.wasted for one in runs]),
        "decisions": [{"action": a, "reason": r, "number": n} for (a, r), n in decisions.most_common()],
    }
