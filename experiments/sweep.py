"""Data model of sweeps (`sweep_file`): runs, comparisons, and outcomes (`runner`)."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from dorylax.config import ConfigError, RunConfig
from dorylax.experiments.names import plain, short_name
from dorylax.near_matches import did_you_mean
from dorylax.settings.strict_yaml import scalar
from dorylax.simulation.settings import Simulation

CONFIGS = Path(__file__).resolve().parent / "configs"
"""Folder of the built-in sweeps."""

SEED = "train.seed"
"""Key set by `seeds`."""

Setting = Mapping[str, Any]
Condition = tuple[str, str]
"""Pair of a key and its required value, as text."""


@final
@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
        setting: Values of the varying keys. Runs that differ only in the seed share it.
        simulation: Further settings of a simulated run, or None for a training run.
        labels: Labels from the sweep file, each with the keys that it covers.
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
        """Return the configuration and the simulation by dotted key."""
        found = self.config.dotted()
        if self.simulation is None:
            return found
        if self.simulation.graph is not None:
            found = {key: value for key, value in found.items() if not key.startswith("data.")}
        return found | self.simulation.dotted()

    @property
    def virtual(self) -> bool:
        """Whether the run uses a virtual clock, so that its times are simulated."""
        return self.config.pipeline is not None and self.config.pipeline.clock == "virtual"

    @property
    def name(self) -> str:
        """Short text of the setting, such as `gcn, async S=0 per_epoch`; the model if only seeds vary."""
        return self.named(self.setting or {"model.name": self.config.model.name})

    def named(self, setting: Setting) -> str:
        """Return a short text of a part of the run's setting, or the run's name if the part is empty."""
        if not setting:
            return self.name
        used = [(keys, label) for keys, label in self.labels if not setting.keys().isdisjoint(keys)]
        labelled = {key for keys, _ in used for key in keys}
        others = {key: value for key, value in setting.items() if key not in labelled}
        return ", ".join([*(label for _, label in used), *([short_name(others)] if others else [])])

    @property
    def label(self) -> str:
        """Name and seed, such as `gcn, async S=0 per_epoch, seed 0`."""
        return f"{self.name}, seed {self.config.train.seed}"


@final
@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """Outcome of one planned run.

    Attributes:
        status: "done" (ended normally), "failed", or "open" (not run, or stopped by a signal).
        summary: Content of summary.json; empty unless done, as the `environment` of environment.json.
        error: Last line of the traceback, including the line of user code that caused it, or the damage of the run
            directory; None unless failed.
    """

    run: Run
    status: Literal["done", "failed", "open"]
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str | None = None
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)


@final
@dataclasses.dataclass(frozen=True)
class Comparison:
    """Comparison of the variants of a sweep with a baseline.

    Attributes:
        keys: Keys in which compared runs differ. All other keys and the seed are equal.
        baseline: Values of these keys in the baseline.
        margin: Difference between the baseline's mean best validation accuracy and the target, as a fraction.
        target: Target validation accuracy as a fraction, or None to derive it from the baseline.
        over: Keys for additional averages over groups that differ in them.
        name: Name of the baseline of simulated runs, or None to show its values.
        stated: Whether the file sets the baseline. Otherwise it is the first value of the only axis.
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
        """Return whether a run belongs to the baseline."""
        return all(run.setting[key] == value for key, value in self.baseline.items())

    def group(self, run: Run) -> tuple[tuple[str, Any], ...]:
        """Return the values shared by compared runs, except the seed."""
        return tuple((key, value) for key, value in run.setting.items() if key not in self.keys)

    def pair(self, run: Run) -> tuple[tuple[tuple[str, Any], ...], int]:
        """Return the group and the seed, which are equal for runs compared with each other."""
        return self.group(run), run.config.train.seed


@final
@dataclasses.dataclass(frozen=True)
class Published:
    """Settings with numbers from a publication, keyed by measure (`measures.PUBLISHED`, `PUBLISHED_OF_TRAINED`)."""

    source: str
    points: tuple[tuple[Setting, Mapping[str, float]], ...]

    def of(self, setting: Setting) -> dict[str, float]:
        """Return the numbers of a setting. The last matching point takes precedence."""
        return {name: number for at, numbers in self.points if within(at, setting) for name, number in numbers.items()}


