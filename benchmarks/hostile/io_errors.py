"""Each write of a command fails in turn (no space, a bad disk, too many files, cut short); run again, the command heals."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

from dorylax.durable import leftover_of
from harness.disk_shim import FAULTS, Fault, Kind, Operation, Watch, counted, operations
from harness.said import complaint
from harness.small_commands import difference, hidden, not_restored
from harness.trials import Disturbed, Outcome, Tally, disturbed, some
from harness.warm_process import Ended
from hostile.base import Line

_TINY = (0, 4, 6)  # train, predict, partition


@final
class Judge:
    """Tries faults in one command."""

    def __init__(self, disturbed: Disturbed) -> None:
        command, process, folder = disturbed
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

    def plan(self, most: int, seed: int) -> list[tuple[int, Fault]]:
        """Which operation fails how; `most` of them, if there are more."""
        rng = random.Random(seed)
        places = some(len(self.operations), most, rng)
        suffered: Counter[str] = Counter()
        planned = []
        for place in places:
            possible = [fault for fault in FAULTS if self.operations[place].kind in fault.kinds]
            if possible:
                fault = min(possible, key=lambda one: (suffered[one.name], rng.random()))
                suffered[fault.name] += 1
                planned.append((place, fault))
        return planned

    def trial(self, number: int, fault: Fault) -> tuple[Outcome, str]:
        """The command with a fault, and once more without: what came of it, and what went wrong."""
        command = self.command
        first = self._run(command.words, fault, number, fresh=True)
        done = list(operations(self._log))
        known = self._known(done)
        if wrong := complaint(first, self._work, known):
            return "crashed", wrong
        marks = [one.path for one in done if one.kind is Kind.MARK]
        acknowledged = [mark.removeprefix("saved ") for mark in marks if mark.startswith("saved ")]
        if acknowledged and (lost := not_restored(Path(acknowledged[-1]))):
            return "lost", lost
        if first.code == 0 and (missing := self._differs()):
            return "lost", f"it said that all was well, but {missing}"
        again = self._run([*command.words, *command.resume])
        if again.code == 2 and command.resume:  # there was nothing to go on with
            again = self._run(command.words)
        if again.code != 0:
            return "crashed", f"run again without a fault, it ends with {again.code}: {again.errors}"
        if wrong := complaint(again, self._work, known):
            return "crashed", f"run again without a fault, {wrong}"
        if different := self._differs():
            return "lost", f"run again without a fault, {different}"
        if left := self._left(fault):
            return "crashed", f"it has left {', '.join(left)}"
        return "survived", ""

    def _left(self, fault: Fault) -> list[str]:
        """What is left half-written and should not be: what could be removed, and what is in a folder that is ours."""
        if self.command.cached:
            return []
        left = hidden(self._work)
        if self.command.resumes or not fault.lasting:
            return left
        if Kind.UNLINK in fault.kinds:
            return []
        if Kind.OPEN in fault.kinds:  # a folder is opened to be removed
            return [one for one in left if not (self._work / one).is_dir()]
        return left

    def _known(self, done: Sequence[Operation]) -> set[str]:
        """Names of what the command was given, or has touched in its folder, as they are to become."""
        given = [Path(word) for word in self.command.words]
        touched = [Path(path) for one in done if one.kind is not Kind.MARK for path in (one.path, one.target)]
        below = [path.relative_to(self._work) for path in touched if path.is_relative_to(self._work)]
        return {leftover_of(Path(part)) or part for path in (*given, *below) for part in path.parts}

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
    with disturbed(folder, _TINY if tiny else None) as chosen:
        for one in chosen:
            judge, tally = Judge(one), Tally()
            for number, fault in judge.plan(4 if tiny else one.command.tries, seed=0):
                outcome, why = judge.trial(number, fault)
                operation = judge.operations[number]
                tally.add(outcome, f"{fault.name} at {operation.kind.name} {operation.path}", why)
            yield tally.line(f"{one.command.name}: one of {len(judge.operations)} operations fails")
