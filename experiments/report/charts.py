"""Figures of the findings: accuracy curves, ratios to the baseline, and ratios beside published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Finding, Group, Variant
from dorylax.experiments.conclusions import WITHIN
from dorylax.experiments.measures import RATIO
from dorylax.experiments.report.figures import NARROW, NamedFigure, counts, forest, legend, logarithmic, one_axes
from dorylax.experiments.report.tables import ratio_title
from dorylax.experiments.seed_statistics import FEW, band
from dorylax.figure_style import MUTED, PANEL, SERIES, series


def accuracy_figure(group: Group, against: str, name: str, ratio: float = 0.5) -> NamedFigure | None:
    """Plot validation accuracy against `epochs`, `time` or `cost`, with the target and bands over the seeds.

    Returns None for simulated runs, if the metric is not a fraction, no run is done, or a run lacks the cost.
    """
    runs = [run for variant in group.variants for run in variant.runs]
    if not group.metric.fraction or not runs or group.simulated:
        return None
    if against == "cost" and any(record.dollars is None for run in runs for record in run.evaluated):
        return None
    axis = {"epochs": "epochs", "time": f"{group.times}seconds", "cost": f"{group.times}US dollars"}[against]
    curves = {variant.name: _curve(variant, against) for variant in group.variants}
    around, scores = _around(group), [100 * score for run in runs for score in run.scores]
    low, high = (np.percentile(scores, 15), max(scores)) if scores else (0.0, 100.0)  # cuts off the start of the curves
    room = max(0.5, 0.06 * (high - low))

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, ratio if width >= NARROW else 0.72)
        for place, (title, curve) in enumerate(curves.items()):
            # Colors repeat; lines of the second round are dashed.
            style: dict[str, Any] = {"color": series(place), "linestyle": ("-", "--", ":")[place // len(SERIES) % 3]}
            label = title if len(curve) else f"{title} (none done)"
            axes.plot(curve["x"], curve["mean"], label=label, **style)
            axes.fill_between(curve["x"], curve["low"], curve["high"], color=style["color"], alpha=0.18, linewidth=0)
        if group.target is not None:
            target = f"target, {100 * group.target:.1f} %"
            axes.axhline(100 * group.target, color=MUTED.light, linewidth=1, linestyle=(0, (4, 3)), label=target)
        if around:
            axes.fill_between([], [], [], color=MUTED.light, alpha=0.25, linewidth=0, label=around)
        axes.set(xlabel=axis, ylabel=f"validation {group.metric.title}, %")
        axes.set(ylim=(max(0.0, low - room), min(100.0, high + room)))
        axes.set_xlim(left=0)
        legend(figure, axes, width)
        return figure

    title = f"{group.metric.title[0].upper()}{group.metric.title[1:]} against {against}"
    text = f"{title}: mean over seeds of {', '.join(curves)}" + (f"; {around}" if around else "") + "."
    data = pandas.concat([curve.assign(variant=title) for title, curve in curves.items()], ignore_index=True)
    columns = {"x": axis, "mean": "mean_percent", "low": "low_percent", "high": "high_percent"}
    return NamedFigure(f"{name}accuracy-{against}", title, text.replace("\n", " "), draw, data.rename(columns=columns))


def _curve(variant: Variant, against: str) -> pandas.DataFrame:
    """Compute the mean over the seeds and its band, over the range common to all seeds."""
    curves = []
    for run in variant.runs:
        seconds, records = np.cumsum([record.seconds for record in run.history]), run.evaluated
        of = {
            "epochs": [float(one.epoch + 1) for one in records],
            "time": [float(seconds[one.epoch]) for one in records],
            "cost": [float(one.dollars or 0.0) for one in records],
        }
        if records:
            curves.append((of[against], [100 * score for score in run.scores]))
    if not curves:
        return pandas.DataFrame({name: [] for name in ("x", "mean", "low", "high")}, dtype=float)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.asarray(curves[0][0]) if all(x == curves[0][0] for x, _ in curves) else np.linspace(first, last, 120)
    values = np.asarray([np.interp(grid, x, y) for x, y in curves])
    low, high = band(values)
    return pandas.DataFrame({"x": grid, "mean": values.mean(axis=0), "low": low, "high": high})


def _around(group: Group) -> str:
    """Return the legend of the bands; empty without bands."""
    seeds = sorted({len(variant.runs) for variant in group.variants if len(variant.runs) > 1})
    if not seeds:
        return ""
    if seeds[-1] < FEW:
        return f"band: range of {counts(seeds)} seeds"
    few = "" if seeds[0] >= FEW else f"\n(of fewer than {FEW}: their range)"
    return f"band: 95 % interval of\nthe mean of {counts(seeds)} seeds{few}"


def overview(groups: Sequence[Group], pooled: Sequence[Finding], name: str) -> NamedFigure | None:
    """Plot the compared measure in each group and its mean over groups, with one panel per variant."""
    measure, rows = pooled[0].measure, []
    for place, variant in enumerate(dict.fromkeys(one.name for group in groups for one in group.findings)):
        for group in groups:
            found = next((one for one in group.findings if one.name == variant), None)
            theirs = group.published_ratio(variant, measure)
            rows.append(_mark(variant, group.name, found, measure, color=series(1 + place), theirs=theirs))
        rows += [_mark(variant, "mean over groups", one, measure) for one in pooled if one.name == variant]
    accuracy = measure == "accuracy"
    of = "points of test accuracy" if accuracy else ratio_title(groups[0], measure)
    source = groups[0].source if any(group.published for group in groups) else None
    return forest(name, f"In each group: {of}, relative to the baseline", rows, 0.0 if accuracy else 1.0, source)


def ratio_figure(group: Group, name: str) -> NamedFigure | None:
    """Plot the ratios to the baseline in one group, with one panel per measure."""
    if group.baseline is None or not group.findings:
        return None
    time = "seconds" if f"seconds{RATIO}" in group.published else "epoch_seconds"
    rows = [
        _mark(
            title, one.name, one.finding, measure, color=series(place), theirs=group.published_ratio(one.name, measure)
        )
        for measure in ((time, "dollars", "value") if group.simulated else group.measures)
        for title in [ratio_title(group, measure)]
        for place, one in enumerate(group.variants)
        if one.finding is not None and not one.is_baseline
    ]
    title = f"Relative to {group.baseline.name}" + ("" if group.simulated else ", until the target is reached")
    return forest(name, title, rows, source=group.source if group.published else None)


def _mark(
    panel: str, row: str, found: Finding | None, measure: str, *, color: str = "", theirs: float | None = None
) -> dict[str, Any]:
    """Build a row of `forest`: the ratio of a measure, or the difference of accuracies in points."""
    mark = {"panel": panel, "row": row, "color": color, "published": theirs, "bound": ""}
    if found is None or not found.compared:
        return mark
    scale, known = (100.0, found.differences) if measure == "accuracy" else (1.0, found.ratios)
    if (one := known.get(measure)) is None:
        return mark
    bound = "" if measure == "accuracy" else found.sign or ""
    ends = {"estimate": scale * one.estimate, "low": scale * one.low, "high": scale * one.high}
    return {**mark, **ends, "seeds": one.seeds, "bound": bound}


def agreement_figure(pairs: pandas.DataFrame) -> NamedFigure:
    """Plot our ratios against the published ones, with one color per part."""
    ends = pairs[["published", "ours"]].to_numpy()
    line = np.asarray([ends.min() / 1.2, ends.max() * 1.2])

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, 0.46)
        near = f"within {100 * WITHIN:.0f} %"
        axes.fill_between(line, (1 - WITHIN) * line, (1 + WITHIN) * line, color=PANEL.light, linewidth=0, label=near)
        axes.plot(line, line, color=MUTED.light, linewidth=1)
        for place, (part, mine) in enumerate(pairs.groupby("part", sort=False)):
            axes.plot(mine["published"], mine["ours"], "o", color=series(1 + place), markersize=5, label=part)
        for which in ("x", "y"):
            logarithmic(axes, which)
        axes.set(xlabel="published ratio", ylabel="our ratio", xlim=line, ylim=line)
        legend(figure, axes, width)
        return figure

    told = [f"{row.number}: ours {row.ours:.2f}, published {row.published:.2f}" for row in pairs.itertuples()]
    title = "Our ratios beside the published ones"
    data = pairs[["part", "number", "published", "ours"]]
    return NamedFigure("published", title, f"{title}. " + "; ".join(told), draw, data)
