"""The part `published` of a sweep file: published numbers, each with the runs that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.config import ConfigError
from dorylax.experiments.measures import PUBLISHED, PUBLISHED_OF_TRAINED, RATIO
from dorylax.experiments.sweep import Axis, Published, Run, within
from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import shown
from dorylax.settings.strict_yaml import Document


def published_of(
    document: Document, axes: Sequence[Axis], runs: Sequence[Run], *, compared: bool, simulate: bool
) -> Published:
    """Read the part `published`.

    Args:
        document: The sweep.
        axes: Its axes.
        runs: Its runs.
        compared: Whether it names a baseline.
        simulate: Whether its runs are simulated.

    Raises:
        ConfigError: It has another form, a key does not vary, or a point has no run; names file and line.
    """
    content, place = document.value["published"], document.where("published")
    known = PUBLISHED if simulate else PUBLISHED_OF_TRAINED
    example = f"`{{source: …, points: [{{at: {{pipeline.mode: async}}, {known[0]}: 0.7}}]}}`"
    if not isinstance(content, dict) or content.keys() != {"source", "points"}:
        raise ConfigError(f"{place}: published must hold source and points, as in {example}, got {shown(content)}")
    source, points = content["source"], content["points"]
    if not isinstance(source, str) or not source:
        raise ConfigError(f"{document.where('published', 'source')}: source must be text, got {shown(source)}")
    if not isinstance(points, list) or not points:
        raise ConfigError(f"{document.where('published', 'points')}: points must be a list, got {shown(points)}")
    keys, found = [key for axis in axes for key in axis.keys], []
    for index, point in enumerate(points):
        inside = ("published", "points", index)
        if not isinstance(point, dict) or not isinstance(point.get("at"), dict) or len(point) < 2:
            raise ConfigError(f"{document.where(*inside)}: a point is as in {example}, got {shown(point)}")
        at, numbers = dict(point["at"]), {name: number for name, number in point.items() if name != "at"}
        for key in at:
            if key not in keys:
                place = document.where(*inside, "at", key)
                raise ConfigError(f"{place}: {key} does not vary: {did_you_mean(key, keys)}")
        for name, number in numbers.items():
            _check(document.where(*inside, name), name, number, known, compared=compared)
        if not any(within(at, run.setting) for run in runs):
            raise ConfigError(f"{document.where(*inside)}: no run is at {shown(at)}")
        found.append((at, {name: float(number) for name, number in numbers.items()}))
    return Published(source, tuple(found))


def _check(place: str, name: Any, number: Any, known: Sequence[str], *, compared: bool) -> None:
    if name not in known:
        if name in PUBLISHED:
            raise ConfigError(f"{place}: {name} is of simulations, and these runs train: {did_you_mean(name, known)}")
        gives = "a simulation gives" if known is PUBLISHED else "training is compared by"
        raise ConfigError(f"{place}: {name} is nothing that {gives}: {did_you_mean(name, known)}")
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise ConfigError(f"{place}: {name} must be a number ≥ 0, got {shown(number)}")
    if name.endswith(RATIO) and not compared:
        raise ConfigError(f"{place}: {name} is relative to a baseline: add `compare: {{baseline: …}}`")
