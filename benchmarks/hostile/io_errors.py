"""Each write of a command fails in turn (no space, a bad disk, too many files, cut short); run again, the command heals."""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, final

from harness.disk_shim import FAULTS, Fault, Kind, Operation, Watch, counted, lacking, operations
from harness.small_commands import Command, commands, difference, hidden, not_restored, server
from harness.warm_process import Ended, WarmProcess
from hostile.base import Line

Outcome = Literal["survived", "lost", "crashed"]

_LISTED = ("  ", "or set DORYLAX_DATA ")
"""How further lines of a message begin that lists files and where to get them."""


@final
@dataclasses.dataclass(frozen=True)
class Trial:
    """One fault in one command, and what came of it.

    Attributes:
        fault: which.
        number: of the operation.
        outcome: how it was judged.
        why: in what it failed; empty if it survived.
    """

    fault: Fault
    number: int
    outcome: Outcome
    why: str = ""


@final
class Judge:
    """Tries faults in one command.

    Args:
        command: it.
        process: that runs it.
        folder: free; for its files.
    """

    def __init__(self, command: Command, process: WarmProcess, folder: Path) -> None:
        self.command, self._process = command, process
        self._given, self._log = folder / "given", folder / "log"
        self._work, self._works = folder / "work-0", 0
        self._given.mkdir(parents=True)
        command.prepare(process, self._given)
        self._begin = folder / "begin"
        self._begin.mkdir()
        if command.before:
            process.run(command.before, self._begin)
        for _ in range(2):  # the first one compiles
            ended = self._run(command.words, fresh=True)
            if ended.code != 0:
                raise RuntimeError(f"{command.name} does not even run undisturbed: {ended}")
        self._expected = command.result(self._work)
        self.operations: list[Operation] = counted(self._log)

    def _run(self, words: Sequence[str], fault: Fault | None = None, number: int = -1, *, fresh: bool = False) -> Ended:
        if fresh:
            shutil.rmtree(self._work, ignore_errors=True)
            self._works += 1  # never the same: threads of a failed command may still be writing
            self._work = self._work.with_name(f"work-{self._works}")
            shutil.copytree(self._begin, self._work)
        self._log.unlink(missing_ok=True)
        return self._process.run(words, self._work, Watch(self._work, self._log, number, fault))

    def plan(self, seed: int) -> list[tuple[int, Fault]]:
        """Which operation fails how: all of them in turn, or some, spread evenly, if there are too many."""
        rng = random.Random(seed)
        number = len(self.operations)
        places = sorted(rng.sample(range(number), min(number, self.command.tries)))
        suffered: Counter[str] = Counter()
        planned = []
        for place in places:
            possible = [fault for fault in FAULTS if self.operations[place].kind in fault.kinds]
            if possible:
                fault = min(possible, key=lambda one: (suffered[one.name], rng.random()))
                suffered[fault.name] += 1
                planned.append((place, fault))
        return planned

    def trial(self, number: int, fault: Fault) -> Trial:
        """The command with a fault, and once more without."""
        command = self.command
        first = self._run(command.words, fault, number, fresh=True)
        if complaint := self._bad_end(first):
            return Trial(fault, number, "crashed", complaint)
        acknowledged = [
            one.path.split(" ", 1)[1]
            for one in operations(self._log)
            if one.kind is Kind.MARK and one.path.startswith("saved ")
        ]
        if acknowledged and (lost := not_restored(Path(acknowledged[-1]))):
            return Trial(fault, number, "lost", lost)
        if first.code == 0 and (missing := self._differs()):
            return Trial(fault, number, "lost", f"it said that all was well, but {missing}")
        again = self._run([*command.words, *command.resume])
        if again.code == 2 and command.resume:  # there was nothing to go on with
            again = self._run(command.words)
        if again.code != 0:
            return Trial(
                fault, number, "crashed", f"run again without a fault, it ends with {again.code}: {again.errors}"
            )
        if different := self._differs():
            return Trial(fault, number, "lost", f"run again without a fault, {different}")
        # What could neither be written nor removed stays where it is, but for folders that are ours.
        spared = command.cached or (not command.resumes and fault.lasting and Kind.UNLINK in fault.kinds)
        if (left := hidden(self._work)) and not spared:
            return Trial(fault, number, "crashed", f"it has left {', '.join(left)}")
        return Trial(fault, number, "survived")

    def _bad_end(self, ended: Ended) -> str:
        """What is wrong with how a command ended; empty if nothing is."""
        if ended.code not in (0, 1):
            return f"it ended with {ended.code}: {ended.errors}"
        lines = ended.errors.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        others = [line for line in lines if not line.startswith(("error: ", "warning: ", *_LISTED))]
        if ended.code == 0:
            return f"it ended with 0, and said: {ended.errors}" if errors or others else ""
        if not errors and not others:
            return "it ended with 1 and said nothing"
        first, *further = [*errors, *others]
        if further and not (first.startswith("error: seed ") and len(further) == 1):  # what else failed after the seed
            return f"not one line: {ended.errors}"
        if hidden_names := re.findall(r"\S*/\.\S+\.[0-9a-f]{8}\S*|\S*orbax-\S*tmp\S*", ended.errors):
            return f"it names a file that nobody knows, {hidden_names[0]}: {ended.errors}"
        return ""

    def _differs(self) -> str:
        try:
            found = self.command.result(self._work)
        except Exception as error:
            return f"what it made cannot be read: {type(error).__name__}: {error}"
        if found != self._expected:
            return f"what it made differs: {difference(self._expected, found)}"
        return ""


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    if missing := lacking():
        print(f"  left out: it needs {missing}")
        return
    folder = folder.resolve()
    with ExitStack() as stack:
        process = stack.enter_context(WarmProcess(folder / "process"))
        address = stack.enter_context(server())
        chosen = commands(address)
        for place, command in enumerate([chosen[0], chosen[4], chosen[6]] if tiny else chosen):
            judge = Judge(command, process, folder / str(place))
            planned = judge.plan(seed=0)
            found: Counter[str] = Counter()
            for one in planned[:: len(planned) // 4] if tiny else planned:
                trial = judge.trial(*one)
                found[trial.outcome] += 1
                if trial.outcome != "survived":
                    operation = judge.operations[trial.number]
                    why = textwrap.shorten(trial.why, 600)
                    print(f"    {trial.fault.name} at {operation.kind.name} {operation.path}: {why}", flush=True)
            yield Line(
                f"{command.name}: one of {len(judge.operations)} operations fails",
                found.total(),
                found["survived"],
                found["lost"],
                found["crashed"],
            )
