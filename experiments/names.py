"""Names of runs, settings and metrics in tables, legends and progress."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dorylax.pipeline.config import ASYNC_DEFAULTS, PipelineConfig
from dorylax.runs.metric import METRICS, MetricKind
from dorylax.settings.errors import shown

if TYPE_CHECKING:
    from dorylax.config import RunConfig

_MODE, _STALENESS, _UPDATE = "pipeline.mode", "pipeline.staleness", "pipeline.update"
_OPTIONS = ("freshness_of", "smoothing", "gradient_share", "ahead_share", "stability_gate", "stale_price")
_DEFAULTS = {name: PipelineConfig.model_fields[name].default for name in _OPTIONS}
_USUAL = {f"pipeline.{name}": value for name, value in (ASYNC_DEFAULTS | _DEFAULTS).items()}
"""Defaults of asynchronous training, which names leave out."""
_NAMES = {
    *("graph.name", "simulation.backend", "cluster.graph_server", "data.name", "model.name", "optimizer.name"),
    *(_MODE, _UPDATE, "pipeline.partitioner"),
}
"""Keys whose values need no key beside them."""


def data_name(config: RunConfig) -> str:
    """The data set's name; of a path without folder and suffix."""
    return Path(config.data.name).name.removesuffix(".npz")


def title(config: RunConfig) -> str:
    """Model and data: `gcn on cora`."""
    return f"{config.model.name} on {data_name(config)}"


def plain(value: Any) -> str:
    """A setting's value as in a file, texts without quotation marks."""
    return value if isinstance(value, str) else shown(value)


def metric_of(summaries: Iterable[Mapping[str, Any]]) -> MetricKind:
    """The metric of some runs by their summaries: the first that is not the accuracy."""
    special = (name for summary in summaries if (name := summary.get("metric")) not in (None, "accuracy"))
    return METRICS[next(special, "accuracy")]


def test_set(config: RunConfig, count: int) -> str:
    """The size of a test set, with the noun of its examples: `1,000 vertices`."""
    task = config.task.name or ""
    noun = "pairs" if task == "link-prediction" else "graphs" if task.startswith("graph-") else "vertices"
    return f"{count:,} {noun}"


def short_name(setting: Mapping[str, Any]) -> str:
    """The values of a setting in a few words: `gcn, async S=0 per_epoch`.

    Leaves out null values and defaults of asynchronous training if the section's name or the pipeline's mode is there.
    """
    words = []
    for key, value in setting.items():
        section, _, option = key.partition(".")
        named = (_MODE if section == "pipeline" else f"{section}.name") in setting
        if named and (key in (_STALENESS, _UPDATE) or value is None or (key in _USUAL and value == _USUAL[key])):
            continue
        if key == _MODE:
            staleness, update = setting.get(_STALENESS), setting.get(_UPDATE)
            parts = [value, None if staleness is None else f"S={staleness}", update]
            words.append(" ".join(str(part) for part in parts if part is not None))
        elif key in _NAMES:
            words.append(str(value).rpartition(":")[2])  # of the user's own (FILE.py:NAME) the name
        else:
            words.append(f"{option}={plain(value)}")
    return ", ".join(words)


def fold(text: str, letters: int) -> str:
    """Break text into lines of at most `letters` characters. Long names of settings also break after `_` and `=`."""
    lines = [""]
    for piece in re.findall(rf"[^ _=]{{0,{letters - 1}}}[^ ]? *", text):
        if len((lines[-1] + piece).rstrip()) > letters:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines if line.strip())
