"""The folder of a sweep: `sweep.json` says which sweep it is, so that tables and reports need nothing else.

DIR/sweep.json         the sweep: name, text of its file, what was selected, which options code of the user's own takes
DIR/runs/KEY/          a directory for each run; in a sweep of one setting DIR/seed-0/, …
DIR/errors/KEY.txt     tracebacks of runs that failed
DIR/results.csv        a row for each run (`table`)
DIR/timings.csv        times and hosts
DIR/results.json       what `dorylax train --json` prints
DIR/report.html, report.md, figures/
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

from dorylax import folder_lock
from dorylax.config import ConfigError
from dorylax.durable import leftover_of, named, write_json
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import inspect
from dorylax.experiments.sweep import Condition, Sweep, select
from dorylax.experiments.sweep_file import read
from dorylax.runs.digest import sealed, unsealed
from dorylax.runs.directory import SCHEMA
from dorylax.user_code.trust import FolderCode

RESULTS = "results.json"
"""The file of the results of `dorylax train`."""

_FILE = "sweep.json"
_LOCKED = (_FILE, "results.csv", "timings.csv", RESULTS)
"""Files that are written only by who has the lock; so are all in errors/."""


class Study(NamedTuple):
    """A sweep and what has become of it.

    Attributes:
        sweep: what was planned.
        outcomes: of its runs, in the same order.
        folder: where they are.
    """

    sweep: Sweep
    outcomes: Sequence[RunOutcome]
    folder: Path


def write_sweep(folder: Path, sweep: Sweep, conditions: Sequence[Condition]) -> None:
    """Notes which sweep runs in a folder.

    Args:
        folder: of the sweep.
        sweep: all of it, since who reads the folder expands the whole file.
        conditions: by which its runs are selected.
    """
    content = {"schema": SCHEMA, "name": sweep.name, "text": sweep.text, "only": [list(one) for one in conditions]}
    options = {name: options for run in sweep.runs for name, options in run.config.own_options().items()}
    if options:  # so that the folder is read without executing anything
        content["own_options"] = options
    write_json(folder / _FILE, sealed(content))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes from running a sweep in the same folder; over when this process ends, however it does.

    A folder that does not exist is made, and removed again if nothing has come into it.

    Raises:
        ConfigError: another one runs there.
        OSError: the folder cannot be made or written.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder_lock.locked(folder))
        except folder_lock.FolderHeldError as error:
            raise ConfigError(
                f"{folder} is in use by {error.holder}, which runs a sweep there: "
                "wait for it, or give another folder by --out"
            ) from error
        leftovers = [path for path in folder.iterdir() if leftover_of(path) in _LOCKED]
        leftovers += [path for path in folder.glob("errors/.*") if leftover_of(path) is not None]
        for path in leftovers:
            with contextlib.suppress(OSError):  # it only takes room
                path.unlink()
        yield


def check_folder(folder: Path, sweep: Sweep) -> None:
    """Whether a sweep may run in a folder; its file may have changed since.

    Raises:
        ConfigError: it is another sweep's, whose tables would be lost, or holds figures of the user.
        OSError: the disk refuses to say whose it is.
    """
    try:
        name = _noted(folder).name
    except ConfigError:  # none, or a damaged one, which is written anew
        check_figures(folder)
        return
    if name != sweep.name:
        raise ConfigError(f"{folder} is the folder of sweep {name}, not of {sweep.name}: give another --out")


def check_figures(folder: Path) -> None:
    """Refuse a folder whose figures a report would replace although neither a sweep nor a report wrote them.

    Raises:
        ConfigError: The folder has figures, but neither sweep.json nor report.html.
    """
    ours = any((folder / name).is_file() for name in (_FILE, "report.html"))
    if (folder / "figures").exists() and not ours:
        raise ConfigError(
            f"--out {folder} has figures that belong to no report and would be lost: choose another folder"
        )


def read_study(folder: Path) -> Study:
    """What is known of the sweep in a folder. No code runs that it names.

    Raises:
        ConfigError: there is none, or it was written by a newer version.
        OSError: its file cannot be read.
    """
    noted, source = _noted(folder), str(folder / _FILE)
    code = FolderCode(source, None, options=noted.own_options)
    sweep = select(read(noted.text, source, noted.name, code), noted.conditions)
    return Study(sweep, [inspect(folder, run) for run in sweep.runs], folder)


@final
class _Noted(NamedTuple):
    """What sweep.json says."""

    name: str
    text: str
    conditions: list[Condition]
    own_options: dict[str, dict[str, Any]]


def _noted(folder: Path) -> _Noted:
    path = folder / _FILE
    try:
        with named(path):
            text = path.read_text(encoding="utf-8")
        content = json.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{folder} is not the folder of a sweep (it has no {_FILE}): give one that experiments/run.py or dorylax train "
            "has made"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _damage(path, error) from None
    try:
        content = unsealed(content, without=SCHEMA)
        schema = content["schema"]
        if schema > SCHEMA:
            raise ConfigError(f"{path} has schema {schema}, this version of dorylax reads up to {SCHEMA}: update it")
        conditions = [(str(key), str(value)) for key, value in content["only"]]
        options = {str(name): dict(own) for name, own in content.get("own_options", {}).items()}
        return _Noted(str(content["name"]), str(content["text"]), conditions, options)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise _damage(path, error) from None


def _damage(path: Path, reason: Exception) -> ConfigError:
    return ConfigError(
        f"{path} is damaged ({reason}): start the sweep, or dorylax train with --resume, again, which writes it anew"
    )
