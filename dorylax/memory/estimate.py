"""The estimate of a run's memory, and the sentence that says whether the run fits and which changes would make it fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from dorylax.graph.data_shape import DataShape
from dorylax.machine import Limit
from dorylax.memory.phases import Compiled, Phase, Process

_GIB = 2**30


class Remedy(NamedTuple):
    """A changed setting, as on the command line (`single.order=given`), and the run's peak bytes with it."""

    setting: str
    peak: int


class Elsewhere(NamedTuple):
    """Peak memory of each kind of process on other machines, and the limit of each process; None if unknown."""

    processes: tuple[Phase, ...]
    room: Limit | None

    @property
    def largest(self) -> Phase:
        """The kind of process with the most memory."""
        return max(self.processes, key=lambda process: process.total)

    @property
    def fits(self) -> bool:
        """Whether each process fits; True if the limit is unknown."""
        return self.room is None or self.largest.total <= self.room.bytes

    def __str__(self) -> str:
        need = f"each {self.largest.name} needs {gibibytes(self.largest.total)} on its node"
        return need if self.room is None else f"{need}, and {self.room.owner} is {gibibytes(self.room.bytes)}"


@final
@dataclasses.dataclass(frozen=True)
class Estimate:
    """Memory of a run in each phase, and the limit.

    Attributes:
        shape: Shape of the data set.
        phases: Phases in order, at least one; with hosts also each kind of process, and all of them together.
        limit: Memory limit of the process; None if the system does not report one.
        process: Memory of the process without data.
        compiled: Memory of the compiled functions; None if they were not compiled.
        seconds: Seconds spent on tracing and compiling them; 0 if they were not compiled.
        elsewhere: The run's processes on other machines; None without any.
    """

    shape: DataShape
    phases: tuple[Phase, ...]
    limit: Limit | None
    process: Process
    compiled: Compiled | None = None
    seconds: float = 0.0
    elsewhere: Elsewhere | None = None

    @property
    def peak(self) -> Phase:
        """The phase with the most memory."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def fits(self) -> bool:
        """Whether the peak is within the limit, here and elsewhere; True if no limit is known."""
        return (self.limit is None or self.peak.total <= self.limit.bytes) and (
            self.elsewhere is None or self.elsewhere.fits
        )

    def verdict(self, remedies: Sequence[Remedy] = ()) -> str:
        """Say in one sentence whether the run fits, and which changes would make it fit."""
        if self.elsewhere is not None:
            here = dataclasses.replace(self, elsewhere=None)
            if here.fits and not self.elsewhere.fits:
                return f"does not fit: {self.elsewhere}: give more, or more servers (pipeline.servers)"
            return f"{here.verdict(remedies)}; {self.elsewhere}"
        peak = self.peak
        need = f"{gibibytes(peak.total)} at its peak ({peak.name})"
        if self.limit is None:
            return f"needs {need}; the system does not say how much there is"
        there = f"{self.limit.owner} has {gibibytes(self.limit.bytes)}"
        if self.fits:
            return f"fits: needs {need}, {there}"
        saved = [
            f"{remedy.setting} needs {gibibytes(remedy.peak)} (saves {gibibytes(peak.total - remedy.peak)}"
            f"{', fits' if remedy.peak <= self.limit.bytes else ''})"
            for remedy in remedies
        ]
        ways = ", ".join([*saved, f"a machine with {machine_gibibytes(peak.total)} GiB would do"])
        return f"does not fit: needs {need}, {there}; {ways}"

    def refusal(self, remedies: Sequence[Remedy]) -> str:
        """Return the error message for a run that does not fit."""
        return f"the run {self.verdict(remedies)}. To try all the same: single.memory=ignore"

    def to_dict(self, remedies: Sequence[Remedy] = ()) -> dict[str, Any]:
        """Return the estimate as JSON values, in bytes."""
        return {
            "data": dataclasses.asdict(self.shape),
            "phases": list(map(_fields, self.phases)),
            **({} if self.elsewhere is None else {"elsewhere": list(map(_fields, self.elsewhere.processes))}),
            "peak": {"phase": self.peak.name, "bytes": self.peak.total},
            "limit": None if self.limit is None else {"bytes": self.limit.bytes, "source": self.limit.source},
            "fits": self.fits,
            "remedies": [remedy._asdict() for remedy in remedies],
            "verdict": self.verdict(remedies),
        }


def _fields(phase: Phase) -> dict[str, Any]:
    return {"name": phase.name, "total": phase.total, "parts": dict(phase.parts)}


def gibibytes(size: int) -> str:
    """Format a size: `5.3 GiB`, or `53 MiB` below 0.1 GiB."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB // 10 else f"{size / 2**20:.0f} MiB"


def machine_gibibytes(need: int) -> int:
    """Return the smallest usual memory of a machine, in GiB, of which `need` bytes leave a tenth to the system."""
    size = 4
    while size * _GIB * 0.9 < need:
        half = size + size // 2  # 6, 12, 24, 48, 96, 192, … are common, too
        if half * _GIB * 0.9 >= need:
            return half
        size *= 2
    return size
