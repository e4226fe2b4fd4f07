"""The power fails after each operation on the disk: what was acknowledged is there, and the rest comes to the same bits.

What commands do to the disk is recorded once. From that come, after every operation, the states that a file system may
leave: of what was not synced nothing, everything, the names without contents, the contents without names, and parts drawn
by seed. In each the newest acknowledged checkpoint is read, and small files are whole; in some the command goes on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

from harness.crash_states import Disk, Policy, State, restored
from harness.disk_shim import Kind, Operation, Watch, operations
from harness.small_commands import difference, not_restored
from harness.trials import Disturbed, Outcome, Tally, disturbed, some
from hostile.base import Line

_POLICIES: Sequence[tuple[Policy, int]] = (
    *(("nothing", 0), ("everything", 0), ("names alone", 0), ("contents alone", 0)),
    *(("some", seed) for seed in range(6)),
)
_WHOLE = (".yaml", ".json", ".csv", ".npz", ".npy", ".svg", ".html", ".md", ".bin", ".sha256")
"""Ends of the names of files that are replaced, never appended to."""


@final
@dataclasses.dataclass(frozen=True)
class Crash:
    """What the power's failure left.

    Attributes:
        state: of the disk.
        saved: the newest checkpoint that was acknowledged, by path in the folder; None for none.
        ended: whether the command had said that it was done.
        before: the last operation, as words.
    """

    state: State
    saved: str | None
    ended: bool
    before: str


@final
class Recording:
    """What a command did to a disk.

    Args:
        done: its operations, in order.
        folder: that they were in.
        begin: what was there before.
    """

    def __init__(self, done: Sequence[Operation], folder: Path, begin: State) -> None:
        self._done, self._folder, self._begin = done, folder, begin
        self.contents: dict[str, set[bytes]] = defaultdict(set)
        self.saved: dict[str, dict[str, bytes | None]] = {}
        disk = Disk(folder, begin)
        for one in (None, *done):
            if one is not None:
                disk.apply(one)
            if one is None or one.kind in (Kind.RENAME, Kind.EXCHANGE, Kind.MARK):
                now = disk.after("everything")
                for path, content in now.items():
                    if content is not None:
                        self.contents[path].add(content)
                if one is not None and (path := self._acknowledged(one)):
                    self.saved[path] = _below(now, path)

    def _acknowledged(self, one: Operation) -> str | None:
        if one.kind is not Kind.MARK or not one.path.startswith("saved "):
            return None
        return str(Path(one.path.removeprefix("saved ")).relative_to(self._folder))

    def crashes(self) -> Iterator[Crash]:
        """Each state in which the disk may be, once."""
        disk, seen = Disk(self._folder, self._begin), set()
        saved, ended = None, False
        for number, one in enumerate(self._done):
            disk.apply(one)
            if one.kind is Kind.MARK:
                saved, ended = self._acknowledged(one) or saved, ended or one.path == "ended 0"
            for policy, seed in _POLICIES:
                state = disk.after(policy, seed=1000 * number + seed)
                key = (_digest(state), saved, ended)
                if key not in seen:
                    seen.add(key)
                    yield Crash(state, saved, ended, f"{policy} after {one.kind.name} {Path(one.path).name}")


def _below(state: State, folder: str) -> dict[str, bytes | None]:
    return {path: content for path, content in state.items() if path.startswith(f"{folder}/")}


def _digest(state: State) -> bytes:
    found = hashlib.sha256()
    for path, content in state.items():
        found.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        found.update(content or b"")
    return found.digest()


@final
class Judge:
    """Crashes of one command."""

    def __init__(self, disturbed: Disturbed) -> None:
        command, process, folder = disturbed
        self.command, self._process = command, process
        self._given, self._log, self._count, self._folder = folder / "given", folder / "log", 0, folder
        self._given.mkdir(parents=True)
        command.prepare(process, self._given)
        work = self._free()
        for words in (command.before, command.words):
            begin = _read(work)
            self._log.unlink(missing_ok=True)
            if words and (ended := process.run(words, work, Watch(work, self._log))).code != 0:
                raise RuntimeError(f"{command.name} does not even run undisturbed: {ended}")
        self._expected = command.result(work)
        self.recording = Recording(list(operations(self._log)), work, begin)

    def _free(self) -> Path:
        self._count += 1
        folder = self._folder / f"work-{self._count}"
        folder.mkdir()
        return folder

    def look(self, crash: Crash) -> str:
        """What is wrong with what is there; empty if nothing is. Nothing runs."""
        for path, content in crash.state.items():
            if content is not None and path.endswith(_WHOLE) and Path(path).name != "trace.json":
                hidden = any(part.startswith(".") or "orbax" in part for part in Path(path).parts)
                if not hidden and content not in self.recording.contents[path]:
                    return f"{path} is neither old nor new: {content[:100]!r}"
        if crash.saved is not None:
            newest = max((path for path in crash.state if _is_checkpoint(path)), default="")
            if newest < crash.saved:
                return f"{crash.saved} was acknowledged, and is gone"
            if _below(crash.state, crash.saved) != self.recording.saved[crash.saved]:
                return f"{crash.saved} was acknowledged, and is damaged"
            if not _is_run(crash):
                return f"{crash.saved} was acknowledged, and its run has no config.yaml"
        return ""

    def read(self, crash: Crash) -> str:
        """What is wrong with how the disk is read; empty if nothing is. Checkpoints are restored, results are read."""
        work = self._free()
        restored(crash.state, work)
        try:
            if crash.saved is not None and (wrong := not_restored(work / crash.saved)):
                return wrong
            if crash.ended and not self.command.cached:
                try:
                    found = self.command.result(work)
                except Exception as error:
                    return f"it had ended, and what it made cannot be read: {type(error).__name__}: {error}"
                if found != self._expected:
                    return f"it had ended, and what it made differs: {difference(self._expected, found)}"
            return ""
        finally:
            shutil.rmtree(work)

    def go_on(self, crash: Crash) -> tuple[Outcome, str]:
        """Runs the command again."""
        work = self._free()
        restored(crash.state, work)
        try:
            ended = self._process.run([*self.command.words, *self.command.resume], work)
            if ended.code == 2 and self.command.resume and crash.saved is None:
                ended = self._process.run([one for one in self.command.words if one != "--resume"], work)
                if ended.code == 2:  # nothing was acknowledged, and it is refused in one line
                    return "survived", ""
            if ended.code != 0:
                return "crashed", f"run again, it ends with {ended.code}: {ended.errors}"
            try:
                found = self.command.result(work)
            except Exception as error:
                return "lost", f"run again, what it made cannot be read: {type(error).__name__}: {error}"
            if found != self._expected:
                return "lost", f"run again, what it made differs: {difference(self._expected, found)}"
            return "survived", ""
        finally:
            shutil.rmtree(work)


def _read(folder: Path) -> State:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def _is_checkpoint(path: str) -> bool:
    return Path(path).parent.name == "checkpoints" and Path(path).name.startswith("epoch-")


def _is_run(crash: Crash) -> bool:
    assert crash.saved is not None
    return str(Path(crash.saved).parents[1] / "config.yaml") in crash.state


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    rng = random.Random(0)
    read, again = (60, 3) if tiny else (300, 30)
    with disturbed(folder, (0, 1) if tiny else None) as chosen:
        for one in chosen:
            judge, tally = Judge(one), Tally()
            crashes = list(judge.recording.crashes())
            reading, going = (some(len(crashes), most, rng) for most in (read, again))
            for number, crash in enumerate(crashes):
                outcome: Outcome = "survived"
                if wrong := judge.look(crash) or (number in reading and judge.read(crash)) or "":
                    outcome = "lost"
                elif number in going:
                    outcome, wrong = judge.go_on(crash)
                tally.add(outcome, crash.before, wrong)
            name = f"{one.command.name}: states of the disk ({len(reading)} read, {len(going)} gone on with)"
            yield tally.line(name)
