"""What a family of faults is.

A family is a module of this folder with

- a docstring, whose first line says what is done to whom;
- `def lines(folder: Path, *, tiny: bool) -> Iterator[Line]`, which tries its faults and yields a line for each kind, as soon
  as it is known. `folder` is empty and the family's own; with `tiny` the whole family takes some seconds.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, final

from harness.warm_process import Ended


@final
@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the table: a kind of fault, tried some times.

    Attributes:
        fault: what was done, to whom.
        tried: how often.
        survived: how often the program went on as if nothing had been, or refused or ended in one line, and resumed to the
            same bits.
        lost: how often something acknowledged was lost, or something wrong was taken for true.
        crashed: how often it hung, ended in a traceback or an abort, or left processes or files behind.
    """

    fault: str
    tried: int
    survived: int
    lost: int = 0
    crashed: int = 0

    def __post_init__(self) -> None:
        if self.survived + self.lost + self.crashed != self.tried:
            raise ValueError(
                f"{self.fault}: {self.survived} + {self.lost} + {self.crashed} outcomes of {self.tried} tries"
            )


@final
class Tally:
    """What became of the trials of one line; those that did not survive are told on the standard error."""

    def __init__(self) -> None:
        self.survived = self.lost = self.crashed = 0

    def add(self, *, survived: bool, what: str) -> None:
        """One that ended as it should: `survived` or lost; `what` was tried, and how it ended."""
        self.survived += survived
        self.lost += not survived
        if not survived:
            print(f"    lost: {what}", file=sys.stderr)

    def crash(self, what: str) -> None:
        """One that did not."""
        self.crashed += 1
        print(f"    crashed: {what}", file=sys.stderr)

    def judge(self, ended: Ended, what: str, *, same: bool = True) -> None:
        """A command; `same`: whether it left what it should."""
        told = f"{what}: {ended.code}, {ended.errors[-600:]!r}"
        if in_one_line(ended):
            self.add(survived=same, what=told)
        else:
            self.crash(told)

    def line(self, fault: str) -> Line:
        """The line of the table."""
        return Line(fault, self.survived + self.lost + self.crashed, self.survived, self.lost, self.crashed)


def in_one_line(ended: Ended) -> bool:
    """Whether a command did what it should, or refused or ended with one line, besides warnings."""
    lines = [line for line in ended.errors.splitlines() if not line.startswith("warning: ")]
    return ended.code == 0 or (ended.code in (1, 2) and len(lines) == 1 and lines[0].startswith("error: "))


class Family(Protocol):
    """A module of this folder."""

    def lines(self, folder: Path, *, tiny: bool) -> Iterator[Line]:
        """Tries the faults."""
