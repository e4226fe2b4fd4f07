"""Reads sweep files and expands them to runs.

    title: Bounded staleness                    # optional: the report's headline,
    question: Does it pay?                      # the question that its first sentence answers,
    description: details                        # and what else readers should know
    base: {train.epochs: 50}                    # keys that all runs share
    grid: {model.name: [gcn, gat]}              # every combination of these, the last key fastest
    zip:                                        # keys whose values go together: the first of each, the second of each, …
      pipeline.mode: [pipe, async, async]
      pipeline.staleness: [null, 0, 1]
      label: [synchronous, S = 0, S = 1]        # optional names for reports
    exclude: [{model.name: gat, pipeline.mode: async}]
    seeds: 3                                    # 0, 1, 2; or a list. Without grid and zip: one setting over these
    compare: {baseline: {pipeline.mode: pipe}}  # the others are reported relative to these, seed by seed; with
                                                # `asks: cost` says what the report's first sentence answers

    simulate: true                              # simulates the runs instead of training
    published: {source: …, points: [{at: {…}, dollars: 0.7}]}   # published numbers to show beside ours
    parts: {one: {grid: …}, other: {zip: …}}    # several sweeps; their base adds to that of the file

Everything is checked before anything runs, and each error names file and line.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dorylax.config import ConfigError
from dorylax.config.check import check_value
from dorylax.experiments.sweep import ASKED, ASKED_OF_SIMULATED, SEED, Axis, Comparison, Run, Setting, Sweep, same
from dorylax.experiments.sweep_keys import Keys
from dorylax.experiments.sweep_parts import parts_of
from dorylax.experiments.sweep_published import published_of
from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import shown
from dorylax.settings.strict_yaml import Document, dump, parse
from dorylax.settings.text_file import read_text
from dorylax.user_code.trust import FolderCode

_TEXTS = ("title", "question", "description")
_PARTS = (*_TEXTS, "simulate", "base", "grid", "zip", "exclude", "seeds", "compare", "published")
_WITH_PARTS = (*_TEXTS, "simulate", "base", "seeds", "parts")
_COMPARE = ("baseline", "asks", "margin", "target", "over")
_COMPARE_SIMULATED = ("baseline", "asks", "name")
_LABEL = "label"
_MARGIN = 0.01


def load(path: Path) -> Sweep:
    """Read and expand a sweep file.

    Raises:
        ConfigError: The file cannot be read, or is wrong (`expand`).
        OSError: The machine fails to read it.
    """
    return dataclasses.replace(read(read_text(path), str(path), path.stem), file=path)


def read(text: str, source: str, name: str, code: FolderCode | None = None) -> Sweep:
    """Expand the text of a sweep file; `source` is its name in errors. Other arguments and errors as `expand`."""
    return dataclasses.replace(expand(parse(text, source), name, code), text=text)


def one_setting(name: str, given: Mapping[str, Any], seeds: Sequence[int], code: FolderCode | None = None) -> Sweep:
    """The sweep of one configuration over seeds.

    Args:
        name: Name of the sweep.
        given: Dotted keys of the configuration; `train.seed` is ignored.
        seeds: Seeds of its runs.
        code: As for `expand`.

    Raises:
        ConfigError: A seed or the configuration is wrong.
    """
    base = {key: value for key, value in given.items() if key != SEED}
    text = dump({"base": base, "seeds": list(seeds)})
    return read(text, name, name, code)


def expand(document: Document, name: str, code: FolderCode | None = None) -> Sweep:
    """Expand a sweep file to its runs.

    Args:
        document: The file.
        name: Name of the sweep.
        code: Records of a folder about user code, if the file comes from one (`RunConfig.resolve`).

    Raises:
        ConfigError: Anything in the file is wrong; names file, line, value and the allowed values.
    """
    content = document.value
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"{document.where()}: a sweep has the parts {', '.join(_PARTS)}, got {shown(content)}")
    known = _WITH_PARTS if "parts" in content else (*_PARTS, "parts")
    for part in content:
        if part not in known:
            raise ConfigError(f"{document.where(part)}: unknown part {part!r} of a sweep: {did_you_mean(part, known)}")
    texts: dict[str, Any] = {"name": name}
    for part in _TEXTS:
        if not isinstance(text := content.get(part, ""), str):
            raise ConfigError(f"{document.where(part)}: {part} must be text, got {shown(text)}")
        texts[part] = " ".join(text.split())
    if "parts" in content:
        parts = [expand(part, title, code) for title, part in parts_of(document)]
        for part in parts:
            if (
                not part.axes and not part.simulated
            ):  # its runs would be told apart by seeds alone, which others have too
                raise ConfigError(f"{document.where('parts', part.name)}: {part.name} needs a grid or a zip")
        return Sweep.of_parts(parts, **texts)
    keys_of = _keys(document, content.get("simulate", False), code)
    base = _base(document, content.get("base", {}), keys_of)
    axes = _axes(document, content, base, keys_of)
    seeds = _seeds(document, content.get("seeds", [base.get(SEED, 0)]), base)
    keys = tuple(key for axis in axes for key in axis.keys)
    exclusions = _exclusions(document, content.get("exclude", []), axes, seeds)

    runs: dict[str, Run] = {}
    hits = [0] * len(exclusions)
    for places in itertools.product(*(range(len(axis.points)) for axis in axes)):
        setting: dict[str, Any] = {}
        labels: list[tuple[tuple[str, ...], str]] = []
        for axis, place in zip(axes, places, strict=True):
            setting |= dict(zip(axis.keys, axis.points[place], strict=True))
            labels += [(axis.keys, axis.labels[place])] if axis.labels else []
        for seed in seeds:
            excluded = [k for k, one in enumerate(exclusions) if _matches(one, {**setting, SEED: seed})]
            for k in excluded:
                hits[k] += 1
            if excluded:
                continue
            run = dataclasses.replace(_resolved(document, base, setting, seed, keys_of), labels=tuple(labels))
            if run.key in runs:
                raise ConfigError(
                    f"{document.where(_home(content, keys[-1])[0])}: ({run.label}) is the same run as "
                    f"({runs[run.key].label}): remove one"
                )
            runs[run.key] = run
    for k, count in enumerate(hits):
        if not count:
            raise ConfigError(f"{document.where('exclude', k)}: excludes no run: {shown(content['exclude'][k])}")
    if not runs:
        raise ConfigError(f"{document.where('exclude')}: every run is excluded")
    made = list(runs.values())
    comparison = _implied(axes, made)
    if "compare" in content:
        comparison = _comparison(document, content["compare"], axes, made, simulate=keys_of.simulate)
    published = None
    if "published" in content:
        published = published_of(document, axes, made, compared="compare" in content, simulate=keys_of.simulate)
    return Sweep(axes=keys, runs=tuple(made), comparison=comparison, published=published, **texts)


def _base(document: Document, content: Any, keys_of: Keys) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ConfigError(f"{document.where('base')}: base must hold keys such as train.epochs, got {shown(content)}")
    return keys_of.read(document, content, ("base",))


def _keys(document: Document, simulate: Any, code: FolderCode | None) -> Keys:
    if not isinstance(simulate, bool):
        raise ConfigError(f"{document.where('simulate')}: simulate must be true or false, got {shown(simulate)}")
    return Keys(simulate, code)


# Axes.


def _axes(document: Document, content: Mapping[str, Any], base: Mapping[str, Any], keys_of: Keys) -> list[Axis]:
    """The axes of the grid, then those of zip; none if only seeds vary."""
    if ("seeds" in content or keys_of.simulate) and "grid" not in content and "zip" not in content:
        return []
    grid = content.get("grid")
    if not isinstance(grid, dict) or not grid:
        if "zip" not in content or grid is not None:
            got = "nothing" if grid in (None, {}) else shown(grid)
            raise ConfigError(
                f"{document.where('grid')}: grid must hold at least one key with a list of values, "
                f"as in `model.name: [gcn, gat]`, got {got}"
            )
        grid = {}
    taken = {**dict.fromkeys(base, "base")}
    axes = []
    for key, values in grid.items():
        _check_axis_key(document, ("grid", key), key, taken, keys_of)
        _check_values(document, ("grid", key), key, values, keys_of)
        for index, value in enumerate(values):
            if value in values[:index]:
                raise ConfigError(f"{document.where('grid', key, index)}: {key} lists {shown(value)} twice")
        axes.append(Axis((key,), tuple((value,) for value in values)))
    if "zip" in content:
        blocks = content["zip"] if isinstance(content["zip"], list) else [content["zip"]]
        for index, block in enumerate(blocks):
            path = ("zip", index) if isinstance(content["zip"], list) else ("zip",)
            axes.append(_zipped(document, path, block, taken, keys_of))
        if not blocks:
            raise ConfigError(f"{document.where('zip')}: zip must hold keys with lists of values, got []")
    return axes


def _zipped(document: Document, path: tuple[str | int, ...], block: Any, taken: dict[str, str], keys_of: Keys) -> Axis:
    if not isinstance(block, dict) or not block:
        raise ConfigError(
            f"{document.where(*path)}: zip must hold keys with lists of values that go together, "
            f"as in `pipeline.mode: [pipe, async]`, got {shown(block)}"
        )
    for key, values in block.items():
        if key == _LABEL:
            _check_labels(document.where(*path, key), values)
            continue
        _check_axis_key(document, (*path, key), key, taken, keys_of)
        _check_values(document, (*path, key), key, values, keys_of)
    keys = tuple(key for key in block if key != _LABEL)
    if not keys:
        raise ConfigError(f"{document.where(*path, _LABEL)}: label names values of other keys: add one to this block")
    first, others = keys[0], [key for key in block if key != keys[0]]
    for key in others:
        if len(block[key]) != len(block[first]):
            raise ConfigError(
                f"{document.where(*path, key)}: values of zip go together, but {first} lists {len(block[first])} "
                f"and {key} lists {len(block[key])}"
            )
    points = list(zip(*(block[key] for key in keys), strict=True))
    for index, point in enumerate(points):
        if point in points[:index]:
            raise ConfigError(f"{document.where(*path, first, index)}: zip lists {shown(list(point))} twice")
    return Axis(keys, tuple(points), tuple(block.get(_LABEL, ())))


def _check_labels(place: str, labels: Any) -> None:
    """Check that labels are distinct names."""
    if not isinstance(labels, list) or not all(isinstance(one, str) and one for one in labels):
        raise ConfigError(f"{place}: label must be a list of names, one for each value, got {shown(labels)}")
    if twice := [one for place, one in enumerate(labels) if one in labels[:place]]:
        raise ConfigError(f"{place}: label lists {shown(twice[0])} twice")


def _check_axis_key(
    document: Document, path: tuple[str | int, ...], key: Any, taken: dict[str, str], keys_of: Keys
) -> None:
    """Check that a key may vary, and does so in one place."""
    place, part = document.where(*path), str(path[0])
    keys_of.check_key(place, key)
    if key == SEED:
        raise ConfigError(f"{place}: {SEED} is not for the {part}: list seeds under `seeds`")
    if (other := taken.get(key)) is not None:
        twice = "in two blocks of zip" if other == part else f"in {other} and in {part}"
        raise ConfigError(f"{place}: {key} is {twice}: take it out of one")
    taken[key] = part


def _check_values(document: Document, path: tuple[str | int, ...], key: str, values: Any, keys_of: Keys) -> None:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{document.where(*path)}: {key} must have a list of at least one value, got {shown(values)}")
    for index, value in enumerate(values):
        try:
            keys_of.check_value(key, value)
        except ConfigError as error:
            raise ConfigError(f"{document.where(*path, index)}: {error}") from None


# Seeds, and what is left out.


def _seeds(document: Document, content: Any, base: Mapping[str, Any]) -> list[int]:
    place = document.where("seeds")
    if SEED in base and place != document.where():
        raise ConfigError(f"{place}: seeds and {SEED} in base exclude each other: remove one")
    if isinstance(content, int) and not isinstance(content, bool) and content >= 1:
        return list(range(content))
    if not isinstance(content, list) or not content:
        raise ConfigError(f"{place}: seeds must be a whole number ≥ 1 or a list of seeds, got {shown(content)}")
    for index, seed in enumerate(content):
        place = document.where("seeds", index)
        try:
            check_value(SEED, seed)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        if seed in content[:index]:
            raise ConfigError(f"{place}: seeds lists {seed} twice")
    return content


def _exclusions(
    document: Document, content: Any, axes: Sequence[Axis], seeds: Sequence[int]
) -> list[dict[str, list[Any]]]:
    """Keys and values of each exclusion."""
    if not isinstance(content, list) or not all(isinstance(entry, dict) and entry for entry in content):
        raise ConfigError(
            f"{document.where('exclude')}: exclude must be a list of settings such as `{{model.name: gat}}`, "
            f"got {shown(content)}"
        )
    values = _values(axes) | {SEED: list(seeds)}
    found = []
    for index, entry in enumerate(content):
        for key, given in entry.items():
            for value in given if isinstance(given, list) else [given]:
                _check_known(document.where("exclude", index, key), key, value, values)
        found.append({key: given if isinstance(given, list) else [given] for key, given in entry.items()})
    return found


def _matches(exclusion: Mapping[str, list[Any]], setting: Setting) -> bool:
    return all(setting[key] in values for key, values in exclusion.items())


def _values(axes: Sequence[Axis]) -> dict[str, list[Any]]:
    """The values of each key."""
    return {
        key: list(dict.fromkeys(point[k] for point in axis.points)) for axis in axes for k, key in enumerate(axis.keys)
    }


def _check_known(place: str, key: Any, value: Any, values: Mapping[str, list[Any]]) -> None:
    if key not in values:
        raise ConfigError(f"{place}: {shown(key)} does not vary here: {did_you_mean(key, list(values))}")
    if not any(same(value, one) for one in values[key]):
        listed = ", ".join(shown(one) for one in values[key])
        raise ConfigError(f"{place}: {key} is never {shown(value)} here, but {listed}")


# What is compared.


def _comparison(
    document: Document, content: Any, axes: Sequence[Axis], runs: Sequence[Run], *, simulate: bool
) -> Comparison:
    place = document.where("compare")
    if not isinstance(content, dict) or "baseline" not in content:
        raise ConfigError(f"{place}: compare must hold a baseline, as in `baseline: {{pipeline.mode: pipe}}`")
    known = _COMPARE_SIMULATED if simulate else _COMPARE
    for key in content:
        if simulate and key in set(_COMPARE) - set(known):
            raise ConfigError(
                f"{document.where('compare', key)}: {key} is of runs that train, and these are simulated: leave it out"
            )
        if key not in known:
            raise ConfigError(
                f"{document.where('compare', key)}: unknown part {key!r} of compare: {did_you_mean(key, known)}"
            )
    name = content.get("name")
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"{document.where('compare', 'name')}: name must be text, got {shown(name)}")
    allowed = ASKED_OF_SIMULATED if simulate else ASKED
    asks = content.get("asks", "time")
    if asks not in allowed:
        raise ConfigError(
            f"{document.where('compare', 'asks')}: asks must be {' or '.join(allowed)}, got {shown(asks)}"
        )
    if not axes:
        raise ConfigError(f"{place}: compare needs a grid or a zip: only seeds vary here")
    baseline = content["baseline"]
    if not isinstance(baseline, dict) or not baseline:
        raise ConfigError(
            f"{document.where('compare', 'baseline')}: baseline must hold at least one key with its value, "
            f"got {shown(baseline)}"
        )
    values = _values(axes)
    for key, value in baseline.items():
        _check_known(document.where("compare", "baseline", key), key, value, values)
    target = _fraction(document, "target", content.get("target"))
    margin = _fraction(document, "margin", content.get("margin"))
    if target is not None and margin is not None:
        raise ConfigError(f"{document.where('compare', 'margin')}: target and margin exclude each other: give one")
    compared = tuple(key for axis in axes if not baseline.keys().isdisjoint(axis.keys) for key in axis.keys)
    over = _over(document, content.get("over", []), [key for key in values if key not in compared])
    found = Comparison(compared, baseline, _MARGIN if margin is None else margin, target, over, name, asks)
    _check_baselines(document, found, runs)
    return found


def _implied(axes: Sequence[Axis], runs: Sequence[Run]) -> Comparison | None:
    """The comparison of a file without one: a single axis is compared with its first value."""
    if len(axes) != 1 or len(axes[0].points) < 2:
        return None
    (axis,) = axes
    timed = all(run.virtual or run.simulation is not None for run in runs)
    baseline = dict(zip(axis.keys, axis.points[0], strict=True))
    found = Comparison(axis.keys, baseline, _MARGIN, None, asks="time" if timed else "accuracy", stated=False)
    seeds = {run.config.train.seed for run in runs if found.is_baseline(run)}
    return found if all(run.config.train.seed in seeds for run in runs) else None


def _over(document: Document, content: Any, keys: Sequence[str]) -> tuple[str, ...]:
    place = document.where("compare", "over")
    if not isinstance(content, list) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{place}: over must be a list of keys such as `[data.name]`, got {shown(content)}")
    for key in content:
        if key not in keys:
            listed = f"those are {', '.join(keys)}" if keys else "there is none"
            raise ConfigError(f"{place}: over lists keys that vary between what is compared, got {key}: {listed}")
    return tuple(content)


def _fraction(document: Document, part: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ConfigError(f"{document.where('compare', part)}: {part} must be > 0 and < 1, got {shown(value)}")
    return float(value)


def _check_baselines(document: Document, comparison: Comparison, runs: Sequence[Run]) -> None:
    """Check that each run has exactly one baseline."""
    place = document.where("compare", "baseline")
    baselines: dict[Any, Run] = {}
    for run in runs:
        if comparison.is_baseline(run):
            other = baselines.setdefault((comparison.group(run), run.config.train.seed), run)
            if other is not run:
                raise ConfigError(f"{place}: both ({other.label}) and ({run.label}) are the baseline: name one")
    for run in runs:
        if (comparison.group(run), run.config.train.seed) not in baselines:
            raise ConfigError(f"{place}: ({run.label}) has no run to be compared with")


def _resolved(document: Document, base: Mapping[str, Any], setting: Setting, seed: int, keys_of: Keys) -> Run:
    try:
        return keys_of.run(base, setting, seed)
    except ConfigError as error:
        key = error.key
        if key is None or key not in setting:
            raise ConfigError(f"{document.where(*(('base',) if key is None else ('base', key)))}: {error}") from None
        path = _home(document.value, key)
        if key in ("model.name", "optimizer.name"):
            values = document.value["grid"][key] if path[0] == "grid" else []
            path = (*path, values.index(setting[key])) if values else path
        raise ConfigError(f"{document.where(*path)}: {error}") from None


def _home(content: Mapping[str, Any], key: str) -> tuple[str | int, ...]:
    """Path of the list of a key's values."""
    if key in (content.get("grid") or {}):
        return ("grid", key)
    if isinstance(content["zip"], dict):
        return ("zip", key)
    return next(("zip", index, key) for index, block in enumerate(content["zip"]) if key in block)