@final
@dataclasses.dataclass(frozen=True)
class Sweep:
    """All runs of a sweep file, in order, the seed varying fastest, with the texts for readers, which may be empty.

    Attributes:
        name: Name of the file without folder and suffix.
        axes: Varying keys, in order.
        text: Text of the file.
        parts: Sweeps of a combined sweep, each with its axes and comparison; empty for a plain sweep.
        file: Path of the file, or None if unknown.
    """

    name: str
    axes: tuple[str, ...]
    runs: tuple[Run, ...]
    description: str = ""
    comparison: Comparison | None = None
    text: str = ""
    published: Published | None = None
    parts: tuple[Sweep, ...] = ()
    title: str = ""
    question: str = ""
    file: Path | None = None

    @property
    def headline(self) -> str:
        """Title, or the name without one."""
        return self.title or self.name

    @property
    def simulated(self) -> bool:
        """Whether all runs are simulated."""
        return all(run.simulation is not None for run in self.runs)

    def with_parts(self, parts: Sequence[Sweep]) -> Sweep:
        """Return a copy that combines other sweeps and keeps its own texts."""
        axes = dict.fromkeys(key for part in parts for key in part.axes)
        runs = {run.key: run for part in reversed(parts) for run in part.runs}
        order = dict.fromkeys(run.key for part in parts for run in part.runs)
        return dataclasses.replace(self, axes=tuple(axes), runs=tuple(runs[key] for key in order), parts=tuple(parts))

    def unverified(self) -> Sweep:
        """Return a copy whose runs do not verify the checksums of their data."""
        runs = tuple(dataclasses.replace(run, config=run.config.unverified()) for run in self.runs)
        return dataclasses.replace(self, runs=runs, parts=tuple(part.unverified() for part in self.parts))


class Study(NamedTuple):
    """Sweep with one outcome per run, in the same order, and its folder, if it has one."""

    sweep: Sweep
    outcomes: Sequence[RunOutcome]
    folder: Path | None

    @property
    def parts(self) -> list[Study]:
        """Parts of a combined sweep, each with its runs. A plain sweep is its only part."""
        if not self.sweep.parts:
            return [self]
        outcomes = {one.run.key: one for one in self.outcomes}
        return [
            Study(part, [dataclasses.replace(outcomes[run.key], run=run) for run in part.runs], self.folder)
            for part in self.sweep.parts
        ]


def select(sweep: Sweep, conditions: Sequence[Condition]) -> Sweep:
    """Select the runs of a sweep that meet all conditions. Drops parts without such a run.

    Conditions are on varying keys, or `train.seed`, with values as in a file. Those on the same key are alternatives.

    Raises:
        ConfigError: A key does not vary, a value never occurs, or no run meets all conditions.
    """
    if not conditions:
        return sweep
    if sweep.parts:
        kept, errors = list[Sweep](), list[ConfigError]()
        for part in sweep.parts:
            try:
                kept.append(select(part, conditions))
            except ConfigError as error:
                errors.append(error)
        if not kept:
            raise errors[0]
        return sweep.with_parts(kept)
    varying = [{**run.setting, SEED: run.config.train.seed} for run in sweep.runs]
    wanted: dict[str, list[Any]] = {}
    for key, text in conditions:
        only = f"--only {key}={text}"
        if key not in varying[0]:
            near = did_you_mean(key, list(varying[0]))
            raise ConfigError(f"{only}: {key!r} does not vary in sweep {sweep.name}: {near}")
        values = list(dict.fromkeys(one[key] for one in varying))
        meant = [value for value in values if _means(text, value)]
        if not meant:
            raise ConfigError(f"{only}: in sweep {sweep.name} {key} is {', '.join(map(plain, values))}")
        wanted.setdefault(key, []).extend(meant)
    matches = (all(one[key] in chosen for key, chosen in wanted.items()) for one in varying)
    runs = tuple(itertools.compress(sweep.runs, matches))
    if not runs:
        raise ConfigError("--only: no run meets all of " + ", ".join(f"{key}={value}" for key, value in conditions))
    comparison = sweep.comparison
    if comparison is not None:
        bases = {comparison.group(run) for run in runs if comparison.is_baseline(run)}
        comparison = comparison if all(comparison.group(run) in bases for run in runs) else None
    return dataclasses.replace(sweep, runs=runs, comparison=comparison)


def _means(text: str, value: Any) -> bool:
    """Return whether text on the command line denotes a value by the rules of a file, such as `1e-2` for 0.01."""
    try:
        return text == value or same(scalar(text), value)
    except ConfigError:
        return False


def within(some: Setting, setting: Setting) -> bool:
    """Return whether `setting` contains all values of `some`."""
    return all(same(setting[key], value) for key, value in some.items())


def same(value: Any, other: Any) -> bool:
    """Return whether two values are equal in a file: 1 equals 1.0, but not true."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
