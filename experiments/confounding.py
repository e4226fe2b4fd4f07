"""Effects of settings that a sweep file does not name.

A default may depend on another key: a model's recipe has its own learning rate, a mode its own update policy. Where
variants that are compared differ in such a key, the comparison measures both together. And a default may hide the effect
of the key that varies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dorylax.config.optimizers import OPTIMIZERS
from dorylax.experiments.names import plain, short_name
from dorylax.experiments.sweep import SEED, Comparison, Run, Sweep
from dorylax.pipeline.config import ASYNC_DEFAULTS

_ASYNC_ONLY = {f"pipeline.{name}" for name in ASYNC_DEFAULTS}
_OF_OPTIMIZERS = {f"optimizer.{option}" for spec in OPTIMIZERS.values() for option in spec.options}
"""Constants that each optimizer uses in its own way: they are part of what its name says."""

_NO_SETTINGS = (SEED, "train.recipe")
"""The values that a recipe brings along are keys of their own."""


def confounders(sweep: Sweep) -> list[str]:
    """One line for each unnamed key that confounds or hides the effect of a sweep; without `compare` hidden effects only.

    Keys that do not apply to a variant (options of other models, staleness without `async`) are no difference, and neither
    are the constants of different optimizers. Lines come in the order of the configuration's keys, each with the values of a
    key by variant and a remedy.
    """
    if sweep.parts:
        return [line for part in sweep.parts for line in confounders(part)]
    comparison, compared = sweep.comparison, dict[Any, list[Run]]()
    if comparison is None or not comparison.stated:
        return _hidden_staleness(sweep)
    for run in sweep.runs:
        compared.setdefault(comparison.pair(run), []).append(run)
    found: dict[str, dict[str, list[Run]]] = {}
    for runs in compared.values():
        configs = [_applied(run) for run in runs]
        optimizers = {config["optimizer.name"] for config in configs if "optimizer.name" in config}
        named = {*_NO_SETTINGS, *sweep.axes, *(_OF_OPTIMIZERS if len(optimizers) > 1 else ())}
        for key in dict.fromkeys(key for config in configs for key in config if key not in named):
            if len({config[key] for config in configs if key in config}) > 1:
                for run, config in zip(runs, configs, strict=True):
                    if key in config:
                        found.setdefault(key, {}).setdefault(config[key], []).append(run)
    return [_line(key, values, comparison) for key, values in found.items()] + _hidden_staleness(sweep)


def _applied(run: Run) -> dict[str, str]:
    """The keys that say something in a configuration, which omits unused options, with their values as text."""
    settings = run.dotted().items()
    return {key: plain(value) for key, value in settings if key not in _ASYNC_ONLY or value is not None}


def _hidden_staleness(sweep: Sweep) -> list[str]:
    """A line if staleness varies while the default freshness makes gathers wait for most rows that could be stale."""
    pipelines = [run.config.pipeline for run in sweep.runs]
    asynchronous = [one for one in pipelines if one is not None and not one.synchronous]
    bounds = sorted({one.staleness or 0 for one in asynchronous if "freshness" not in one.model_fields_set})
    if len(bounds) < 2:
        return []
    return [
        f"pipeline.staleness is {', '.join(map(str, bounds))}, and the sweep does not name pipeline.freshness, by default "
        f"{ASYNC_DEFAULTS['freshness']}: gathers wait for that share of fresh rows whatever the staleness, which hides most "
        "of its effect. Give pipeline.freshness (0: only the staleness bounds)"
    ]


def _line(key: str, values: Mapping[str, Sequence[Run]], comparison: Comparison) -> str:
    """`pipeline.update differs between …: per_epoch (pipe); per_interval (async). …`."""
    cause = next((one for one in comparison.keys if _decides((one,), values)), None)
    keys = (cause,) if cause else comparison.keys
    if not _decides(keys, values):  # the compared settings differ from group to group
        keys = tuple(values[next(iter(values))][0].setting)
    listed = "; ".join(f"{text} ({' / '.join(_names(runs, keys))})" for text, runs in values.items())
    return (
        f"{key} differs between variants that are compared, and the sweep does not name it: {listed}. "
        f"Give it one value in base, or list its values in zip, beside {cause or comparison.keys[0]}"
    )


def _decides(keys: Sequence[str], values: Mapping[str, Sequence[Run]]) -> bool:
    """Whether the value follows from these keys alone."""
    names = [_names(runs, keys) for runs in values.values()]
    return len(set().union(*names)) == sum(map(len, names))


def _names(runs: Sequence[Run], keys: Sequence[str]) -> dict[str, None]:
    return dict.fromkeys(short_name({key: run.setting[key] for key in keys}) for run in runs)
