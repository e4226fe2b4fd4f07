"""Accuracy against what it took: epochs, time, dollars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Group, RunHistory, Variant
from dorylax.experiments.report import theme
from dorylax.experiments.report.figures import NamedFigure, legend, one_axes
from dorylax.experiments.seed_statistics import FEW, band
from dorylax.experiments.sentences import capitalised


def accuracy_figures(group: Group, name: str) -> list[NamedFigure]:
    """Validation accuracy, or what else runs are judged by, against epochs, time and dollars, with bands over the seeds.

    None of what is no share, and so has no percentages.
    """
    if not group.metric.fraction:
        return []
    runs = [run for variant in group.variants for run in variant.runs]
    virtual = all(run.run.virtual for run in runs)
    against: list[tuple[str, str, Callable[[RunHistory], list[float] | None]]] = [
        ("epochs", "epochs", _epochs),
        ("time", "seconds of virtual time" if virtual else "seconds of training", _seconds),
    ]
    if runs and all(_dollars(run) is not None for run in runs):
        against.append(("cost", "US dollars", _dollars))
    figures = []
    around = _around(group)
    for what, label, axis in against:

        def draw(width: float, axis: Any = axis, label: str = label) -> Figure:
            figure, axes = one_axes(width, 0.56)
            for place, variant in enumerate(group.variants):
                # Colours come again after some; lines of the second round are dashed.
                style = ("-", "--", ":")[place // len(theme.SERIES) % 3]
                _curve(axes, variant, axis, {"color": theme.series(place), "linestyle": style})
            if group.target is not None:
                target, dashes = 100 * group.target, (0, (4, 3))
                named = f"target, {target:.1f} %"
                axes.axhline(target, color=theme.MUTED.light, linewidth=1, linestyle=dashes, label=named)
            if around:
                axes.fill_between([], [], [], color=theme.MUTED.light, alpha=0.25, linewidth=0, label=around)
            axes.set_xlabel(label)
            axes.set_ylabel(f"validation {group.metric.title}, %")
            axes.set_xlim(left=0)
            axes.set_ylim(*_span(group))
            legend(figure, axes, width)
            return figure

        title = f"{capitalised(group.metric.title)} against {what}"
        told = f"; {around}".replace("\n", " ") if around else ""
        text = f"{title}: a line for each of {_names(group)}; means over seeds{told}."
        figures.append(NamedFigure(f"{name}accuracy-{what}", title, text, draw))
    return figures


def _around(group: Group) -> str:
    """What the bands are; empty where there are none."""
    seeds = sorted({len(variant.runs) for variant in group.variants if len(variant.runs) > 1})
    if not seeds:
        return ""
    number = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    if seeds[-1] < FEW:
        return f"band: range of {number} seeds"
    few = "" if seeds[0] >= FEW else f"\n(of fewer than {FEW}: their range)"
    return f"band: 95 % interval of\nthe mean of {number} seeds{few}"


def _epochs(run: RunHistory) -> list[float]:
    return [float(record.epoch + 1) for record in run.evaluated]


def _seconds(run: RunHistory) -> list[float]:
    passed = np.cumsum([record.seconds for record in run.history])
    return [float(passed[record.epoch]) for record in run.evaluated]


def _dollars(run: RunHistory) -> list[float] | None:
    found = [record.dollars for record in run.evaluated]
    return None if not found or any(value is None for value in found) else [float(value or 0.0) for value in found]


def _curve(
    axes: Axes, variant: Variant, axis: Callable[[RunHistory], list[float] | None], style: Mapping[str, Any]
) -> None:
    """The mean over seeds, where all of them still run."""
    curves = [(axis(run), [100 * (record.score("val") or 0.0) for record in run.evaluated]) for run in variant.runs]
    known = [(x, y) for x, y in curves if x]
    if not known:
        axes.plot([], [], **style, label=f"{variant.name} (none done)")
        return
    first, last = max(x[0] for x, _ in known), min(x[-1] for x, _ in known)
    grid = np.asarray(known[0][0]) if all(x == known[0][0] for x, _ in known) else np.linspace(first, last, 120)
    values = np.asarray([np.interp(grid, x, y) for x, y in known])
    axes.plot(grid, values.mean(axis=0), **style, label=variant.name)
    if len(known) > 1:
        low, high = band(values)
        axes.fill_between(grid, low, high, color=style["color"], alpha=0.18, linewidth=0)


def _span(group: Group) -> tuple[float, float]:
    """From where the curves have left their beginning, so that what matters is seen."""
    values = [
        100 * (record.score("val") or 0.0)
        for variant in group.variants
        for run in variant.runs
        for record in run.evaluated
    ]
    if not values:
        return 0.0, 100.0
    low, high = np.percentile(values, 15), max(values)
    room = max(0.5, 0.06 * (high - low))
    return max(0.0, float(low) - room), min(100.0, high + room)


def _names(group: Group) -> str:
    return ", ".join(variant.name for variant in group.variants)
