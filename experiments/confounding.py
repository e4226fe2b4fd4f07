"""What a comparison varies without saying so: settings that a sweep file does not name, and that its values bring along.

A default may depend on another key: a model's recipe has its own learning rate, a mode its own update policy. Where
variants that are compared differ in such a key, the comparison measures both at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dorylax.config.optimizers import OPTIMIZERS
from dorylax.experiments.names import short_name
from dorylax.experiments.sweep import SEED, Comparison, Run, Sweep
from dorylax.pipeline.config import ASYNC_DEFAULTS
from dorylax.settings.errors import shown

_ASYNC_ONLY = {f"pipeline.{name}" for name in ASYNC_DEFAULTS}
_OF_OPTIMIZERS = {f"optimizer.{option}" for spec in OPTIMIZERS.values() for option in spec.options}
"""Constants that each optimizer uses in its own way: they are part of what its name says."""

_NO_SETTINGS = (SEED, "train.recipe")
"""The values that a recipe brings along are keys of their own."""


def confounders(sweep: Sweep) -> list[str]:
    """One line for each key in which variants that are compared differ, and that the sweep file does not name.

    Keys that do not apply to a variant (options of other models, staleness without `async`) are no difference, and neither
    are the constants of different optimizers.

    Args:
        sweep: any; without `compare` nothing is compared.

    Returns:
        The lines, each with the key, its values by variant and what to do, in the order of the configuration's keys.
    """
    if sweep.parts:
        return [line for part in sweep.parts for line in confounders(part)]
    comparison = sweep.comparison
    if comparison is None:
        return []
    found: dict[str, dict[str, list[Run]]] = {}
    for runs in _compared(sweep.runs, comparison):
        configs = [run.dotted() for run in runs]
        for key in dict.fromkeys(key for config in configs for key in config):
            if (
                key in _NO_SETTINGS
                or key in sweep.axes
                or (key in _OF_OPTIMIZERS and _differ("optimizer.name", configs))
            ):
                continue
            if _differ(key, configs):
                for run, config in zip(runs, configs, strict=True):
                    if _applies(key, config):
                        found.setdefault(key, {}).setdefault(_text(config[key]), []).append(run)
    return [_line(key, values, comparison) for key, values in found.items()]


def _compared(runs: Sequence[Run], comparison: Comparison) -> list[list[Run]]:
    """Runs that are compared with each other: of one group and one seed."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault((comparison.group(run), run.config.train.seed), []).append(run)
    return list(groups.values())


def _applies(key: str, config: Mapping[str, Any]) -> bool:
    """Whether a key says something in a configuration, which leaves out options that are not used."""
    return key in config and (key not in _ASYNC_ONLY or config[key] is not None)


def _differ(key: str, configs: Sequence[Mapping[str, Any]]) -> bool:
    return len({_text(config[key]) for config in configs if _applies(key, config)}) > 1


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def _line(key: str, values: Mapping[str, Sequence[Run]], comparison: Comparison) -> str:
    """`pipeline.update differs between …: per_epoch (pipe); per_interval (async). …`."""
    cause = next((one for one in comparison.keys if _decides((one,), values)), None)
    keys = (cause,) if cause else comparison.keys
    if not _decides(keys, values):  # what is compared differs from group to group
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
