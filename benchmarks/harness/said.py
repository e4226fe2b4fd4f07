"""What a command says when its disk fails, and whether that will do."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from harness.warm_process import Ended

_RUN = re.compile(r"\[\d+/\d+\] .+?: (?P<failed>failed: )?(?P<what>.+)")
"""What a sweep says of each run."""
_FAILED = re.compile(r"(?P<number>\d+) of \d+ runs failed; the first one's traceback: (?P<path>.+)")
"""How a sweep ends of which runs have failed."""
_HIDDEN = re.compile(r"\S*/\.\S+\.[0-9a-f]{8}\S*|\S*orbax-\S*tmp\S*")
_WORD = re.compile(r"[^\s:'\"(),]+")


def complaint(ended: Ended, folder: Path, known: Collection[str]) -> str:
    """What is wrong with how a command ended, as words; empty if nothing is.

    It ends with 0 and warnings at most, or with 1 and one line that says why, after a line for each run of a sweep. What
    has failed names a file that the user knows; a sweep of which runs have failed says where the traceback is.

    Args:
        ended: how it ended.
        folder: that it ran in.
        known: names of files and folders that it was given, or has touched.
    """
    if "Traceback (most recent call last)" in ended.output + ended.errors:
        return f"it printed a traceback: {ended.errors}"
    if ended.code not in (0, 1):
        return f"it ended with {ended.code}: {ended.errors}"
    runs, ends = [], []
    for line in ended.errors.splitlines():
        if line.startswith("warning: "):
            continue
        if run := _RUN.fullmatch(line):
            if run["failed"]:
                runs.append(run["what"])
        elif line.startswith("error: ") or _FAILED.fullmatch(line):
            ends.append(line)
        else:
            return f"it says what is no error, no warning and no result: {line!r} in {ended.errors}"
    if ended.code == 0:
        return f"it ended with 0, and said: {ended.errors}" if runs or ends else ""
    if len(ends) != 1 or ended.errors.splitlines()[-1] != ends[0]:
        return f"it does not end in one line that says why: {ended.errors or 'nothing'}"
    if end := _FAILED.fullmatch(ends[0]):
        if int(end["number"]) != len(runs):
            return f"it counts failed runs that it has not named: {ended.errors}"
        if not (folder / end["path"]).is_file():
            return f"there is no traceback where it says: {ends[0]}"
        ends = []
    for what in (*runs, *(line.removeprefix("error: ") for line in ends)):
        if hidden := _HIDDEN.search(what):
            return f"it names a file that nobody knows, {hidden[0]}: {what}"
        if not _names_file(what, known):
            return f"it names no file: {what}"
    return ""


def _names_file(what: str, known: Collection[str]) -> bool:
    """Whether a reason names a file or folder: one with a path or an ending, or the first word, before a colon."""
    return any(
        Path(word).name in known and ("/" in word or "." in word or what.startswith(f"{word}: "))
        for word in _WORD.findall(what)
    )
