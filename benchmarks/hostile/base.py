"""What a family of faults is.

A family is a module of this folder with

- a docstring, whose first line says what is done to whom;
- `def lines(folder: Path, *, tiny: bool) -> Iterator[Line]`, which tries its faults and yields a line for each kind, as soon
  as it is known. `folder` is empty and the family's own; with `tiny` the whole family takes some seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, final


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


class Family(Protocol):
    """A module of this folder."""

    def lines(self, folder: Path, *, tiny: bool) -> Iterator[Line]:
        """Tries the faults."""
