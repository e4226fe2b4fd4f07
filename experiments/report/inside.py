"""Figures of a run's inside: staleness of rows, a timeline of one epoch, and the time of each kind of task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Group, Variant
from dorylax.experiments.report.charts import stacked_bars
from dorylax.experiments.report.figures import NamedFigure, folded_title, legend, legend_below, one_axes
from dorylax.experiments.report.timeline import IN_VAIN, TimelineTask
from dorylax.figure_style import MUTED, series

_KINDS = ("GA", "AV", "SC", "AE", "AV+∇AV", "∇GA", "∇AV", "∇SC", "∇AE", "network", "finish", "predict", "WU", IN_VAIN)
"""Kinds of tasks in the order of an epoch."""


def staleness_figure(group: Group, name: str) -> NamedFigure | None:
    """Shares of rows by the epochs that they are behind their readers; None if all are current."""
    shares = {variant.name: _lags(variant) for variant in group.variants}
    lags = sorted({lag for found in shares.values() for lag in found})
    if not any(lags):
        return None
    shown = [(place, variant) for place, (variant, found) in enumerate(shares.items()) if found]

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, 0.42)
        room = 0.84 / len(shown)
        for slot, (place, variant) in enumerate(shown):
            heights = [100 * shares[variant].get(lag, 0.0) for lag in lags]
            offsets = np.arange(len(lags)) - 0.42 + room * (slot + 0.5)
            axes.bar(offsets, heights, room * 0.92, color=series(place), label=variant)
        axes.set_xticks(range(len(lags)), [str(lag) for lag in lags])
        axes.set_xlabel("epochs behind the reader (negative: ahead)")
        axes.set_ylabel("% of rows read")
        axes.grid(axis="x", visible=False)
        legend(figure, axes, width)
        return figure

    rows = [(one, lag, shares[one][lag]) for _, one in shown for lag in sorted(shares[one])]
    told = [f"{one}: {100 * share:.0f} % {lag} epochs behind" for one, lag, share in rows]
    data = pandas.DataFrame(rows, columns=["variant", "epochs_behind", "share"])
    title = "Staleness of the rows that intervals read"
    return NamedFigure(f"{name}staleness", title, f"{title}. " + "; ".join(told), draw, data)


def _lags(variant: Variant) -> dict[int, float]:
    total = Counter[int]()
    for run in variant.runs:
        rows = (run.summary.get("pipeline") or {}).get("rows_by_lag") or {}
        total.update({int(lag): count for lag, count in rows.items()})
    return {lag: rows / total.total() for lag, rows in total.items()} if total.total() else {}


def breakdown_figure(
    spans: Mapping[str, Mapping[str, float]], name: str, samples: Mapping[str, tuple[int, int]]
) -> NamedFigure | None:
    """Seconds per epoch by kind of task, a bar for each variant; None without tasks.

    Args:
        spans: Variant → kind of task → seconds per epoch.
        name: For the files.
        samples: Traced and trained epochs of variants whose trace lacks some.
    """
    kinds = _ordered(kind for found in spans.values() for kind in found)
    if not kinds:
        return None
    text = f"Seconds of tasks per epoch, of all servers and functions together{_sampled(samples, spans)}."
    return stacked_bars(
        f"{name}tasks", "Time of tasks", spans, "seconds of tasks per epoch", colors=_colors(kinds), text=text
    )


def timeline_figure(
    variants: Mapping[str, Sequence[TimelineTask]], name: str, samples: Mapping[str, tuple[int, int]]
) -> NamedFigure | None:
    """Tasks of one epoch on the first graph server, a row for each lane of a resource; None without tasks.

    Args:
        variants: Variant → tasks.
        name: For the files.
        samples: As for `breakdown_figure`.
    """
    variants = {variant: tasks for variant, tasks in variants.items() if tasks}
    if not variants:
        return None
    colors = _colors(_ordered(task.kind for tasks in variants.values() for task in tasks))
    last = max(task.end for tasks in variants.values() for task in tasks)

    def draw(width: float) -> Figure:
        lanes = {variant: list(dict.fromkeys(task.lane for task in tasks)) for variant, tasks in variants.items()}
        heights = [0.16 * len(found) + 0.32 for found in lanes.values()]
        figure = Figure((width, sum(heights) + 0.7), layout="constrained")
        grid = figure.subplots(len(variants), 1, sharex=True, height_ratios=heights, squeeze=False)
        rows = list(np.ravel(np.asarray(grid)))
        for axes, (variant, tasks) in zip(rows, variants.items(), strict=True):
            axes.barh(
                [lanes[variant].index(task.lane) for task in tasks],
                [task.end - task.start for task in tasks],
                left=[task.start for task in tasks],
                color=[colors[task.kind] for task in tasks],
                height=0.84,
                linewidth=0,
            )
            places: dict[str, list[int]] = {}
            for place, lane in enumerate(lanes[variant]):
                places.setdefault(lane.rsplit(" ", 1)[0], []).append(place)
            axes.set_yticks([float(np.mean(found)) for found in places.values()], list(places), fontsize=8)
            axes.set_title(folded_title(variant, width))
            axes.invert_yaxis()
            axes.grid(visible=False)
            axes.set_xlim(0, last)
            axes.tick_params(axis="y", length=0)
        rows[-1].set_xlabel("seconds since the epoch began")
        legend_below(figure, [rows[0].barh(0, 0, color=color) for color in colors.values()], list(colors), width)
        return figure

    title = "Timeline of one epoch"
    text = (
        f"{title}: tasks on the first graph server and the parameter servers, by resource, for "
        f"{', '.join(variants)}{_sampled(samples, variants)}. All have the same scale."
    )
    data = pandas.DataFrame(
        [{"variant": variant, **task._asdict()} for variant, tasks in variants.items() for task in tasks]
    )
    return NamedFigure(f"{name}timelines", title, text, draw, data)


def _sampled(samples: Mapping[str, tuple[int, int]], shown: Iterable[str]) -> str:
    told = [f"{samples[name][0]} of the {samples[name][1]} epochs of {name}" for name in shown if name in samples]
    return f" (traces hold {', '.join(told)})" if told else ""


def _ordered(kinds: Iterable[str]) -> list[str]:
    return sorted(set(kinds), key=lambda kind: (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind))


def _colors(kinds: Sequence[str]) -> dict[str, str]:
    return {kind: MUTED.light if kind == IN_VAIN else series(1 + place) for place, kind in enumerate(kinds)}
