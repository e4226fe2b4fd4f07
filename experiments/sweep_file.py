"""Reads sweep files (docs/experiments.md and docs/sweeps.md describe their form) and expands them to runs.

Everything is checked before anything runs, and each error names file and line.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dorylax.config import ConfigError, RunConfig
from dorylax.config.check import check_value, unknown_key
from dorylax.config.files import overrides_from_mapping
from dorylax.config.schema import is_key
from dorylax.experiments import sweep_compare
from dorylax.experiments.sweep import SEED, Run, Setting, Sweep
from dorylax.near_matches import did_you_mean
from dorylax.settings.errors import shown
from dorylax.settings.strict_yaml import Document, dump, parse, read_text
from dorylax.settings.strict_yaml import Path as Place
from dorylax.simulation import settings as of_simulations
from dorylax.simulation.settings import Simulation, flatten, is_of_simulation
from dorylax.user_code.trust import FolderCode

_TEXTS = ("title", "question", "description")
_PARTS = (*_TEXTS, "simulate", "base", "grid", "zip", "exclude", "seeds", "compare", "published")
_WITH_PARTS = (*_TEXTS, "simulate", "base", "seeds", "parts")
_INHERITED = ("simulate", "seeds")  # by parts, in addition to the base
_LABEL = "label"
_BASE = "base must hold keys such as train.epochs, got"
_GRID = "grid must hold at least one key with a list of values, as in `model.name: [gcn, gat]`, got"
_ZIP = "zip must hold keys with lists of values that go together, as in `pipeline.mode: [pipe, async]`, got"


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
    """Return the sweep of one configuration, with the `given` keys, over seeds; other arguments as of `expand`."""
    content = {"base": {key: value for key, value in given.items() if key != SEED}, "seeds": list(seeds)}
    return dataclasses.replace(expand(Document(name, content), name, code), text=dump(content))


def expand(document: Document, name: str, code: FolderCode | None = None) -> Sweep:
    """Expand a sweep file to its runs; `code` has the records of a folder about user code (`RunConfig.resolve`).

    Raises:
        ConfigError: Anything is wrong; names file, line, value and the allowed values.
    """
    content, need = document.value, document.need
    need(isinstance(content, dict) and content, f"a sweep has the parts {', '.join(_PARTS)}, got {shown(content)}")
    known = _WITH_PARTS if "parts" in content else (*_PARTS, "parts")
    for part in content:
        need(part in known, f"unknown part {part!r} of a sweep: {did_you_mean(part, known)}", part)
    texts: dict[str, Any] = {}
    for part in _TEXTS:
        text = content.get(part, "")
        need(isinstance(text, str), f"{part} must be text, got {shown(text)}", part)
        texts[part] = " ".join(text.split())
    if "parts" in content:
        return Sweep(name, axes=(), runs=(), **texts).with_parts(_parts(document, code))
    simulate = content.get("simulate", False)
    need(isinstance(simulate, bool), f"simulate must be true or false, got {shown(simulate)}", "simulate")
    keys = _Keys(document, simulate, code)
    base = keys.read(content.get("base", {}))
    axes = _axes(base, keys)
    runs = _runs(axes, _seeds(document, content.get("seeds", [base.get(SEED, 0)]), base), base, keys)
    comparison, published = sweep_compare.implied(axes, runs), None
    if "compare" in content:
        comparison = sweep_compare.comparison_of(document, axes, runs, simulate=simulate)
    if "published" in content:
        published = sweep_compare.published_of(document, axes, runs, simulate=simulate)
    return Sweep(
        name, axes=tuple(sweep_compare.values_of(axes)), runs=runs, comparison=comparison, published=published, **texts
    )


def _runs(
    axes: Sequence[sweep_compare.Axis], seeds: Sequence[int], base: Mapping[str, Any], keys: _Keys
) -> tuple[Run, ...]:
    """Return the runs of all combinations that no exclusion covers, seeds fastest."""
    document, runs = keys.document, dict[str, Run]()
    exclusions = _exclusions(document, sweep_compare.values_of(axes) | {SEED: list(seeds)})
    used: set[int] = set()
    for points in itertools.product(*axes):
        setting = {key: value for point, _ in points for key, value in point.items()}
        labels = tuple((tuple(point), label) for point, label in points if label)
        for seed in seeds:
            values = {**setting, SEED: seed}
            hits = [k for k, one in enumerate(exclusions) if all(values[key] in of for key, of in one.items())]
            used.update(hits)
            if hits:
                continue
            run = dataclasses.replace(keys.run(base, setting, seed), labels=labels)
            if (other := runs.get(run.key)) is not None:
                home = _home(document.value, list(sweep_compare.values_of(axes))[-1])[0]
                raise document.error(f"({run.label}) is the same run as ({other.label}): remove one", home)
            runs[run.key] = run
    for k in range(len(exclusions)):
        document.need(k in used, f"excludes no run: {shown(document.value['exclude'][k])}", "exclude", k)
    document.need(runs, "every run is excluded", "exclude")
    return tuple(runs.values())


class _Keys(NamedTuple):
    """The keys that a sweep file may set: those of configurations, and of simulations if its runs are simulated."""

    document: Document
    simulate: bool
    code: FolderCode | None

    def check_key(self, key: Any, *path: str | int) -> None:
        """Refuse a key that does not exist, or not in this sweep."""
        if isinstance(key, str) and is_of_simulation(key):
            self.document.need(self.simulate, f"{key} is of simulations: add `simulate: true`, or leave it out", *path)
        elif not is_key(key):
            raise self.document.error(unknown_key(key), *path)

    def read(self, base: Any) -> dict[str, Any]:
        """Return the dotted keys of the base."""
        self.document.need(isinstance(base, dict), f"{_BASE} {shown(base)}", "base")
        own = {key: value for key, value in base.items() if is_of_simulation(key)}
        for key in own:
            self.check_key(key, "base", key)
        others = {key: value for key, value in base.items() if key not in own}
        found = overrides_from_mapping(self.document, others, ("base",))
        return found | of_simulations.read(self.document, own, ("base",))

    def values(self, key: Any, values: Any, taken: dict[str, str], *path: str | int) -> list[Any]:
        """Check the values of a key that varies, in one place only."""
        part, other = str(path[0]), taken.get(key)
        self.check_key(key, *path)
        self.document.need(key != SEED, f"{SEED} is not for the {part}: list seeds under `seeds`", *path)
        twice = "in two blocks of zip" if other == part else f"in {other} and in {part}"
        self.document.need(other is None, f"{key} is {twice}: take it out of one", *path)
        taken[key] = part
        listed = f"{key} must have a list of at least one value, got {shown(values)}"
        self.document.need(isinstance(values, list) and values, listed, *path)
        _check_each(self.document, key, values, *path)
        return list(values)

    def run(self, base: Mapping[str, Any], setting: Setting, seed: int) -> Run:
        """Return the run of a setting and a seed."""
        try:
            if not self.simulate:
                return Run(RunConfig.resolve(base, setting, {SEED: seed}, code=self.code), setting)
            given = {**base, **setting}
            of_run = {key: value for key, value in given.items() if not is_of_simulation(key)}
            simulation = Simulation.of({key: value for key, value in given.items() if key not in of_run})
            run = Run(simulation.config(of_run, {SEED: seed}, code=self.code), setting, simulation)
            simulation.scenario(run.name, run.config)  # impossible settings are refused before anything runs
            return run
        except ConfigError as error:
            key, content = error.key, self.document.value
            if key not in setting:
                raise self.document.error(error, *(("base", key) if key else ("base",))) from None
            path = _home(content, key)
            if key in ("model.name", "optimizer.name") and path[0] == "grid":
                path = (*path, content["grid"][key].index(setting[key]))
            raise self.document.error(error, *path) from None


def _home(content: Mapping[str, Any], key: str) -> Place:
    """Return the path of the list of a key's values."""
    if key in (content.get("grid") or {}):
        return ("grid", key)
    if isinstance(content["zip"], dict):
        return ("zip", key)
    return next(("zip", index, key) for index, block in enumerate(content["zip"]) if key in block)


