"""A family of faults, and the count of its trials.

A family is a module of this folder with a function `lines(folder, *, tiny)`, which tries its faults and yields a `Line` for
each kind, as soon as it is known. `folder` is empty and the family's own; with `tiny` the whole family takes seconds.
"""

from __future__ import annotations

import random
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, final

Outcome = Literal["survived", "lost", "crashed"]


@final
class Line(NamedTuple):
    """One line of the table: a kind of fault, tried some times.

    Attributes:
        fault: Fault and victim.
        tried: Number of trials.
        survived: Trials that continued undisturbed, or refused or ended in one line and resumed to the same bits.
        lost: Something acknowledged was lost, or something wrong was taken for true.
        crashed: It hung, ended in a traceback or an abort, or left processes or files behind.
    """

    fault: str
    tried: int
    survived: int
    lost: int
    crashed: int


@final
class Tally:
    """Outcomes of the trials of one line; prints failures as they come, two of each kind."""

    def __init__(self) -> None:
        self._found: Counter[Outcome] = Counter()
        self._seen: Counter[str] = Counter()

    def add(self, outcome: Outcome, trial: str, why: str = "") -> None:
        """Counts a trial; `why` it failed."""
        self._found[outcome] += 1
        if outcome != "survived":
            kind = textwrap.shorten(why, 60)
            self._seen[kind] += 1
            if self._seen[kind] <= 2:
                print(f"    {trial}: {outcome}: {textwrap.shorten(why, 600)}", flush=True)

    def line(self, fault: str) -> Line:
        """The line of the table."""
        found = self._found
        return Line(fault, found.total(), found["survived"], found["lost"], found["crashed"])


def tried(fault: str, count: int, trial: Callable[[int], tuple[Outcome, str]]) -> Line:
    """A line of trials that are numbered from 0."""
    tally = Tally()
    for number in range(count):
        outcome, why = trial(number)
        tally.add(outcome, f"trial {number}", why)
    return tally.line(fault)


def some(number: int, most: int, rng: random.Random) -> Sequence[int]:
    """Which of `number` trials are tried, in order: all, or `most` of them, drawn evenly."""
    return sorted(rng.sample(range(number), min(number, most)))
