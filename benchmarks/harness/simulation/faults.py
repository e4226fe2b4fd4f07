"""What goes wrong in a run, and when: drawn by its seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.simulation.network import Weather

START_SECONDS, TRAINING_SECONDS = 3.0, 1.5
"""Within which faults begin: of the start of hosts, of training; about as long as these take where nothing goes wrong."""

_EARLY = 0.2
"""The share of faults that begin while hosts start."""

_LONGEST_SECONDS = 4.0


class Fault(NamedTuple):
    """One.

    Attributes:
        early: whether it begins while hosts start.
        at: seconds since they began to start, or else since they had.
        kind: "kill", "lose" (killed, and nobody is told), "stop", or "cut".
        process: of what is killed or stopped.
        lasts: seconds of a stop.
        links: of what is cut: pairs of places, and for how many seconds.
    """

    early: bool
    at: float
    kind: str
    process: int = 0
    lasts: float = 0.0
    links: tuple[tuple[str, str, float], ...] = ()


class Plan(NamedTuple):
    """All of a run.

    Attributes:
        weather: of the network.
        faults: in no order.
        zombies: see `SimulatedLauncher`.
        disk_errors: probability that writing a file of a checkpoint fails.
        drain: after which epoch all are asked to stand; None: after none.
        new_driver: after how many epochs a new driver goes on from the newest checkpoint; None: never.
    """

    weather: Weather
    faults: tuple[Fault, ...]
    zombies: float
    disk_errors: float
    drain: int | None
    new_driver: int | None


NOTHING = Plan(Weather(0.0, 0.0, 0.002), (), 0.0, 0.0, None, None)


def draw(rng: np.random.Generator, processes: int, epochs: int) -> Plan:
    """The faults of a run."""
    weather = Weather(
        loss=float(rng.choice([0.0, 0.01, 0.1])),
        doubling=float(rng.choice([0.0, 0.05, 0.3])),
        delay=float(rng.choice([0.001, 0.005, 0.05])),
    )
    places = ["driver", *map(str, range(processes))]
    links = [(one, other) for number, one in enumerate(places) for other in places[number + 1 :]]
    faults = []
    for _ in range(rng.integers(0, 4)):
        early, kind = bool(rng.random() < _EARLY), str(rng.choice(["kill", "lose", "stop", "cut"]))
        at = float(rng.uniform(0, START_SECONDS if early else TRAINING_SECONDS))
        if kind == "cut":
            chosen = rng.permutation(len(links))[: rng.integers(1, len(links) + 1)]
            found = tuple((*links[link], float(rng.uniform(0, _LONGEST_SECONDS))) for link in chosen)
            faults.append(Fault(early, at, kind, links=found))
        else:
            lasts = float(rng.uniform(0, _LONGEST_SECONDS))
            faults.append(Fault(early, at, kind, int(rng.integers(processes)), lasts))
    return Plan(
        weather,
        tuple(faults),
        zombies=float(rng.choice([0.0, 0.5])),
        disk_errors=float(rng.choice([0.0, 0.3])),
        drain=int(rng.integers(epochs)) if rng.random() < 0.5 else None,
        new_driver=int(rng.integers(1, epochs)) if rng.random() < 0.2 else None,
    )
