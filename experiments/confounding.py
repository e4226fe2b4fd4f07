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
    """One line for each unnamed key that confounds or hides the effect of a sweep.

    Keys that do not apply to a variant (options of other models, staleness without `async`) are no difference, and neither
    are the constants of different optimizers.

    Args:
        sweep: any; without `compare` only hidden effects are found.

    Returns:
        The lines, each with the key, its values by variant and what to do, in the order of the configuration's keys.
    """
    if sweep.parts:
        return [line for part in sweep.parts for line in confounders(part)]
    comparison = sweep.comparison
    hidden = _hidden_staleness(sweep)
    if comparison is None or not comparison.stated:
        return hidden
    compared: dict[Any, list[Run]] = {}
    for run in sweep.runs:
        compared.setdefault(comparison.pair(run), []).append(run)
    found: dict[str, dict[str, list[Run]]] = {}
    for runs in compared.values():
        configs = [run.dotted() for run in runs]
        named = {*_NO_SETTINGS, *sweep.axes, *(_OF_OPTIMIZERS if _differ("optimizer.name", configs) else ())}
        for key in dict.fromkeys(key for config in configs for key in config if key not in named):
            if _differ(key, configs):
                for run, config in zip(runs, configs, strict=True):
                    if _applies(key, config):
                        found.setdefault(key, {}).setdefault(plain(config[key]), []).append(run)
    return [*(_line(key, values, comparison) for key, values in found.items()), *hidden]


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


def _applies(key: str, config: Mapping[str, Any]) -> bool:
    """Whether a key says something in a configuration, which omits unused options."""
    return key in config and (key not in _ASYNC_ONLY or config[key] is not None)


def _differ(key: str, configs: Sequence[Mapping[str, Any]]) -> bool:
    return len({plain(config[key]) for config in configs if _applies(key, config)}) > 1


def _line(key: str, values: Mapping[str, Sequence[Run]], comparison: Comparison) -> str:
    """`pipeline.update differs between …: per_epoch (pipe); per_interval (async). …`."""
    cause = next((one for one in comparison.keys if _decides((one,), values)), None)
    keys = (cause,) if cause else comparison.keys
    if not _decides(keys, values):  # the compared settings differ from group to group
        keys = tuple(values[next(iter(values))][0].setting)
    listed = "; ".join(
        f"{text} ({' / '.join(dict.fromkeys(_name(run, keys) for run in runs))})" for text, runs in values.items()
    )
    return (
        f"{key} differs between variants that are compared, and the sweep does not name it: {listed}. "
        f"Give it one value in base, or list its values in zip, beside {cause or comparison.keys[0]}"
    )


def _decides(keys: Sequence[str], values: Mapping[str, Sequence[Run]]) -> bool:
    """Whether the value follows from these keys alone."""
    names = [{_name(run, keys) for run in runs} for runs in values.values()]
    return len(set().union(*names)) == sum(map(len, names))


def _name(run: Run, keys: Sequence[str]) -> str:
    return short_name({key: run.setting[key] for key in keys})
