"""Sweeps: their runs, the comparison between them, and the outcomes of runs.

`sweep_file` reads files, `runner` runs runs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from dorylax.config import ConfigError, RunConfig
from dorylax.experiments.names import short_name
from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import shown
from dorylax.settings.strict_yaml import scalar
from dorylax.simulation.settings import Simulation

CONFIGS = Path(__file__).resolve().parent / "configs"
"""Folder of the built-in sweeps."""

SEED = "train.seed"
"""The key that `seeds` sets."""

ASKED = ("time", "epochs", "cost", "accuracy")
"""Values of `compare.asks`: less of what to the target, or as accurate."""

ASKED_OF_SIMULATED = ("time", "cost", "value")
"""The same of simulated runs: time of an epoch, cost of a run, or value."""

Setting = Mapping[str, Any]
Condition = tuple[str, str]
"""A key and its required value, as text."""


@final
@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
        config: Its configuration.
        setting: The keys that vary, with its values; runs that differ only in the seed share it.
        simulation: Further settings of a simulated run; None for one that trains.
        labels: Names that the file gives to values, each with the keys whose values it names.
    """

    config: RunConfig
    setting: Setting
    simulation: Simulation | None = None
    labels: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def key(self) -> str:
        """Identity of the run, and the name of its directory."""
        if self.simulation is None:
            return self.config.key()
        text = json.dumps([self.config.canonical_json(), self.simulation.identity()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def dotted(self) -> dict[str, Any]:
        """Its configuration and simulation by dotted key."""
        found = self.config.dotted()
        if self.simulation is None:
            return found
        if self.simulation.graph is not None:
            found = {key: value for key, value in found.items() if not key.startswith("data.")}
        return found | self.simulation.dotted()

    @property
    def virtual(self) -> bool:
        """Whether its times are simulated."""
        return self.config.pipeline is not None and self.config.pipeline.clock == "virtual"

    @property
    def name(self) -> str:
        """The setting in a few words: `gcn, async S=0 per_epoch`; the model if only seeds vary."""
        return self.named(self.setting or {"model.name": self.config.model.name})

    def named(self, setting: Setting) -> str:
        """Part of the run's setting in a few words; the run's name if the part is empty."""
        if not setting:
            return self.name
        used = [(keys, label) for keys, label in self.labels if not setting.keys().isdisjoint(keys)]
        labelled = {key for keys, _ in used for key in keys}
        others = {key: value for key, value in setting.items() if key not in labelled}
        return ", ".join([*(label for _, label in used), *([short_name(others)] if others else [])])

    @property
    def label(self) -> str:
        """Name and seed: `gcn, async S=0 per_epoch, seed 0`."""
        return f"{self.name}, seed {self.config.train.seed}"

    @property
    def varying(self) -> dict[str, Any]:
        """The setting with the seed, which distinguish it from others."""
        return {**self.setting, SEED: self.config.train.seed}


@final
@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run.

    Attributes:
        run: The run.
        status: "done" (it came to its own end), "failed", or "open" (not run, or stopped by a signal).
        summary: Content of its summary.json; empty unless done.
        error: Last line of its traceback, which names the user's own line if that is the cause, or the damage of its
            directory; None unless failed.
        environment: Content of its environment.json; empty unless done.
    """

    run: Run
    status: Literal["done", "failed", "open"]
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str | None = None
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)


@final
@dataclasses.dataclass(frozen=True)
class Axis:
    """Keys whose values go together: one key of the grid, or a block of zip.

    Attributes:
        keys: One or more.
        points: A value for each key.
        labels: A name for each point, or empty.
    """

    keys: tuple[str, ...]
    points: tuple[tuple[Any, ...], ...]
    labels: tuple[str, ...] = ()

    @property
    def labelled(self) -> list[tuple[Setting, str]]:
        """The setting of each point with its label, which may be empty."""
        labels = self.labels or ("",) * len(self.points)
        return [(dict(zip(self.keys, one, strict=True)), label) for one, label in zip(self.points, labels, strict=True)]


@final
@dataclasses.dataclass(frozen=True)
class Comparison:
    """The runs that others are compared with.

    Attributes:
        keys: Keys in which compared runs differ; in all others and the seed they are equal.
        baseline: Values of these keys in the baseline.
        margin: Distance of the target below the baseline's mean best validation accuracy, a fraction.
        target: Validation accuracy, a fraction; None if it follows from the baseline.
        over: Further averages are over groups that differ in these keys.
        name: Name of the baseline of simulated runs; None for its values.
        asks: The question, one of `ASKED`.
        stated: Whether the file names it; otherwise the first value of the only axis is the baseline.
    """

    keys: tuple[str, ...]
    baseline: Setting
    margin: float
    target: float | None
    over: tuple[str, ...] = ()
    name: str | None = None
    asks: str = "time"
    stated: bool = True

    def is_baseline(self, run: Run) -> bool:
        """Whether the run belongs to the baseline."""
        return all(run.setting[key] == value for key, value in self.baseline.items())

    def group(self, run: Run) -> tuple[tuple[str, Any], ...]:
        """The values that compared runs have in common besides the seed."""
        return tuple((key, value) for key, value in run.setting.items() if key not in self.keys)

    def pair(self, run: Run) -> tuple[tuple[tuple[str, Any], ...], int]:
        """The group and the seed of runs that are compared with each other."""
        return self.group(run), run.config.train.seed


@final
@dataclasses.dataclass(frozen=True)
class Published:
    """Published numbers.

    Attributes:
        source: The publication.
        points: Values of keys that vary, and numbers by name (`measures.PUBLISHED`, `PUBLISHED_OF_TRAINED`).
    """

    source: str
    points: tuple[tuple[Setting, Mapping[str, float]], ...]

    def of(self, setting: Setting) -> dict[str, float]:
        """The numbers of a setting; the last point wins."""
        return {name: number for at, numbers in self.points if within(at, setting) for name, number in numbers.items()}


@final
@dataclasses.dataclass(frozen=True)
class Sweep:
    """All runs of a sweep file, in order.

    Attributes:
        name: Name of the file without folder and suffix.
        description: Further text for readers; may be empty.
        axes: The keys that vary, in order.
        runs: The runs, seeds fastest.
        comparison: None if nothing is compared.
        text: Text of the file.
        published: Published numbers of its runs, if any.
        parts: The sweeps that it consists of, if any, each with its own axes and comparison; `runs` has the runs of all.
        title: Headline of the report; by default the name.
        question: The question that the report answers; may be empty.
        file: Path of the file, if it is known.
    """

    name: str
    description: str
    axes: tuple[str, ...]
    runs: tuple[Run, ...]
    comparison: Comparison | None = None
    text: str = ""
    published: Published | None = None
    parts: tuple[Sweep, ...] = ()
    title: str = ""
    question: str = ""
    file: Path | None = None

    @property
    def simulated(self) -> bool:
        """Whether all runs are simulated."""
        return all(run.simulation is not None for run in self.runs)

    @classmethod
    def of_parts(cls, parts: Sequence[Sweep], **texts: Any) -> Sweep:
        """A sweep that consists of others; `texts` are its name, description, title and question."""
        axes = dict.fromkeys(key for part in parts for key in part.axes)
        runs = {run.key: run for part in reversed(parts) for run in part.runs}
        order = dict.fromkeys(run.key for part in parts for run in part.runs)
        return cls(axes=tuple(axes), runs=tuple(runs[key] for key in order), parts=tuple(parts), **texts)

    def unverified(self) -> Sweep:
        """The same runs on data whose checksums are not verified."""
        runs = tuple(dataclasses.replace(run, config=run.config.unverified()) for run in self.runs)
        return dataclasses.replace(self, runs=runs, parts=tuple(part.unverified() for part in self.parts))


class Study(NamedTuple):
    """A sweep and its outcomes.

    Attributes:
        sweep: The planned runs.
        outcomes: One per run, in the same order.
        folder: The folder of the sweep; None if it has none.
    """

    sweep: Sweep
    outcomes: Sequence[RunOutcome]
    folder: Path | None

    @property
    def parts(self) -> list[Study]:
        """The parts of a combined sweep, each with its own runs; a plain sweep is its only part."""
        if not self.sweep.parts:
            return [self]
        outcomes = {one.run.key: one for one in self.outcomes}
        return [
            Study(part, [dataclasses.replace(outcomes[run.key], run=run) for run in part.runs], self.folder)
            for part in self.sweep.parts
        ]


def select(sweep: Sweep, conditions: Sequence[Condition]) -> Sweep:
    """The part of a sweep whose runs meet all conditions.

    Args:
        sweep: The whole sweep.
        conditions: Keys that vary, or `train.seed`, and their values as in a file; conditions on a key are alternatives.

    Raises:
        ConfigError: A key does not vary, a value never occurs, or no run meets all conditions.
    """
    if not conditions:
        return sweep
    if sweep.parts:
        return _select_of_parts(sweep, conditions)
    values: dict[str, list[Any]] = {}
    for run in sweep.runs:
        for key, value in run.varying.items():
            known = values.setdefault(key, [])
            known += [] if value in known else [value]
    wanted: dict[str, list[Any]] = {}
    for key, text in conditions:
        only = f"--only {key}={text}"
        if key not in values:
            raise ConfigError(f"{only}: {key!r} does not vary in sweep {sweep.name}: {did_you_mean(key, list(values))}")
        meant = [value for value in values[key] if _means(text, value)]
        if not meant:
            listed = ", ".join(value if isinstance(value, str) else shown(value) for value in values[key])
            raise ConfigError(f"{only}: in sweep {sweep.name} {key} is {listed}")
        wanted.setdefault(key, []).extend(meant)
    runs = [run for run in sweep.runs if all(run.varying[key] in chosen for key, chosen in wanted.items())]
    if not runs:
        raise ConfigError("--only: no run meets all of " + ", ".join(f"{key}={value}" for key, value in conditions))
    comparison = sweep.comparison
    if comparison is not None:
        bases = {comparison.group(run) for run in runs if comparison.is_baseline(run)}
        comparison = comparison if all(comparison.group(run) in bases for run in runs) else None
    return dataclasses.replace(sweep, runs=tuple(runs), comparison=comparison)


def _select_of_parts(sweep: Sweep, conditions: Sequence[Condition]) -> Sweep:
    """Select from each part; parts without such a run are dropped."""
    kept, errors = list[Sweep](), list[ConfigError]()
    for part in sweep.parts:
        try:
            kept.append(select(part, conditions))
        except ConfigError as error:
            errors.append(error)
    if not kept:
        raise errors[0]
    texts = {name: getattr(sweep, name) for name in ("name", "description", "title", "question", "text", "file")}
    return Sweep.of_parts(kept, **texts)


def _means(text: str, value: Any) -> bool:
    """Whether text on the command line means a value, by the rules of a file: `1e-2` is 0.01."""
    try:
        return text == value or same(scalar(text), value)
    except ConfigError:
        return False


def within(some: Setting, setting: Setting) -> bool:
    """Whether a setting has all values of another."""
    return all(same(setting[key], value) for key, value in some.items())


def same(value: Any, other: Any) -> bool:
    """Whether two values are equal in a file: 1 equals 1.0, but not true."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
