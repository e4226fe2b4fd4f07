"""Sweep files: which runs they mean. Pure: text in, configurations out; running them is `runner`'s.

    description: what the sweep asks            # optional
    base: {train.epochs: 50}                    # keys that all runs share
    grid: {model.name: [gcn, gat]}              # every combination of these, the last key fastest
    seeds: 3                                    # 0, 1, 2; or a list

Everything is checked before anything runs, and each error has its file and line.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from dorylax.config import ConfigError, RunConfig, did_you_mean
from dorylax.config.check import KEYS, check_value, unknown_key
from dorylax.config.errors import shown
from dorylax.config.files import overrides_from_mapping, read_text
from dorylax.config.strict_yaml import Document, parse

_PARTS = ("description", "base", "grid", "seeds")
_SEED = "train.seed"


@final
@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
        config: what to run.
        setting: the grid's keys with this run's values; runs that differ only in the seed share it.
    """

    config: RunConfig
    setting: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The identity of the run, and the name of its directory."""
        return self.config.key()

    @property
    def label(self) -> str:
        """The run in words: `model.name=gcn, train.seed=0`."""
        values = {**self.setting, _SEED: self.config.train.seed}
        return ", ".join(f"{key}={shown(value) if value is None else value}" for key, value in values.items())


@final
@dataclasses.dataclass(frozen=True)
class Sweep:
    """All runs of a sweep file, in order.

    Attributes:
        name: of the file, without folder and suffix.
        description: what the file says it is for; may be empty.
        axes: the grid's keys, in order.
        runs: the runs, seeds fastest.
    """

    name: str
    description: str
    axes: tuple[str, ...]
    runs: tuple[Run, ...]


def load(path: Path) -> Sweep:
    """Reads and expands a sweep file.

    Raises:
        ConfigError: the file cannot be read, or is wrong; see `expand`.
    """
    return expand(parse(read_text(path), str(path)), path.stem)


def expand(document: Document, name: str) -> Sweep:
    """From a sweep file to its runs.

    Args:
        document: the file.
        name: of the sweep.

    Raises:
        ConfigError: an unknown part, key, model or optimizer; a value of the wrong type or out of bounds; an option
            that a run's model does not use; an empty grid; a run that comes twice. With file, line, value and what is
            allowed.
    """
    content = document.value
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"{document.where()}: a sweep has the parts {', '.join(_PARTS)}, got {shown(content)}")
    for part in content:
        if part not in _PARTS:
            raise ConfigError(f"{document.where(part)}: unknown part {part!r} of a sweep: {did_you_mean(part, _PARTS)}")
    description = content.get("description", "")
    if not isinstance(description, str):
        raise ConfigError(f"{document.where('description')}: description must be text, got {shown(description)}")
    base = _base(document, content.get("base", {}))
    grid = _grid(document, content.get("grid"), base)
    seeds = _seeds(document, content.get("seeds", [base.get(_SEED, 0)]), base)

    runs: dict[str, Run] = {}
    for values in itertools.product(*grid.values()):
        setting = dict(zip(grid, values, strict=True))
        for seed in seeds:
            run = Run(_resolved(document, base, setting, seed), setting)
            if run.key in runs:
                raise ConfigError(
                    f"{document.where('grid')}: ({run.label}) is the same run as ({runs[run.key].label}): take one away"
                )
            runs[run.key] = run
    return Sweep(name, " ".join(description.split()), tuple(grid), tuple(runs.values()))


def _base(document: Document, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ConfigError(f"{document.where('base')}: base must hold keys such as train.epochs, got {shown(content)}")
    return overrides_from_mapping(document, content, ("base",))


def _grid(document: Document, content: Any, base: Mapping[str, Any]) -> dict[str, list[Any]]:
    if not isinstance(content, dict) or not content:
        got = "nothing" if content in (None, {}) else shown(content)
        raise ConfigError(
            f"{document.where('grid')}: grid must hold at least one key with a list of values, "
            f"as in `model.name: [gcn, gat]`, got {got}"
        )
    for key, values in content.items():
        place = document.where("grid", key)
        if key not in KEYS:
            raise ConfigError(f"{place}: {unknown_key(key)}")
        if key == _SEED:
            raise ConfigError(f"{place}: {_SEED} is not for the grid: list seeds under `seeds`")
        if key in base:
            raise ConfigError(f"{place}: {key} is in base and in grid: take it out of one")
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{place}: {key} must have a list of at least one value, got {shown(values)}")
        for index, value in enumerate(values):
            place = document.where("grid", key, index)
            try:
                check_value(key, value)
            except ConfigError as error:
                raise ConfigError(f"{place}: {error}") from None
            if value in values[:index]:
                raise ConfigError(f"{place}: {key} lists {shown(value)} twice")
    return content


def _seeds(document: Document, content: Any, base: Mapping[str, Any]) -> list[int]:
    place = document.where("seeds")
    if _SEED in base and place != document.where():
        raise ConfigError(f"{place}: seeds and {_SEED} in base exclude each other: take one away")
    if isinstance(content, int) and not isinstance(content, bool) and content >= 1:
        return list(range(content))
    if not isinstance(content, list) or not content:
        raise ConfigError(f"{place}: seeds must be a whole number ≥ 1 or a list of seeds, got {shown(content)}")
    for index, seed in enumerate(content):
        place = document.where("seeds", index)
        try:
            check_value(_SEED, seed)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        if seed in content[:index]:
            raise ConfigError(f"{place}: seeds lists {seed} twice")
    return content


def _resolved(document: Document, base: Mapping[str, Any], setting: Mapping[str, Any], seed: int) -> RunConfig:
    try:
        return RunConfig.resolve(base, setting, {_SEED: seed})
    except ConfigError as error:
        part = "grid" if error.key in setting else "base"
        path = (part,) if error.key is None else (part, error.key)
        if error.key in setting and error.key in ("model.name", "optimizer.name"):
            path = (*path, document.value["grid"][error.key].index(setting[error.key]))
        raise ConfigError(f"{document.where(*path)}: {error}") from None
