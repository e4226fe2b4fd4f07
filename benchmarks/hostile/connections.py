"""Strangers and idle peers at a run's data endpoints over TCP: it trains on to the same bits, and keeps nothing of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hostile.base import Line

_VISITED_RUN = Path(__file__).parents[1] / "harness" / "visited_run.py"

_FAULTS = {
    "idle": (1_500, "connections that never speak, and come back when they are cut"),
    "half-open": (1_500, "handshakes that stop after the greeting"),
    "half-a-frame": (500, "handshakes that stop within a frame of 4 MiB"),
    "byte-at-a-time": (500, "greetings of a byte at a time"),
    "garbage": (300, "connections that greet with garbage, again and again"),
    "churn": (50, "connections at a time that come and go as fast as they can"),
    "slow-readers": (32, "peers with keys that ask and never read"),
    "silent-peers": (200, "peers with keys that never speak"),
    "peers-that-leave": (32, "peers with keys that ask, leave, and come back"),
}
"""How many strangers (`harness.strangers`), and what they do."""

_TINY = ("idle",)
_SECONDS = 120.0
"""Of one kind of strangers, and as long again for the run without them."""

_GROWN_KIB = 512 * 2**10
"""By which the most memory that was used may grow."""


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `hostile.base`."""
    left = list(_TINY if tiny else _FAULTS)
    while left:
        found = _trials(left, folder / f"{len(left)} left")
        outcomes = [_outcome(trial) for trial in found]
        if len(found) < len(left):
            outcomes.append("crashed")  # this one ended the process, or hung; it goes on with the next
        for kind, outcome in zip(left, outcomes, strict=False):
            count, what = _FAULTS[kind]
            yield Line(f"{count:,} {what}", 1, **{"survived": 0, outcome: 1})
        left = left[len(outcomes) :]


def _trials(kinds: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """What came of each kind of strangers, as far as the process that is visited lasted."""
    folder.mkdir()
    log = folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(_VISITED_RUN), str(folder), *(f"{kind}:{_FAULTS[kind][0]}" for kind in kinds)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            printed, _ = process.communicate(timeout=_SECONDS * (len(kinds) + 1))
        except subprocess.TimeoutExpired:
            process.kill()
            printed, _ = process.communicate()
    if process.returncode:
        print(f"    ended with status {process.returncode}: {log.read_text(errors='replace')[-1000:]}")
    return [json.loads(line) for line in printed.splitlines()]


def _outcome(trial: dict[str, Any]) -> str:
    if not trial["same"]:
        return "lost"
    if trial["left"] or trial["grown"] > _GROWN_KIB:
        print(f"    left behind: {trial}")
        return "crashed"
    return "survived"
