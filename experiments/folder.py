"""Output folder of a sweep, whose files docs/sweeps.md lists.

`sweep.json` describes the sweep (name, text of its file, selected conditions, options of user code), so tables and reports
need only the folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dorylax.config import ConfigError
from dorylax.errors import named
from dorylax.experiments.runner import directory, inspect
from dorylax.experiments.sweep import CONFIGS, Condition, Run, Study, Sweep, select
from dorylax.experiments.sweep_file import read
from dorylax.store import folder_lock
from dorylax.store.digest import sealed, unsealed
from dorylax.store.durable import remove_leftovers, write_json
from dorylax.store.run_directory import SCHEMA
from dorylax.user_code.trust import FolderCode

RESULTS = "results.json"
"""File with the results of `dorylax train`."""

_FILE = "sweep.json"
_LOCKED = (_FILE, "results.csv", "timings.csv", RESULTS)
"""Files that only the holder of the lock writes, in addition to all files in errors/."""


def write_sweep(folder: Path, sweep: Sweep, conditions: Sequence[Condition]) -> None:
    """Write `sweep.json`: the complete sweep, which readers expand, and the conditions that select the runs."""
    content = {"schema": SCHEMA, "name": sweep.name, "text": sweep.text, "only": [list(one) for one in conditions]}
    options = {name: options for run in sweep.runs for name, options in run.config.own_options().items()}
    if sweep.file is not None and sweep.file.parent != CONFIGS:
        content["file"] = os.path.relpath(sweep.file, folder)
    if options:  # reports must not execute the user's code
        content["own_options"] = options
    write_json(folder / _FILE, sealed(content))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other sweeps until the body or this process ends.

    Creates a missing folder, and removes it at the end if it is still empty.

    Raises:
        ConfigError: Another process runs a sweep there.
    """

    def refuse(holder: str) -> None:
        raise ConfigError(
            f"{folder} is in use by {holder}, which runs a sweep there: wait for it, or give another folder by --out"
        )

    with folder_lock.locked(folder, waiting=refuse):
        remove_leftovers(folder, _LOCKED.__contains__)
        remove_leftovers(folder / "errors")
        yield


def check_folder(folder: Path, sweep: Sweep) -> None:
    """Check that this sweep may run in a folder. The sweep's file may have changed since an earlier run.

    Raises:
        ConfigError: The folder contains another sweep, whose tables would be lost, or figures of the user.
    """
    try:
        name = _noted(folder)["name"]
    except ConfigError:  # rewrite a missing or damaged file
        check_figures(folder)
        return
    if name != sweep.name:
        raise ConfigError(f"{folder} is the folder of sweep {name}, not of {sweep.name}: give another --out")


def check_figures(folder: Path) -> None:
    """Check that a report may replace the figures of a folder.

    Raises:
        ConfigError: The folder contains figures, but neither sweep.json nor report.html.
    """
    ours = any((folder / name).is_file() for name in (_FILE, "report.html"))
    if (folder / "figures").exists() and not ours:
        raise ConfigError(
            f"--out {folder} has figures that belong to no report and would be lost: choose another folder"
        )


def read_study(folder: Path) -> Study:
    """Read the sweep of a folder and the outcomes of its runs, without executing user code.

    Raises:
        ConfigError: The folder contains no sweep, a damaged one, or one written by a newer version.
        OSError: The machine fails to read it.
    """
    noted, source = _noted(folder), str(folder / _FILE)
    code = FolderCode(source, None, options=noted["own_options"])
    file = None if noted["file"] is None else folder / noted["file"]
    whole = dataclasses.replace(read(noted["text"], source, noted["name"], code), file=file)
    sweep = select(whole, noted["only"])
    sweep = dataclasses.replace(sweep, runs=tuple(_as_placed(folder, run) for run in sweep.runs))
    return Study(sweep, [inspect(folder, run) for run in sweep.runs], folder)


def _as_placed(folder: Path, run: Run) -> Run:
    """Return the run with its stages on functions, the default of earlier versions, if the folder has only that run."""
    pipeline = run.config.pipeline
    if pipeline is None or directory(folder, run).exists():
        return run
    tensor = pipeline.tensor.model_copy(update={"placement": "functions"})
    config = run.config.model_copy(update={"pipeline": pipeline.model_copy(update={"tensor": tensor})})
    earlier = dataclasses.replace(run, config=config)
    return earlier if directory(folder, earlier).is_dir() else run


def _noted(folder: Path) -> dict[str, Any]:
    """Return the content of sweep.json, checked, with a value for each key."""
    path = folder / _FILE
    try:
        with named(path):
            text = path.read_text(encoding="utf-8")
        content = unsealed(json.loads(text), without=SCHEMA)
        if (schema := content["schema"]) > SCHEMA:
            raise ConfigError(f"{path} has schema {schema}, this version of dorylax reads up to {SCHEMA}: update it")
        return {
            **{name: str(content[name]) for name in ("name", "text")},
            "only": [(str(key), str(value)) for key, value in content["only"]],
            "own_options": {str(name): dict(own) for name, own in content.get("own_options", {}).items()},
            "file": content.get("file"),
        }
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{folder} is not the folder of a sweep (it has no {_FILE}): give one that dorylax sweep or dorylax train "
            "has made"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{path} is damaged ({error}): start the sweep, or dorylax train with --resume, again, which writes it anew"
        ) from None