def _axes(base: Mapping[str, Any], keys: _Keys) -> list[sweep_compare.Axis]:
    """Return the axes of the grid, then those of zip; none if only seeds vary."""
    content, grid = keys.document.value, keys.document.value.get("grid")
    if ("seeds" in content or keys.simulate) and "grid" not in content and "zip" not in content:
        return []
    some = (isinstance(grid, dict) and grid) or ("zip" in content and grid is None)
    keys.document.need(some, f"{_GRID} {'nothing' if grid in (None, {}) else shown(grid)}", "grid")
    taken, axes = dict.fromkeys(base, "base"), list[sweep_compare.Axis]()
    for key, given in (grid or {}).items():
        values = keys.values(key, given, taken, "grid", key)
        _refuse_twice(keys.document, key, values, "grid", key)
        axes.append([({key: value}, "") for value in values])
    blocks = content.get("zip", [])
    keys.document.need("zip" not in content or blocks != [], "zip must hold keys with lists of values, got []", "zip")
    if isinstance(blocks, list):
        return axes + [_zipped(block, taken, keys, "zip", index) for index, block in enumerate(blocks)]
    return [*axes, _zipped(blocks, taken, keys, "zip")]


def _zipped(block: Any, taken: dict[str, str], keys: _Keys, *path: str | int) -> sweep_compare.Axis:
    keys.document.need(isinstance(block, dict) and block, f"{_ZIP} {shown(block)}", *path)
    columns = {key: keys.values(key, block[key], taken, *path, key) for key in block if key != _LABEL}
    labels, label = block.get(_LABEL, []), (*path, _LABEL)
    texts = isinstance(labels, list) and all(isinstance(one, str) and one for one in labels)
    keys.document.need(texts, f"label must be a list of names, one for each value, got {shown(labels)}", *label)
    _refuse_twice(keys.document, _LABEL, labels, *label)
    keys.document.need(columns, "label names values of other keys: add one to this block", *label)
    first, number = next((key, len(values)) for key, values in columns.items())
    for key, values in block.items():
        uneven = f"values of zip go together, but {first} lists {number} and {key} lists {len(values)}"
        keys.document.need(len(values) == number, uneven, *path, key)
    points = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    _refuse_twice(keys.document, "zip", [list(point.values()) for point in points], *path, first)
    return list(zip(points, labels or [""] * number, strict=True))


