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
    """Refuse a key that does not vary, or a value that it never has.

    Raises:
        ConfigError: As said; names file and line.
    """
    if key not in values:
        raise document.error(f"{shown(key)} does not vary here: {did_you_mean(key, list(values))}", *path)
    if not any(same(value, one) for one in values[key]):
        listed = ", ".join(shown(one) for one in values[key])
        raise document.error(f"{key} is never {shown(value)} here, but {listed}", *path)


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
    """Read the part `compare`.

    Args:
        document: The sweep.
        axes: Its axes.
        runs: Its runs.
        simulate: Whether they are simulated.

    Raises:
        ConfigError: It has another form, or a run has not exactly one baseline; names file and line.
    """
    content = document.value["compare"]
    if not isinstance(content, dict) or "baseline" not in content:
        raise document.error("compare must hold a baseline, as in `baseline: {pipeline.mode: pipe}`", "compare")
    known = _COMPARE_SIMULATED if simulate else _COMPARE
    for key in content:
        if simulate and key in set(_COMPARE) - set(known):
            trains = f"{key} is of runs that train, and these are simulated: leave it out"
            raise document.error(trains, "compare", key)
        if key not in known:
            raise document.error(f"unknown part {key!r} of compare: {did_you_mean(key, known)}", "compare", key)
    if (name := content.get("name")) is not None and (not isinstance(name, str) or not name):
        raise document.error(f"name must be text, got {shown(name)}", "compare", "name")
    allowed = [name for name, one in QUESTIONS.items() if (one.simulated if simulate else one.measure) is not None]
    asks = content.get("asks", "time")
    if asks not in allowed:
        raise document.error(f"asks must be {' or '.join(allowed)}, got {shown(asks)}", "compare", "asks")
    if not axes:
        raise document.error("compare needs a grid or a zip: only seeds vary here", "compare")
    baseline, values = content["baseline"], values_of(axes)
    if not isinstance(baseline, dict) or not baseline:
        empty = f"baseline must hold at least one key with its value, got {shown(baseline)}"
        raise document.error(empty, "compare", "baseline")
    for key, value in baseline.items():
        known_value(document, key, value, values, "compare", "baseline", key)
    for part in ("target", "margin"):
        if (value := content.get(part)) is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise document.error(f"{part} must be > 0 and < 1, got {shown(value)}", "compare", part)
    target, margin = content.get("target"), content.get("margin")
    if target is not None and margin is not None:
        raise document.error("target and margin exclude each other: give one", "compare", "margin")
    compared = tuple(key for axis in axes if not baseline.keys().isdisjoint(axis[0][0]) for key in axis[0][0])
    over, others = content.get("over", []), [key for key in values if key not in compared]
    if not isinstance(over, list) or not all(isinstance(key, str) for key in over):
        raise document.error(f"over must be a list of keys such as `[data.name]`, got {shown(over)}", "compare", "over")
    for key in over:
        if key not in others:
            listed = f"those are {', '.join(others)}" if others else "there is none"
            wrong = f"over lists keys that vary between what is compared, got {key}: {listed}"
            raise document.error(wrong, "compare", "over")
    found = Comparison(compared, baseline, _MARGIN if margin is None else margin, target, tuple(over), name, asks)
    baselines: dict[Any, Run] = {}
    for run in runs:
        if found.is_baseline(run) and (other := baselines.setdefault(found.pair(run), run)) is not run:
            both = f"both ({other.label}) and ({run.label}) are the baseline: name one"
            raise document.error(both, "compare", "baseline")
    for run in runs:
        if found.pair(run) not in baselines:
            raise document.error(f"({run.label}) has no run to be compared with", "compare", "baseline")
    return found


def published_of(document: Document, axes: Sequence[Axis], runs: Sequence[Run], *, simulate: bool) -> Published:
    """Read the part `published`: published numbers, each with the runs that it belongs to; arguments as `comparison_of`.

    Raises:
        ConfigError: It has another form, a key does not vary, or a point has no run; names file and line.
    """
    content, known = document.value["published"], PUBLISHED if simulate else PUBLISHED_OF_TRAINED
    example = f"`{{source: …, points: [{{at: {{pipeline.mode: async}}, {known[0]}: 0.7}}]}}`"
    if not isinstance(content, dict) or content.keys() != {"source", "points"}:
        wrong = f"published must hold source and points, as in {example}, got {shown(content)}"
        raise document.error(wrong, "published")
    source, points = content["source"], content["points"]
    if not isinstance(source, str) or not source:
        raise document.error(f"source must be text, got {shown(source)}", "published", "source")
    if not isinstance(points, list) or not points:
        raise document.error(f"points must be a list, got {shown(points)}", "published", "points")
    keys, found = list(values_of(axes)), []
    for index, point in enumerate(points):
        inside = ("published", "points", index)
        if not isinstance(point, dict) or not isinstance(point.get("at"), dict) or len(point) < 2:
            raise document.error(f"a point is as in {example}, got {shown(point)}", *inside)
        at, numbers = point["at"], {name: number for name, number in point.items() if name != "at"}
        for key in at:
            if key not in keys:
                raise document.error(f"{key} does not vary: {did_you_mean(key, keys)}", *inside, "at", key)
        for name, number in numbers.items():
            if problem := _problem(name, number, known, compared="compare" in document.value):
                raise document.error(f"{name} {problem}", *inside, name)
        if not any(within(at, run.setting) for run in runs):
            raise document.error(f"no run is at {shown(at)}", *inside)
        found.append((dict(at), {name: float(number) for name, number in numbers.items()}))
    return Published(source, tuple(found))


def _problem(name: Any, number: Any, known: Sequence[str], *, compared: bool) -> str | None:
    if name not in known:
        if name in PUBLISHED:
            return f"is of simulations, and these runs train: {did_you_mean(name, known)}"
        gives = "a simulation gives" if known is PUBLISHED else "training is compared by"
        return f"is nothing that {gives}: {did_you_mean(name, known)}"
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        return f"must be a number ≥ 0, got {shown(number)}"
    if name.endswith(RATIO) and not compared:
        return "is relative to a baseline: add `compare: {baseline: …}`"
    return None
