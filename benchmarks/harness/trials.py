"""Which of many trials are tried, and what came of them: one place for families that disturb the disk of commands."""

from __future__ import annotations

import random
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, final

from harness.disk_shim import lacking
from harness.small_commands import Command, commands, server
from harness.warm_process import WarmProcess
from hostile.base import Line

Outcome: TypeAlias = Literal["survived", "lost", "crashed"]

_ALIKE = 2
"""How many trials that went wrong in the same way are printed."""


def some(number: int, most: int, rng: random.Random) -> Sequence[int]:
    """Which of `number` trials are tried, in order: all, or `most` of them, drawn evenly."""
    return sorted(rng.sample(range(number), min(number, most)))


@final
class Disturbed(NamedTuple):
    """A command whose disk is disturbed.

    Attributes:
        command: it.
        process: that runs it.
        folder: free; for its files.
    """

    command: Command
    process: WarmProcess
    folder: Path


@contextmanager
def disturbed(folder: Path, only: Sequence[int] | None = None) -> Iterator[Iterator[Disturbed]]:
    """The commands of `small_commands`, or those with these numbers; none where the shim cannot be had, which is printed."""
    if missing := lacking():
        print(f"  left out: it needs {missing}")
        yield iter(())
        return
    folder = folder.resolve()
    with WarmProcess(folder / "process") as process, server() as address:
        chosen = commands(address)
        numbers = range(len(chosen)) if only is None else only
        yield (Disturbed(chosen[number], process, folder / str(number)) for number in numbers)


@final
class Tally:
    """What came of the trials of one line; prints what went wrong as it comes."""

    def __init__(self) -> None:
        self._found: Counter[Outcome] = Counter()
        self._seen: Counter[str] = Counter()

    def add(self, outcome: Outcome, trial: str, why: str) -> None:
        """Counts a trial.

        Args:
            outcome: of it.
            trial: what was done, for people.
            why: what went wrong; empty if it survived.
        """
        self._found[outcome] += 1
        if why:
            kind = textwrap.shorten(why, 60)
            self._seen[kind] += 1
            if self._seen[kind] <= _ALIKE:
                print(f"    {trial}: {textwrap.shorten(why, 600)}", flush=True)

    def line(self, fault: str) -> Line:
        """The line of the table."""
        found = self._found
        return Line(fault, found.total(), found["survived"], found["lost"], found["crashed"])
