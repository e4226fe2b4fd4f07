"""What goes wrong in a run, and when: drawn by its seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from support.simulated_hosts.network import Weather

_START, _TRAINING = (0.7, 30.0, 15.0), (0.5, 130.0, 140.0)
"""Within which faults begin, of the start of hosts and of training: seconds, and how many for each that a message takes, and
for each that a task takes; about as long as these take where nothing goes wrong."""

_EARLY, _CLOSE, _OF_DRIVER, _ONE_WAY, _NEW_DRIVER = 0.2, 0.3, 0.2, 0.3, 0.25
"""The share of faults that begin while hosts start, of those that soon follow another one (amid its recovery, say), of stops
that are the driver's, of links that are cut one way only, and of runs whose driver is killed, besides."""

_LONGEST_SECONDS, _SOON_SECONDS = 6.0, 3.0


DRIVER = -1
"""The number of its process."""


class Link(NamedTuple):
    """A link that is cut.

    Attributes:
        ways: (from, to), processes: nothing passes there; both ways, or one.
        begins: seconds after the first of the fault's links.
        lasts: seconds.
    """

    ways: tuple[tuple[int, int], ...]
    begins: float
    lasts: float


class Fault(NamedTuple):
    """One.

    Attributes:
        early: whether it begins while hosts start.
        at: seconds since they began to start, or else since they had.
        kind: "kill", "lose" (killed, and nobody is told), "stop" (as by SIGSTOP), "stall" (its threads get no further, while
            it answers), "cut", or "notice" (that it will be killed).
        process: of what is killed, stopped or stalled.
        lasts: seconds of a stop or a stall, or from a notice to the end.
        links: of what is cut.
    """

    early: bool
    at: float
    kind: str
    process: int = 0
    lasts: float = 0.0
    links: tuple[Link, ...] = ()


class Plan(NamedTuple):
    """All of a run.

    Attributes:
        weather: of the network.
        faults: in no order.
        start_seconds: see `SimulatedLauncher`; where it is little, a generation begins amid the messages of the last one.
        task_seconds, zombies: likewise.
        disk_errors: probability that writing a file of a checkpoint fails.
        evaluates: the share of epochs whose version is evaluated.
        drain: after which epoch all are asked to stand; None: after none.
    """

    weather: Weather
    faults: tuple[Fault, ...]
    start_seconds: float
    task_seconds: float
    zombies: float
    disk_errors: float
    evaluates: float
    drain: int | None


NOTHING = Plan(Weather(0.0, 0.0, 0.002), (), 1.0, 0.004, 0.0, 0.0, 1.0, None)


def draw(rng: np.random.Generator, processes: int, epochs: int) -> Plan:
    """The faults of a run."""
    weather = Weather(
        loss=float(rng.choice([0.0, 0.01, 0.1])),
        doubling=float(rng.choice([0.0, 0.05, 0.3])),
        delay=float(rng.choice([0.001, 0.005, 0.05])),
    )
    task_seconds = float(rng.choice([0.004, 0.04]))
    start, training = (by[0] + by[1] * weather.delay + by[2] * task_seconds for by in (_START, _TRAINING))
    pairs = [(one, other) for one in range(DRIVER, processes) for other in range(one + 1, processes)]
    faults: list[Fault] = []
    for _ in range(rng.integers(0, 5)):
        kind = str(rng.choice(["kill", "lose", "stop", "stall", "cut"]))
        if faults and rng.random() < _CLOSE:
            early, at = faults[-1].early, faults[-1].at + float(rng.uniform(0, _SOON_SECONDS))
        else:
            early = bool(rng.random() < _EARLY)
            at = float(rng.uniform(0, start if early else training))
        if kind == "cut":
            chosen = rng.permutation(len(pairs))[: rng.integers(1, len(pairs) + 1)]
            faults.append(Fault(early, at, kind, links=tuple(_link(rng, *pairs[number]) for number in chosen)))
        else:
            process = DRIVER if kind == "stop" and rng.random() < _OF_DRIVER else int(rng.integers(processes))
            faults.append(Fault(early, at, kind, process, float(rng.uniform(0, _LONGEST_SECONDS))))
    if rng.random() < _NEW_DRIVER:
        at = float(rng.uniform(0, 2 * training))
        faults.append(Fault(early=False, at=at, kind="kill", process=DRIVER))
    return Plan(
        weather,
        tuple(faults),
        start_seconds=float(rng.choice([0.02, 1.0])),
        task_seconds=task_seconds,
        zombies=float(rng.choice([0.0, 0.5])),
        disk_errors=float(rng.choice([0.0, 0.3])),
        evaluates=0.5,
        drain=int(rng.integers(epochs)) if rng.random() < 0.5 else None,
    )


def draw_notices(rng: np.random.Generator, processes: int, plan: Plan) -> tuple[Fault, ...]:
    """Notices in a run besides the faults of a plan."""
    most = _TRAINING[0] + _TRAINING[1] * plan.weather.delay + _TRAINING[2] * plan.task_seconds
    return tuple(
        Fault(
            early=False,
            at=float(rng.uniform(0, most)),
            kind="notice",
            process=int(rng.integers(processes)),
            lasts=float(rng.uniform(0, most)),
        )
        for _ in range(rng.integers(0, 3))
    )


def _link(rng: np.random.Generator, one: int, other: int) -> Link:
    ways = ((one, other), (other, one))
    if rng.random() < _ONE_WAY:
        ways = ways[int(rng.integers(2)) :][:1]
    return Link(ways, float(rng.uniform(0, _SOON_SECONDS)), float(rng.uniform(0, _LONGEST_SECONDS)))
