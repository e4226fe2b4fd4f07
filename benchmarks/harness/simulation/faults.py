"""What goes wrong in a run, and when: drawn by its seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.simulation.network import Weather

_START, _TRAINING = (0.8, 25.0), (0.7, 160.0)
"""Within which faults begin, of the start of hosts and of training: seconds, and of these for each second that a message takes;
about as long as these take where nothing goes wrong."""

_EARLY, _CLOSE = 0.2, 0.3
"""The share of faults that begin while hosts start, and of those that soon follow another one: amid its recovery, say."""

_LONGEST_SECONDS, _SOON_SECONDS = 4.0, 3.0


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
    faults: list[Fault] = []
    for _ in range(rng.integers(0, 4)):
        kind = str(rng.choice(["kill", "lose", "stop", "cut"]))
        if faults and rng.random() < _CLOSE:
            early, at = faults[-1].early, faults[-1].at + float(rng.uniform(0, _SOON_SECONDS))
        else:
            early = bool(rng.random() < _EARLY)
            seconds, per_delay = _START if early else _TRAINING
            at = float(rng.uniform(0, seconds + per_delay * weather.delay))
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
