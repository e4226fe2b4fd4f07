"""The parts `compare` and `published` of a sweep file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from dorylax.experiments.measures import PUBLISHED, PUBLISHED_OF_TRAINED, QUESTIONS, RATIO
from dorylax.experiments.sweep import Comparison, Published, Run, Setting, same, within
from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import shown
from dorylax.settings.strict_yaml import Document

Axis: TypeAlias = Sequence[tuple[Setting, str]]
"""One key of the grid, or the keys of a zip block: settings of the same keys, each with its label, which may be empty."""

_COMPARE = ("baseline", "asks", "margin", "target", "over")
_COMPARE_SIMULATED = ("baseline", "asks", "name")
_MARGIN = 0.01


def values_of(axes: Sequence[Axis]) -> dict[str, list[Any]]:
    """Return the values of each key that varies."""
    return {key: list(dict.fromkeys(point[key] for point, _ in axis)) for axis in axes for key in axis[0][0]}


def known_value(document: Document, key: Any, value: Any, values: Mapping[str, list[Any]], *path: str | int) -> None:
    """Refuse a key that does not vary, or a value that it never has."""
    unknown = f"{shown(key)} does not vary here: {did_you_mean(key, list(values))}"
    document.need(key in values, unknown, *path)
    never = f"{key} is never {shown(value)} here, but {', '.join(map(shown, values[key]))}"
    document.need(any(same(value, one) for one in values[key]), never, *path)


def implied(axes: Sequence[Axis], runs: Sequence[Run]) -> Comparison | None:
    """The comparison of a file without one: a single axis is compared with its first value."""
    if len(axes) != 1 or len(axes[0]) < 2:
        return None
    timed = all(run.virtual or run.simulation is not None for run in runs)
    baseline, _ = axes[0][0]
    found = Comparison(tuple(baseline), baseline, _MARGIN, None, asks="time" if timed else "accuracy", stated=False)
    seeds = {run.config.train.seed for run in runs if found.is_baseline(run)}
    return found if all(run.config.train.seed in seeds for run in runs) else None


def comparison_of(document: Document, axes: Sequence[Axis], runs: Sequence[Run], *, simulate: bool) -> Comparison:
    """Read the part `compare` of a sweep with these axes and runs, which it may `simulate`.

    Raises:
        ConfigError: The part has another form, or a run has not exactly one baseline; names file and line.
    """

    def need(good: object, problem: str, *inside: str | int) -> None:
        document.need(good, problem, "compare", *inside)

    content = document.value["compare"]
    hint = "compare must hold a baseline, as in `baseline: {pipeline.mode: pipe}`"
    need(isinstance(content, dict) and "baseline" in content, hint)
    known = _COMPARE_SIMULATED if simulate else _COMPARE
    for key in content:
        trains = f"{key} is of runs that train, and these are simulated: leave it out"
        need(not simulate or key not in set(_COMPARE) - set(known), trains, key)
        need(key in known, f"unknown part {key!r} of compare: {did_you_mean(key, known)}", key)
    name, asks, over = content.get("name"), content.get("asks", "time"), content.get("over", [])
    need(name is None or (isinstance(name, str) and name), f"name must be text, got {shown(name)}", "name")
    allowed = [name for name, one in QUESTIONS.items() if (one.simulated if simulate else one.measure) is not None]
    need(asks in allowed, f"asks must be {' or '.join(allowed)}, got {shown(asks)}", "asks")
    need(axes, "compare needs a grid or a zip: only seeds vary here")
    baseline, values = content["baseline"], values_of(axes)
    empty = f"baseline must hold at least one key with its value, got {shown(baseline)}"
    need(isinstance(baseline, dict) and baseline, empty, "baseline")
    for key, value in baseline.items():
        known_value(document, key, value, values, "compare", "baseline", key)
    target, margin = content.get("target"), content.get("margin")
    for part, value in (("target", target), ("margin", margin)):
        number = value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1)
        need(number, f"{part} must be > 0 and < 1, got {shown(value)}", part)
    need(target is None or margin is None, "target and margin exclude each other: give one", "margin")
    compared = tuple(key for axis in axes if not baseline.keys().isdisjoint(axis[0][0]) for key in axis[0][0])
    others = [key for key in values if key not in compared]
    keys = isinstance(over, list) and all(isinstance(key, str) for key in over)
    need(keys, f"over must be a list of keys such as `[data.name]`, got {shown(over)}", "over")
    for key in over:
        listed = f"those are {', '.join(others)}" if others else "there is none"
        need(key in others, f"over lists keys that vary between what is compared, got {key}: {listed}", "over")
    found = Comparison(compared, baseline, _MARGIN if margin is None else margin, target, tuple(over), name, asks)
    baselines: dict[Any, Run] = {}
    for run in filter(found.is_baseline, runs):
        other = baselines.setdefault(found.pair(run), run)
        need(other is run, f"both ({other.label}) and ({run.label}) are the baseline: name one", "baseline")
    for run in runs:
        need(found.pair(run) in baselines, f"({run.label}) has no run to be compared with", "baseline")
    return found


def published_of(document: Document, axes: Sequence[Axis], runs: Sequence[Run], *, simulate: bool) -> Published:
    """Read the part `published`: published numbers, each with the runs that it belongs to; arguments as `comparison_of`.

    Raises:
        ConfigError: The part has another form, a key does not vary, or a point has no run; names file and line.
    """

    def need(good: object, problem: str, *inside: str | int) -> None:
        document.need(good, problem, "published", *inside)

    content, known = document.value["published"], PUBLISHED if simulate else PUBLISHED_OF_TRAINED
    example = f"`{{source: …, points: [{{at: {{pipeline.mode: async}}, {known[0]}: 0.7}}]}}`"
    wrong = f"published must hold source and points, as in {example}, got {shown(content)}"
    need(isinstance(content, dict) and content.keys() == {"source", "points"}, wrong)
    source, points = content["source"], content["points"]
    need(isinstance(source, str) and source, f"source must be text, got {shown(source)}", "source")
    need(isinstance(points, list) and points, f"points must be a list, got {shown(points)}", "points")
    keys, found = list(values_of(axes)), []
    for index, point in enumerate(points):
        inside = ("points", index)
        form = isinstance(point, dict) and isinstance(point.get("at"), dict) and len(point) > 1
        need(form, f"a point is as in {example}, got {shown(point)}", *inside)
        at, numbers = point["at"], {name: number for name, number in point.items() if name != "at"}
        for key in at:
            need(key in keys, f"{key} does not vary: {did_you_mean(key, keys)}", *inside, "at", key)
        for name, number in numbers.items():
            near = did_you_mean(name, known)
            foreign = name in PUBLISHED and name not in known
            need(not foreign, f"{name} is of simulations, and these runs train: {near}", *inside, name)
            gives = "a simulation gives" if simulate else "training is compared by"
            need(name in known, f"{name} is nothing that {gives}: {near}", *inside, name)
            good = isinstance(number, int | float) and not isinstance(number, bool) and number >= 0
            need(good, f"{name} must be a number ≥ 0, got {shown(number)}", *inside, name)
            alone = name.endswith(RATIO) and "compare" not in document.value
            need(not alone, f"{name} is relative to a baseline: add `compare: {{baseline: …}}`", *inside, name)
        need(any(within(at, run.setting) for run in runs), f"no run is at {shown(at)}", *inside)
        found.append((dict(at), {name: float(number) for name, number in numbers.items()}))
    return Published(source, tuple(found))
