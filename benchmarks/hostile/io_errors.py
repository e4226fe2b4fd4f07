"""Each write of a command fails in turn (no space, a bad disk, too many files, cut short); run again, the command heals."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from dorylax.store.durable import temporary_target
from hostile.base import Line, Outcome, Tally, some
from hostile.commands import Disturbed, acknowledged, complaint, disturbed, hidden, not_restored
from hostile.disk_shim import FAULTS, Fault, Kind, Operation

_TINY = (5,)  # partition


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    with disturbed(folder, _TINY if tiny else None) as chosen:
        for one in chosen:
            operations = [operation for operation in one.done if operation.kind is not Kind.MARK]
            tally = Tally()
            for number, fault in _plan(operations, 4 if tiny else one.command.tries):
                operation = operations[number]
                name = f"{fault.name} at {operation.kind.name} {operation.path}"
                outcome, why = _trial(one, number, fault)
                tally.add(outcome, name, why)
            yield tally.line(f"{one.command.name}: one of {len(operations)} operations fails")


def _plan(operations: Sequence[Operation], most: int) -> Iterator[tuple[int, Fault]]:
    """Which operation fails how; `most` of them, if there are more."""
    rng = random.Random(0)
    suffered: Counter[str] = Counter()
    for place in some(len(operations), most, rng):
        if possible := [fault for fault in FAULTS if operations[place].kind in fault.kinds]:
            fault = min(possible, key=lambda one: (suffered[one.name], rng.random()))
            suffered[fault.name] += 1
            yield place, fault


def _trial(one: Disturbed, number: int, fault: Fault) -> tuple[Outcome, str]:
    """The command with a fault, and once more without."""
    work = one.fresh(one.begin)
    first = one.run(one.command.words, work, number, fault)
    done = one.log()
    known = _known(one, work, done)
    if wrong := complaint(first, work, known):
        return "crashed", wrong
    saved = acknowledged(done)
    if saved is not None and (lost := not_restored(Path(saved))):
        return "lost", lost
    if first.code == 0 and (missing := one.differs(work)):
        return "lost", f"it said that all was well, but {missing}"
    again = one.run_again(work, empty=True)
    if again.code != 0 or (wrong := complaint(again, work, known)):
        return "crashed", f"run again without a fault, it ends with {again.code}: {again.errors}{wrong}"
    if different := one.differs(work):
        return "lost", f"run again without a fault, {different}"
    if left := _left(one, work, fault):
        return "crashed", f"it has left {', '.join(left)}"
    return "survived", ""


def _left(one: Disturbed, work: Path, fault: Fault) -> list[str]:
    """Half-written files that should not be left: those that could be removed, and those in a folder that is ours."""
    left = [] if one.command.cached else hidden(work)
    if one.command.resumes or not fault.lasting:
        return left
    if Kind.UNLINK in fault.kinds:
        return []
    if Kind.OPEN in fault.kinds:  # a folder is opened to be removed
        return [name for name in left if not (work / name).is_dir()]
    return left


def _known(one: Disturbed, work: Path, done: Sequence[Operation]) -> set[str]:
    """Names of files that the command was given, or has touched in its folder, as they are to become."""
    given = [Path(word) for word in one.command.words]
    touched = [Path(path) for step in done if step.kind is not Kind.MARK for path in (step.path, step.target)]
    below = [path.relative_to(work) for path in touched if path.is_relative_to(work)]
    return {temporary_target(part) or part for path in (*given, *below) for part in path.parts}
