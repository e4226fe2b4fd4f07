"""Sweeps as one tidy pandas frame, with a row per epoch or per run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dorylax.columns import column
from dorylax.config.schema import KEYS
from dorylax.experiments.folder import read_study
from dorylax.experiments.runner import history_of
from dorylax.experiments.sweep import RunOutcome, Study
from dorylax.experiments.table import TIMINGS, keys_of, results_of, row
from dorylax.runs.curves import columns_of
from dorylax.runs.result import EpochRecord
from dorylax.settings.words import type_words

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

_LEVELS = ("epochs", "runs")
_KINDS: Mapping[str, type] = {"a whole number": int, "a number": float, "true or false": bool}  # all others are text
_Member = tuple[Study, RunOutcome]


def load(*folders: str | os.PathLike[str], level: str = "epochs") -> pandas.DataFrame:
    """Join the folders of sweeps into one frame.

    The first columns are `sweep` (its name), `run` (its key) and every dotted key of the configuration that a run has.
    Missing values are `NaN` in columns of floats, else `pandas.NA`.

    Args:
        folders: Folders of sweeps, at least one; repeated ones count once.
        level: "epochs" for a row per epoch of each run that is done, with the fields of `EpochRecord` and `time`, the
            seconds of training until its end; "runs" for a row per run with the columns of results.csv and timings.csv.

    Returns:
        Rows sorted by sweep, run and epoch.

    Raises:
        ValueError: The level is unknown, or there is no folder.
        ConfigError: A folder belongs to no sweep.
        RunDirectoryError: A run's metrics.jsonl cannot be read.
    """
    if level not in _LEVELS:
        raise ValueError(f"level must be one of {', '.join(_LEVELS)}, got {level!r}")
    if not folders:
        raise ValueError("load needs the folder of at least one sweep")
    paths = {Path(folder).resolve(): Path(folder) for folder in folders}
    studies = [read_study(path) for path in paths.values()]
    members = [(study, outcome) for study in studies for outcome in study.outcomes]
    members.sort(key=lambda member: (member[0].sweep.name, member[1].run.key))
    keys = keys_of([outcome for _, outcome in members])
    return _runs(members, keys) if level == "runs" else _epochs(members, keys)


def _runs(members: Sequence[_Member], keys: Sequence[str]) -> pandas.DataFrame:
    import pandas

    columns = _identities(members, keys)
    rows = [row(outcome) for _, outcome in members]
    for name, kind in {**results_of([outcome for _, outcome in members]), **TIMINGS}.items():
        columns[name] = column([one[name] for one in rows], kind)
    return pandas.DataFrame(columns)


def _epochs(members: Sequence[_Member], keys: Sequence[str]) -> pandas.DataFrame:
    import pandas

    done = [member for member in members if member[1].status == "done"]
    histories = [history_of(study.folder, outcome) for study, outcome in done]
    runs = pandas.DataFrame(_identities(done, keys))
    repeated = runs.loc[runs.index.repeat([len(history) for history in histories])].reset_index(drop=True)
    return pandas.concat([repeated, pandas.DataFrame(columns_of(EpochRecord, histories))], axis=1)


def _identities(members: Sequence[_Member], keys: Sequence[str]) -> dict[str, pandas.Series]:
    """Columns with each run's identity and configuration."""
    columns = {
        "sweep": column([study.sweep.name for study, _ in members], str),
        "run": column([outcome.run.key for _, outcome in members], str),
    }
    settings = [outcome.run.dotted() for _, outcome in members]
    for key in keys:
        values = [one.get(key) for one in settings]
        columns[key] = column(values, _kind(values) if key not in KEYS else _KINDS.get(type_words(KEYS[key]), str))
    return columns


def _kind(values: Sequence[Any]) -> type:
    """The type of the values of a key that only simulations have."""
    kinds = {type(value) for value in values if value is not None}
    return next(iter(kinds)) if len(kinds) == 1 else float if kinds == {int, float} else str