def _check_each(document: Document, key: str, values: Sequence[Any], *path: str | int) -> None:
    check = of_simulations.check_value if is_of_simulation(key) else check_value
    for index, value in enumerate(values):
        try:
            check(key, value)
        except ConfigError as error:
            raise document.error(error, *path, index) from None


def _refuse_twice(document: Document, name: str, values: Sequence[Any], *path: str | int) -> None:
    for index, value in enumerate(values):
        twice = f"{name} lists {shown(value)} twice"
        document.need(value not in values[:index], twice, *path, index)


def _seeds(document: Document, content: Any, base: Mapping[str, Any]) -> list[int]:
    need = document.need
    both = SEED in base and "seeds" in document.value
    need(not both, f"seeds and {SEED} in base exclude each other: remove one", "seeds")
    if isinstance(content, int) and not isinstance(content, bool) and content >= 1:
        return list(range(content))
    wrong = f"seeds must be a whole number ≥ 1 or a list of seeds, got {shown(content)}"
    need(isinstance(content, list) and content, wrong, "seeds")
    _check_each(document, SEED, content, "seeds")
    _refuse_twice(document, "seeds", content, "seeds")
    return list(content)


def _exclusions(document: Document, values: Mapping[str, list[Any]]) -> list[dict[str, list[Any]]]:
    """Return the keys and values of each exclusion; `values` has those of all runs."""
    content = document.value.get("exclude", [])
    settings = isinstance(content, list) and all(isinstance(entry, dict) and entry for entry in content)
    wrong = f"exclude must be a list of settings such as `{{model.name: gat}}`, got {shown(content)}"
    document.need(settings, wrong, "exclude")
    found = [{key: of if isinstance(of, list) else [of] for key, of in entry.items()} for entry in content]
    for index, entry in enumerate(found):
        for key, value in ((key, value) for key, of in entry.items() for value in of):
            sweep_compare.known_value(document, key, value, values, "exclude", index, key)
    return found


def _parts(document: Document, code: FolderCode | None) -> list[Sweep]:
    parts, need = document.value["parts"], document.need
    need(isinstance(parts, dict) and parts, f"parts must hold sweeps by name, got {shown(parts)}", "parts")
    found = []
    for name, part in parts.items():
        sweep = expand(_part(document, name, part), name, code)
        # Otherwise its runs would have the names of another part's.
        need(sweep.axes or sweep.simulated, f"{name} needs a grid or a zip", "parts", name)
        found.append(sweep)
    return found


def _part(document: Document, name: str, part: Any) -> Document:
    """Return a part as a separate file, whose errors have the lines of the whole file.

    It inherits `simulate`, `seeds` and `base`, except for keys in its own base and keys that it varies. In a file that
    simulates, a part that trains does not inherit keys of simulations.
    """
    content, inside, need = document.value, ("parts", name), document.need
    sweep = f"{name} must be a sweep, with a grid or a zip, got {shown(part)}"
    need(isinstance(part, dict) and part, sweep, *inside)
    need("parts" not in part, "a part of a sweep has no parts itself", *inside, "parts")
    blocks = [part.get("grid"), *(part["zip"] if isinstance(part.get("zip"), list) else [part.get("zip")])]
    varied = {key for block in blocks if isinstance(block, dict) for key in block}
    trains = content.get("simulate") is True and part.get("simulate") is False
    base: dict[str, Any] = {}
    lines = {path[2:]: line for path, line in document.lines.items() if path[:2] == inside}
    for place, values in ((("base",), content.get("base", {})), ((*inside, "base"), part.get("base", {}))):
        need(isinstance(values, dict), f"{_BASE} {shown(values)}", *place)
        for key, value in flatten(values).items():
            foreign = key in varied or (trains and is_of_simulation(key))
            if place != ("base",) or not foreign:
                base[key] = value
        for path, line in document.lines.items():
            if path[: len(place)] == place and path != place:
                lines["base", ".".join(map(str, path[len(place) :]))] = line
    shared = {key: content[key] for key in _INHERITED if key in content}
    return Document(document.name, {**shared, **part, "base": base}, lines)
