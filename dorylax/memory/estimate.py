"""The estimate of a run's memory, and the sentence that says whether the run fits and which changes would make it fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, final

from dorylax.graph.data_shape import DataShape
from dorylax.machine import Limit

_GIB = 2**30


@final
@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase, or a kind of process, at its peak.

    Attributes:
        name: "load", "order", "hoist", "step" or "evaluation"; with hosts also "cut", "driver" and kinds of processes.
        parts: Bytes by component.
    """

    name: str
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """Sum of all components, in bytes."""
        return sum(self.parts.values())


class Process(NamedTuple):
    """Memory of a process without data: the interpreter with the libraries, and the memory added by compilation."""

    libraries: int
    code: int


class Compiled(NamedTuple):
    """Memory that XLA assigns to the compiled functions of a run, in bytes.

    Attributes:
        kept: Values that are the same in every epoch, the results of `hoist`.
        hoist: Temporaries of the function that computes these values.
        step: Temporaries and results of the training step.
        evaluation: Temporaries and results of an evaluation.
        parameters: Parameters, optimizer's and model's state on the device, and copies of parameters on the host.
        reads_features: Whether a step reads the features, instead of only kept values.
    """

    kept: int
    hoist: int
    step: int
    evaluation: int
    parameters: int
    reads_features: bool = True


class Remedy(NamedTuple):
    """A changed setting, as on the command line (`single.order=given`), and the run's peak bytes with it."""

    setting: str
    peak: int


@final
@dataclasses.dataclass(frozen=True)
class Estimate:
    """Memory of a run in each phase, and the limit.

    Attributes:
        shape: Shape of the data set.
        phases: Phases in order, at least one; with hosts also each kind of process, and all of them together.
        limit: Memory limit of the process; None if unknown.
        process: Memory of the process without data.
        compiled: Memory of the compiled functions; None if they were not compiled.
        seconds: Seconds spent on tracing and compiling them; 0 if they were not compiled.
        elsewhere: Kinds of processes on other machines, each with its own memory; None without any.
        remedies: Changes that reduce the memory of a run that does not fit.
    """

    shape: DataShape
    phases: tuple[Phase, ...]
    limit: Limit | None
    process: Process
    compiled: Compiled | None = None
    seconds: float = 0.0
    elsewhere: Estimate | None = None
    remedies: tuple[Remedy, ...] = ()

    @property
    def peak(self) -> Phase:
        """The phase with the most memory."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def fits(self) -> bool:
        """Whether the peak is within the limit, here and elsewhere; True if no limit is known."""
        here = self.limit is None or self.peak.total <= self.limit.bytes
        return here and (self.elsewhere is None or self.elsewhere.fits)

    def verdict(self) -> str:
        """Say in one sentence whether the run fits, and which changes would make it fit."""
        peak = self.peak
        if (nodes := self.elsewhere) is not None:
            each = f"each {nodes.peak.name} needs {gibibytes(nodes.peak.total)} on its node"
            if nodes.limit is not None:
                each += f", and {nodes.limit.owner} is {gibibytes(nodes.limit.bytes)}"
            here = dataclasses.replace(self, elsewhere=None)
            if here.fits and not nodes.fits:
                return f"does not fit: {each}: give more, or more servers (pipeline.servers)"
            return f"{here.verdict()}; {each}"
        need = f"{gibibytes(peak.total)} at its peak ({peak.name})"
        if self.limit is None:
            return f"needs {need}; the system does not say how much there is"
        there = f"{self.limit.owner} has {gibibytes(self.limit.bytes)}"
        if self.fits:
            return f"fits: needs {need}, {there}"
        saved = [
            f"{remedy.setting} needs {gibibytes(remedy.peak)} (saves {gibibytes(peak.total - remedy.peak)}"
            f"{', fits' if remedy.peak <= self.limit.bytes else ''})"
            for remedy in self.remedies
        ]
        ways = ", ".join([*saved, f"a machine with {machine_gibibytes(peak.total)} GiB would do"])
        return f"does not fit: needs {need}, {there}; {ways}"

    def refusal(self) -> str:
        """Return the error message for a run that does not fit."""
        return f"the run {self.verdict()}. To try all the same: single.memory=ignore"

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON values, in bytes."""
        return {
            "data": dataclasses.asdict(self.shape),
            "phases": list(map(_fields, self.phases)),
            **({} if self.elsewhere is None else {"elsewhere": list(map(_fields, self.elsewhere.phases))}),
            "peak": {"phase": self.peak.name, "bytes": self.peak.total},
            "limit": None if self.limit is None else {"bytes": self.limit.bytes, "source": self.limit.source},
            "fits": self.fits,
            "remedies": [remedy._asdict() for remedy in self.remedies],
            "verdict": self.verdict(),
        }


def _fields(phase: Phase) -> dict[str, Any]:
    return {"name": phase.name, "total": phase.total, "parts": dict(phase.parts)}


def gibibytes(size: int) -> str:
    """Format a size: `5.3 GiB`, or `53 MiB` below 0.1 GiB."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB // 10 else f"{size / 2**20:.0f} MiB"


def machine_gibibytes(need: int) -> int:
    """Return the smallest usual memory of a machine, in GiB, of which `need` bytes leave a tenth to the system."""
    usual: list[int] = sorted(size for power in range(2, 64) for size in (2**power, 3 * 2 ** (power - 1)))  # 4, 6, 8, …
    return next(size for size in usual if size * _GIB * 0.9 >= need)
