"""The folder of a sweep: `sweep.json` says which sweep it is, so that tables and reports need nothing else.

DIR/sweep.json         the sweep: name, text of its file, what was selected
DIR/runs/KEY/          a directory for each run; in a sweep of one setting DIR/seed-0/, …
DIR/errors/KEY.txt     tracebacks of runs that failed
DIR/results.csv        a row for each run (`table`)
DIR/timings.csv        times and hosts
DIR/report.html, report.md, figures/
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dorylax import folder_lock
from dorylax.config import ConfigError
from dorylax.durable import write_json
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import inspect
from dorylax.experiments.sweep import Condition, Sweep, select
from dorylax.experiments.sweep_file import read
from dorylax.runs.digest import sealed, unsealed
from dorylax.runs.directory import SCHEMA

_FILE = "sweep.json"


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
        sweep: it.
        conditions: by which its runs were selected.
    """
    content = {"schema": SCHEMA, "name": sweep.name, "text": sweep.text, "only": [list(one) for one in conditions]}
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
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from error  # a full disk comes without a name
        yield


def check_folder(folder: Path, sweep: Sweep) -> None:
    """Whether a sweep may run in a folder; its file may have changed since.

    Raises:
        ConfigError: it is another sweep's, whose tables would be lost.
    """
    try:
        name, _, _ = _noted(folder)
    except ConfigError:  # none, or a damaged one, which is written anew
        return
    if name != sweep.name:
        raise ConfigError(f"{folder} is the folder of sweep {name}, not of {sweep.name}: give another --out")


def read_study(folder: Path) -> Study:
    """What is known of the sweep in a folder.

    Raises:
        ConfigError: there is none, or it was written by a newer version.
    """
    name, text, conditions = _noted(folder)
    sweep = select(read(text, str(folder / _FILE), name), conditions)
    return Study(sweep, [inspect(folder, run) for run in sweep.runs], folder)


def _noted(folder: Path) -> tuple[str, str, list[Condition]]:
    """Name, text and conditions of the sweep in a folder."""
    path = folder / _FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} is not the folder of a sweep (it has no {_FILE}): give one that experiments/run.py or dorylax train "
            "has made"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except ValueError as error:
        raise _damage(path, error) from None
    try:
        content = unsealed(content, without=SCHEMA)
        schema = content["schema"]
        if schema > SCHEMA:
            raise ConfigError(f"{path} has schema {schema}, this version of dorylax reads up to {SCHEMA}: update it")
        conditions = [(str(key), str(value)) for key, value in content["only"]]
        return str(content["name"]), str(content["text"]), conditions
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise _damage(path, error) from None


def _damage(path: Path, reason: Exception) -> ConfigError:
    return ConfigError(
        f"{path} is damaged ({reason}): start the sweep, or dorylax train with --resume, again, which writes it anew"
    )
