"""Traces of preemptible instances: when nodes are granted, and when they vanish."""

from __future__ import annotations

import csv
import itertools
import random
from pathlib import Path
from typing import Literal, NamedTuple

from dorylax.settings.errors import ConfigError

_HOURS = 3600.0
_KINDS = ("add", "remove")


class Change(NamedTuple):
    """A node that is granted or vanishes, so many seconds after the start of the trace."""

    seconds: float
    kind: Literal["add", "remove"]
    node: str


class PreemptionTrace(NamedTuple):
    """Changes in ascending order of time.

    Attributes:
        name: Name in tables.
        changes: The changes; the first is at 0 s.
        zones: Number of failure domains, to which nodes belong in turn; 0: unknown.
    """

    name: str
    changes: tuple[Change, ...]
    zones: int = 0

    @property
    def most(self) -> int:
        """Largest number of nodes at a time."""
        counts = itertools.accumulate(1 if one.kind == "add" else -1 for one in self.changes)
        return max(counts, default=0)

    def zone(self, node: str) -> int:
        """Failure domain of a node, by the number at the end of its name; without zones each node has its own."""
        number = int("".join(filter(str.isdecimal, node.partition("@")[0])) or 0)
        return number % self.zones if self.zones else number

    def scaled(self, hosts: int) -> PreemptionTrace:
        """Return a trace of at most so many nodes: some are dropped evenly, or all are multiplied.

        Each node takes the lowest free one of `most` slots, and each slot stands for some hosts or none.

        Args:
            hosts: Number of hosts of the run (≥ 1).
        """
        most = self.most
        free, slots, changes = list(range(most)), dict[str, int](), list[Change]()
        for one in self.changes:
            if one.kind == "add":
                free.sort()
                slots[one.node] = free.pop(0)
            slot = slots[one.node]
            if one.kind == "remove":
                free.append(slot)
            copies = (slot + 1) * hosts // most - slot * hosts // most
            changes += [one._replace(node=f"{one.node}@copy{copy}" if copy else one.node) for copy in range(copies)]
        return self._replace(changes=tuple(changes))

    def from_second(self, start: float, until: float) -> list[Change]:
        """Return the changes from a start within the trace on, at 0 s, for `until` seconds.

        The trace is repeated. Where it begins again, only the difference in the number of nodes is a change.
        """
        alive: dict[str, None] = {}
        for one in self.changes:
            if one.seconds <= start:
                alive[one.node] = None
                if one.kind == "remove":
                    del alive[one.node]
        found = [Change(0.0, "add", node) for node in alive]
        names = {node: node for node in alive}
        length = self.changes[-1].seconds
        for lap in itertools.count():
            begin = lap * length - start
            if begin > until or (lap and not length):
                return found
            for one in self.changes:
                if lap == 0 and one.seconds <= start:
                    continue
                if lap and one.seconds == 0:
                    continue  # see below
                name = names.setdefault(one.node, f"{one.node}@{lap}" if lap else one.node)
                if one.kind == "remove":
                    del names[one.node]
                found.append(Change(begin + one.seconds, one.kind, name))
            first = [one.node for one in self.changes if one.seconds == 0]
            kept, seam = list(names.values()), begin + length
            found += [Change(seam, "remove", node) for node in kept[len(first) :]]
            fresh = [f"{node}@{lap + 1}" for node in first[len(kept) :]]
            found += [Change(seam, "add", node) for node in fresh]
            names = dict(zip(first, [*kept, *fresh], strict=False))
        raise AssertionError("laps never end")


def read_trace(path: Path) -> PreemptionTrace:
    """Read lines `milliseconds,add|remove,node`; times count from the first line.

    Raises:
        ConfigError: The file cannot be read or a line is wrong; names the line.
    """
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a trace of preemptions: {error}") from None
    changes: list[Change] = []
    alive: set[str] = set()
    for line, row in enumerate(rows, 1):
        where = f"{path.name}, line {line}"
        if len(row) != 3 or row[1] not in _KINDS or not row[0].isdecimal() or not row[2]:
            raise ConfigError(f"{where}: must be milliseconds,add|remove,node, got {','.join(row)!r}")
        seconds, kind, node = int(row[0]) / 1e3, row[1], row[2]
        if changes and seconds < changes[-1].seconds:
            raise ConfigError(f"{where}: is earlier than the line before: sort the file by time")
        if (kind == "add") == (node in alive):
            state = "there already" if kind == "add" else "not there"
            raise ConfigError(f"{where}: {kind} of {node}, which is {state}")
        (alive.add if kind == "add" else alive.remove)(node)
        changes.append(Change(seconds, "add" if kind == "add" else "remove", node))
    if not changes:
        raise ConfigError(f"{path}: has no lines: expected milliseconds,add|remove,node")
    first = changes[0].seconds
    return PreemptionTrace(path.stem, tuple(one._replace(seconds=one.seconds - first) for one in changes))


def synthetic_trace(
    nodes: int,
    rate: float,
    *,
    burst: int = 1,
    zones: int = 0,
    back: float = 840.0,
    hours: float = 240.0,
    seed: int = 0,
) -> PreemptionTrace:
    """Make a trace of preemptions at random times.

    Args:
        nodes: Number of nodes (≥ 1).
        rate: Nodes that vanish in an hour, as a share of all (≥ 0).
        burst: Nodes that vanish at a time (≥ 1), of one zone.
        zones: Number of zones; 0: nodes vanish independently of zones.
        back: Seconds until another node is granted; the default is the median of the published p3 trace.
        hours: Length.
        seed: Seed.
    """
    draw = random.Random(seed)
    alive = [f"node{number}" for number in range(nodes)]
    changes = [Change(0.0, "add", node) for node in alive]
    granted: list[tuple[float, str]] = []
    now, made = 0.0, nodes
    while rate > 0:
        now += draw.expovariate(rate * nodes / burst / _HOURS)
        if now > hours * _HOURS:
            break
        while granted and granted[0][0] <= now:
            alive.append(granted.pop(0)[1])
        zone = draw.randrange(zones) if zones else 0
        inside = [node for node in alive if not zones or int(node[4:]) % zones == zone]
        for node in draw.sample(inside, min(burst, len(inside))):
            alive.remove(node)
            other = f"node{made}" if not zones else f"node{made * zones + zone}"
            made += 1
            granted.append((now + back, other))
            changes += [Change(now, "remove", node), Change(now + back, "add", other)]
    changes.sort(key=lambda one: one.seconds)
    return PreemptionTrace(f"{rate:.0%}", tuple(changes), zones)
