"""The power fails after each operation on the disk: acknowledged files are there, and the rest comes to the same bits.

The operations of a command are recorded once. From them come, after every operation, the states that a file system may
leave: of unsynced writes nothing, everything, the names without contents, the contents without names, and parts drawn
by seed. In each the newest acknowledged checkpoint is read, and small files are whole; in some the command goes on.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final

from hostile.base import Line, Outcome, Tally, some
from hostile.commands import Disturbed, acknowledged, disturbed, not_restored
from hostile.crash_states import Disk, Policy, State, read, restored
from hostile.disk_shim import Kind

_POLICIES: Sequence[tuple[Policy, int]] = (
    *(("nothing", 0), ("everything", 0), ("names alone", 0), ("contents alone", 0)),
    *(("some", seed) for seed in range(6)),
)
_WHOLE = (".yaml", ".json", ".csv", ".npz", ".npy", ".svg", ".html", ".md", ".bin", ".sha256")
"""Ends of the names of files that are replaced, never appended to."""


class Crash(NamedTuple):
    """A disk after the power's failure.

    Attributes:
        state: Of the disk.
        saved: The newest checkpoint that was acknowledged, by path in the folder; None for none.
        ended: Whether the command had said that it was done.
        before: The last operation, as words.
    """

    state: State
    saved: str | None
    ended: bool
    before: str


@final
class Judge:
    """Crashes of one command."""

    def __init__(self, one: Disturbed) -> None:
        self._one, self._begin = one, read(one.begin)
        self._contents: dict[str, set[bytes]] = defaultdict(set)
        self._saved: dict[str, State] = {}
        disk = Disk(one.first, self._begin)
        self._note(disk.after("everything"))
        for step in one.done:
            disk.apply(step)
            if step.kind in (Kind.RENAME, Kind.EXCHANGE, Kind.MARK):
                now = disk.after("everything")
                self._note(now)
                if (path := acknowledged([step])) is not None:
                    self._saved[self._inside(path)] = _below(now, self._inside(path))

    def _note(self, state: State) -> None:
        for path, content in state.items():
            if content is not None:
                self._contents[path].add(content)

    def _inside(self, path: str) -> str:
        return str(Path(path).relative_to(self._one.first))

    def crashes(self) -> Iterator[Crash]:
        """Each state in which the disk may be, once."""
        disk, seen = Disk(self._one.first, self._begin), set()
        saved, ended = None, False
        for number, step in enumerate(self._one.done):
            disk.apply(step)
            if (path := acknowledged([step])) is not None:
                saved = self._inside(path)
            ended = ended or (step.kind is Kind.MARK and step.path == "ended 0")
            for policy, seed in _POLICIES:
                state = disk.after(policy, seed=1000 * number + seed)
                key = (hashlib.sha256(repr(sorted(state.items())).encode()).digest(), saved, ended)
                if key not in seen:
                    seen.add(key)
                    yield Crash(state, saved, ended, f"{policy} after {step.kind.name} {Path(step.path).name}")

    def look(self, crash: Crash) -> str:
        """An error of the files in a state, which are not read; empty if there is none."""
        for path, content in crash.state.items():
            known = path.endswith(_WHOLE) and not any(part.startswith(".") for part in Path(path).parts)
            old_or_new = content is None or content in self._contents[path] or Path(path).name == "trace.json"
            if known and not old_or_new:
                return f"{path} is neither old nor new: {(content or b'')[:100]!r}"
        if crash.saved is not None:
            if crash.saved not in crash.state:
                newer = [path for path in crash.state if "/checkpoints/epoch-" in path and path > crash.saved]
                return "" if newer else f"{crash.saved} was acknowledged, and is gone"
            if _below(crash.state, crash.saved) != self._saved[crash.saved]:
                return f"{crash.saved} was acknowledged, and is damaged"
            if str(Path(crash.saved).parents[1] / "config.yaml") not in crash.state:
                return f"{crash.saved} was acknowledged, and its run has no config.yaml"
        return ""

    def read(self, crash: Crash) -> str:
        """An error of reading a state, checkpoints and results; empty if there is none."""
        work = self._one.fresh()
        restored(crash.state, work)
        wrong = "" if crash.saved is None else not_restored(work / crash.saved)
        if not wrong and crash.ended and not self._one.command.cached and (differs := self._one.differs(work)):
            wrong = f"it had ended: {differs}"
        shutil.rmtree(work)
        return wrong

    def go_on(self, crash: Crash) -> tuple[Outcome, str]:
        """Runs the command again."""
        work = self._one.fresh()
        restored(crash.state, work)
        ended = self._one.run_again(work, empty=crash.saved is None)
        differs = self._one.differs(work) if ended.code == 0 else ""
        shutil.rmtree(work)
        if ended.code == 2 and crash.saved is None and self._one.command.resume:
            return "survived", ""  # nothing was acknowledged, and it is refused in one line
        if ended.code != 0:
            return "crashed", f"run again, it ends with {ended.code}: {ended.errors}"
        return ("lost", f"run again, {differs}") if differs else ("survived", "")


def _below(state: State, folder: str) -> State:
    return {path: content for path, content in state.items() if path.startswith(f"{folder}/")}


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    rng = random.Random(0)
    most_read, most_again = (20, 1) if tiny else (300, 30)
    with disturbed(folder, (5,) if tiny else None) as chosen:
        for one in chosen:
            judge, tally = Judge(one), Tally()
            crashes = list(judge.crashes())
            reading, going = (some(len(crashes), most, rng) for most in (most_read, most_again))
            for number, crash in enumerate(crashes):
                outcome: Outcome = "survived"
                if wrong := judge.look(crash) or (number in reading and judge.read(crash)) or "":
                    outcome = "lost"
                elif number in going:
                    outcome, wrong = judge.go_on(crash)
                tally.add(outcome, crash.before, wrong)
            name = f"{one.command.name}: states of the disk ({len(reading)} read, {len(going)} gone on with)"
            yield tally.line(name)
