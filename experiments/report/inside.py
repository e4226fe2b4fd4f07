"""What happened inside: how stale rows were, what ran when, where time went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Group, Variant
from dorylax.experiments.report import theme
from dorylax.experiments.report.figures import NamedFigure, folded_names, folded_title, legend, legend_below, one_axes
from dorylax.experiments.report.timeline import IN_VAIN, TimelineTask

_KINDS = ("GA", "AV", "SC", "AE", "AV+∇AV", "∇GA", "∇AV", "∇SC", "∇AE", "network", "finish", "predict", "WU", IN_VAIN)
"""Kinds of tasks as they follow each other in an epoch."""


def staleness_figure(group: Group, name: str) -> NamedFigure | None:
    """How many epochs rows were behind their readers."""
    shares = {variant.name: _lags(variant) for variant in group.variants}
    lags = sorted({lag for found in shares.values() for lag in found})
    if not any(lag != 0 for lag in lags):
        return None
    shown = [(place, variant) for place, variant in enumerate(group.variants) if shares[variant.name]]

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, 0.42)
        room = 0.84 / len(shown)
        for slot, (place, variant) in enumerate(shown):
            found = shares[variant.name]
            offsets = np.arange(len(lags)) - 0.42 + room * (slot + 0.5)
            heights = [100 * found.get(lag, 0.0) for lag in lags]
            axes.bar(offsets, heights, room * 0.92, color=theme.series(place), label=variant.name)
        axes.set_xticks(range(len(lags)), [str(lag) for lag in lags])
        axes.set_xlabel("epochs behind the reader (negative: ahead)")
        axes.set_ylabel("% of rows read")
        axes.grid(axis="x", visible=False)
        legend(figure, axes, width)
        return figure

    parts = [
        f"{variant.name}: " + ", ".join(f"{100 * share:.0f} % {_lag_name(lag)}" for lag, share in sorted(found.items()))
        for variant in group.variants
        if (found := shares[variant.name])
    ]
    title = "How stale the rows were that intervals read"
    return NamedFigure(f"{name}staleness", title, f"{title}. " + "; ".join(parts), draw)


def _lags(variant: Variant) -> dict[int, float]:
    """Shares of rows by how many epochs they were behind."""
    total: dict[int, int] = {}
    for run in variant.runs:
        for lag, rows in ((run.summary.get("pipeline") or {}).get("rows_by_lag") or {}).items():
            total[int(lag)] = total.get(int(lag), 0) + rows
    whole = sum(total.values())
    return {lag: rows / whole for lag, rows in total.items()} if whole else {}


def _lag_name(lag: int) -> str:
    if lag == 0:
        return "of this epoch"
    return f"{abs(lag)} {'behind' if lag > 0 else 'ahead'}"


def breakdown_figure(
    spans: dict[str, dict[str, float]], name: str, samples: Mapping[str, tuple[int, int]]
) -> NamedFigure | None:
    """Where each variant's task time goes, by kind of task: bars of seconds per epoch.

    Args:
        spans: seconds per epoch by kind of task, by variant.
        name: for its file.
        samples: of variants whose trace does not hold all epochs, how many it holds, and how many there were.
    """
    kinds = _ordered(kind for found in spans.values() for kind in found)
    if not kinds:
        return None

    def draw(width: float) -> Figure:
        names, lines = folded_names(list(spans), width)
        figure = Figure((width, max(0.34, 0.17 * lines) * len(spans) + 1.0), layout="constrained")
        axes = figure.subplots()
        for row, found in enumerate(spans.values()):
            left = 0.0
            for kind in kinds:
                seconds = found.get(kind, 0.0)
                axes.barh(row, seconds, left=left, color=_kind_colour(kind, kinds), height=0.62)
                left += seconds
        for kind in kinds:
            axes.barh(0, 0, color=_kind_colour(kind, kinds), label=kind)
        axes.set_yticks(range(len(spans)), names)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("seconds of tasks per epoch")
        legend_below(figure, *axes.get_legend_handles_labels(), width)
        return figure

    parts = [
        f"{variant}: " + ", ".join(f"{kind} {seconds:.3g} s" for kind, seconds in found.items())
        for variant, found in spans.items()
    ]
    return NamedFigure(
        f"{name}tasks",
        "Where task time goes",
        f"Seconds of tasks per epoch, of all servers and functions together{_sampled(samples, spans)}. "
        + "; ".join(parts),
        draw,
    )


def timeline_figure(
    variants: dict[str, list[TimelineTask]], name: str, samples: Mapping[str, tuple[int, int]]
) -> NamedFigure | None:
    """What ran when in one epoch of each variant: a row for each lane of each resource of the first server.

    Args:
        variants: tasks of an epoch, in seconds since it began.
        name: for its file.
        samples: as for `breakdown_figure`.
    """
    variants = {variant: tasks for variant, tasks in variants.items() if tasks}
    if not variants:
        return None
    kinds = _ordered(task.kind for tasks in variants.values() for task in tasks)
    colours = {kind: _kind_colour(kind, kinds) for kind in kinds}
    last = max(task.end for tasks in variants.values() for task in tasks)

    def draw(width: float) -> Figure:
        lanes = {variant: list(dict.fromkeys(task.lane for task in tasks)) for variant, tasks in variants.items()}
        heights = [0.16 * len(found) + 0.32 for found in lanes.values()]
        figure = Figure((width, sum(heights) + 0.7), layout="constrained")
        rows = np.ravel(
            np.asarray(figure.subplots(len(variants), 1, sharex=True, height_ratios=heights, squeeze=False))
        )
        for axes, (variant, tasks) in zip(rows, variants.items(), strict=True):
            places = {lane: place for place, lane in enumerate(lanes[variant])}
            for kind in kinds:
                mine = [task for task in tasks if task.kind == kind]
                axes.barh(
                    [places[task.lane] for task in mine],
                    [task.end - task.start for task in mine],
                    left=[task.start for task in mine],
                    color=colours[kind],
                    height=0.84,
                    linewidth=0,
                )
            axes.set_title(folded_title(variant, width))
            axes.set_yticks(*_lane_ticks(lanes[variant]), fontsize=8)
            axes.invert_yaxis()
            axes.grid(visible=False)
            axes.set_xlim(0, last)
            axes.tick_params(axis="y", length=0)
        rows[-1].set_xlabel("seconds since the epoch began")
        handles = [rows[0].barh(0, 0, color=colours[kind]) for kind in kinds]
        legend_below(figure, handles, kinds, width)
        return figure

    title = "What ran when, in one epoch"
    text = (
        f"{title}: tasks of one epoch on the first graph server and the parameter servers, by resource, for "
        f"{', '.join(variants)}{_sampled(samples, variants)}. All have the same scale."
    )
    return NamedFigure(f"{name}timelines", title, text, draw)


def _sampled(samples: Mapping[str, tuple[int, int]], shown: Iterable[str]) -> str:
    """Which traces do not hold all epochs, as the end of a sentence."""
    told = [f"{samples[name][0]} of the {samples[name][1]} epochs of {name}" for name in shown if name in samples]
    return f" (traces hold {', '.join(told)})" if told else ""


def _ordered(kinds: Iterable[str]) -> list[str]:
    """Kinds of tasks as they follow each other in an epoch."""
    return sorted(set(kinds), key=lambda kind: (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind))


def _kind_colour(kind: str, kinds: Sequence[str]) -> str:
    """Muted for what was in vain, else by its place."""
    return theme.MUTED.light if kind == IN_VAIN else theme.series(1 + kinds.index(kind))


def _lane_ticks(lanes: Sequence[str]) -> tuple[list[float], list[str]]:
    """A label for each resource, in the middle of its lanes."""
    resources = list(dict.fromkeys(lane.rsplit(" ", 1)[0] for lane in lanes))
    middles = [
        float(np.mean([place for place, lane in enumerate(lanes) if lane.rsplit(" ", 1)[0] == resource]))
        for resource in resources
    ]
    return middles, resources
