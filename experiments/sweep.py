"""Sweeps: which runs they are, and which are compared. Pure; files are `sweep_file`'s, running them is `runner`'s."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from dorylax.config import ConfigError, RunConfig
from dorylax.experiments.names import short_name
from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import shown
from dorylax.settings.strict_yaml import scalar
from dorylax.simulation.settings import Simulation

CONFIGS = Path(__file__).resolve().parent / "configs"
"""Where the sweeps that ship are."""

SEED = "train.seed"
"""The key that `seeds` sets."""

ASKED = ("time", "epochs", "cost", "accuracy")
"""What a comparison may ask: whether others than the baseline need less of it to the target, or are as accurate."""

ASKED_OF_SIMULATED = ("time", "cost", "value")
"""The same of simulated runs: time of an epoch, cost of a run, or whether they have more value."""

Setting = Mapping[str, Any]
Condition = tuple[str, str]
"""A key and the value that it must have, as text."""


@final
@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
        config: what to run.
        setting: the keys that vary with this run's values; runs that differ only in the seed share it.
        simulation: what else is said of a run that is simulated, without numbers; None: it trains.
        labels: Names that the file gives to values, each with the keys whose values it names.
    """

    config: RunConfig
    setting: Setting
    simulation: Simulation | None = None
    labels: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def key(self) -> str:
        """The identity of the run, and the name of its directory."""
        if self.simulation is None:
            return self.config.key()
        text = json.dumps([self.config.canonical_json(), self.simulation.identity()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def dotted(self) -> dict[str, Any]:
        """All that describes it, by dotted key: its configuration, and its simulation."""
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
        """The setting in a few words: `gcn, async S=0 per_epoch`; where nothing varies, the model."""
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
        """The run in words: `gcn, async S=0 per_epoch, seed 0`."""
        return f"{self.name}, seed {self.config.train.seed}"


@final
@dataclasses.dataclass(frozen=True)
class Axis:
    """Keys whose values go together; a single one for a key of the grid.

    Attributes:
        keys: one or more.
        points: a value for each key.
        labels: A name for each point, or empty.
    """

    keys: tuple[str, ...]
    points: tuple[tuple[Any, ...], ...]
    labels: tuple[str, ...] = ()


@final
@dataclasses.dataclass(frozen=True)
class Comparison:
    """Which runs the others are compared with.

    Attributes:
        keys: those in which runs that are compared differ; in all others, the seed among them, they are equal.
        baseline: the values of these keys in the runs that the others are compared with.
        margin: how far the target lies under the baseline's mean best validation accuracy; a fraction.
        target: of validation accuracy, a fraction; None where it follows from the baseline.
        over: keys over which ratios and differences are averaged too.
        asks: what is asked of the others, one of `ASKED`.
        name: what the baseline of simulated runs is called; None: by its values.
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
        """Whether others are compared with this run."""
        return all(run.setting[key] == value for key, value in self.baseline.items())

    def group(self, run: Run) -> tuple[tuple[str, Any], ...]:
        """What runs that are compared have in common besides the seed."""
        return tuple((key, value) for key, value in run.setting.items() if key not in self.keys)


@final
@dataclasses.dataclass(frozen=True)
class Published:
    """Numbers of others, beside which those of a sweep are shown.

    Attributes:
        source: where they stand.
        points: which runs they are of, by keys that vary, and the numbers by name (`measures.PUBLISHED`, or
            `PUBLISHED_OF_TRAINED`).
    """

    source: str
    points: tuple[tuple[Setting, Mapping[str, float]], ...]

    def of(self, setting: Setting) -> dict[str, float]:
        """What was published of runs of a setting; of several points with the same number the last one's."""
        return {name: number for at, numbers in self.points if within(at, setting) for name, number in numbers.items()}


@final
@dataclasses.dataclass(frozen=True)
class Sweep:
    """All runs of a sweep file, in order.

    Attributes:
        name: of the file, without folder and suffix.
        description: what the file says it is for; may be empty.
        axes: the keys that vary, in order.
        runs: the runs, seeds fastest.
        comparison: which are compared; None where none are.
        text: of the file.
        published: what others have published of these runs; None where nothing is.
        parts: the sweeps of which it consists, if its file says so: each has its own axes, comparison and section in the
            report, and `runs` are those of all, each once.
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
        """Whether all its runs are simulated."""
        return all(run.simulation is not None for run in self.runs)

    @classmethod
    def of_parts(cls, parts: Sequence[Sweep], **texts: Any) -> Sweep:
        """A sweep that consists of others; `texts` are its name, description, title and question."""
        axes = dict.fromkeys(key for part in parts for key in part.axes)
        runs = {run.key: run for part in reversed(parts) for run in part.runs}
        order = dict.fromkeys(run.key for part in parts for run in part.runs)
        return cls(axes=tuple(axes), runs=tuple(runs[key] for key in order), parts=tuple(parts), **texts)

    def unverified(self) -> Sweep:
        """The same runs, on data that are not compared with their checksums."""
        runs = tuple(dataclasses.replace(run, config=run.config.unverified()) for run in self.runs)
        return dataclasses.replace(self, runs=runs, parts=tuple(part.unverified() for part in self.parts))


def select(sweep: Sweep, conditions: Sequence[Condition]) -> Sweep:
    """Only the runs of a sweep that meet all conditions.

    Args:
        sweep: the whole.
        conditions: a key that varies, or `train.seed`, and the value that it must have, as in a file; conditions on the same
            key are alternatives.

    Raises:
        ConfigError: a key that does not vary, or a value that it never takes, or no run meets them all.
    """
    if not conditions:
        return sweep
    if sweep.parts:
        return _select_of_parts(sweep, conditions)
    values: dict[str, list[Any]] = {key: [] for key in (*sweep.axes, SEED)}
    for run in sweep.runs:
        for key, value in _varying(run).items():
            if value not in values[key]:
                values[key].append(value)
    wanted: dict[str, list[Any]] = {}
    for key, text in conditions:
        if key not in values:
            raise ConfigError(
                f"--only {key}={text}: {key!r} does not vary in sweep {sweep.name}: {did_you_mean(key, list(values))}"
            )
        meant = [value for value in values[key] if _means(text, value)]
        if not meant:
            listed = ", ".join(value if isinstance(value, str) else shown(value) for value in values[key])
            raise ConfigError(f"--only {key}={text}: in sweep {sweep.name} {key} is {listed}")
        wanted.setdefault(key, []).extend(meant)
    runs = [run for run in sweep.runs if all(_varying(run)[key] in chosen for key, chosen in wanted.items())]
    if not runs:
        raise ConfigError("--only: no run meets all of " + ", ".join(f"{key}={value}" for key, value in conditions))
    comparison = sweep.comparison
    if comparison is not None and not all(_has_baseline(run, runs, comparison) for run in runs):
        comparison = None
    return dataclasses.replace(sweep, runs=tuple(runs), comparison=comparison)


def _select_of_parts(sweep: Sweep, conditions: Sequence[Condition]) -> Sweep:
    """The same of a sweep that consists of others: without those of which no run meets all conditions."""
    kept: list[Sweep] = []
    errors: list[ConfigError] = []
    for part in sweep.parts:
        try:
            kept.append(select(part, conditions))
        except ConfigError as error:
            errors.append(error)
    if not kept:
        raise errors[0]
    texts = {name: getattr(sweep, name) for name in ("name", "description", "title", "question", "text", "file")}
    return Sweep.of_parts(kept, **texts)


def _varying(run: Run) -> dict[str, Any]:
    """What distinguishes a run."""
    return {**run.setting, SEED: run.config.train.seed}


def _means(text: str, value: Any) -> bool:
    """Whether text on the command line is a value, by the rules of a file: `1e-2` is 0.01."""
    if text == value:
        return True
    try:
        return same(scalar(text), value)
    except ConfigError:
        return False


def _has_baseline(run: Run, runs: Sequence[Run], comparison: Comparison) -> bool:
    return any(comparison.is_baseline(one) and comparison.group(one) == comparison.group(run) for one in runs)


def within(some: Setting, setting: Setting) -> bool:
    """Whether a setting has all these values."""
    return all(same(setting[key], value) for key, value in some.items())


def same(value: Any, other: Any) -> bool:
    """Whether two values of a file mean the same; 1 and 1.0 do, 1 and true do not."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
