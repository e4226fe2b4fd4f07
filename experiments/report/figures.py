"""The figures of a report, by matplotlib: for each group of variants what it took to learn what.

Each function draws one figure at a width in inches, so that a page has one for screens and one for phones.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Compared, Group, RunHistory, Variant
from dorylax.experiments.comparison import Interval
from dorylax.experiments.report import theme
from dorylax.experiments.report.tables import TURNED
from dorylax.experiments.report.timeline import IN_VAIN, TimelineTask

Draw = Callable[[float], Figure]

_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "font.family": "sans-serif",
    "svg.fonttype": "none",  # text stays text: it can be searched, and has the page's font
    "svg.hashsalt": "dorylax",  # the same bytes from the same numbers
    "axes.edgecolor": theme.LINE.light,
    "axes.labelcolor": theme.MUTED.light,
    "axes.titlecolor": theme.INK.light,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": theme.LINE.light,
    "grid.linewidth": 0.6,
    "xtick.color": theme.MUTED.light,
    "ytick.color": theme.MUTED.light,
    "text.color": theme.INK.light,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
}
_KINDS = ("GA", "AV", "SC", "AE", "AV+∇AV", "∇GA", "∇AV", "∇SC", "∇AE", "network", "finish", "WU", IN_VAIN)
_SHORT = 14  # letters of a name of which two go side by side on a phone
_NARROW = 5.0  # inches; below it legends go under the axes


class NamedFigure(NamedTuple):
    """A figure.

    Attributes:
        name: for its files.
        title: above it.
        text: what it shows, for those who cannot see it.
        draw: makes it, in a width of so many inches.
    """

    name: str
    title: str
    text: str
    draw: Draw


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib as reports use it, whatever the user has set."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def svg(draw: Draw, width: float) -> str:
    """A figure as SVG without prologue; the same bytes every time."""
    with styled():
        figure = draw(width)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    text = stream.getvalue()
    return text[text.index("<svg") :]


def png(draw: Draw, width: float) -> bytes:
    """A figure as PNG, on white."""
    with styled():
        stream = io.BytesIO()
        draw(width).savefig(stream, format="png", dpi=160, facecolor=theme.PAPER.light, metadata={"Software": None})
    return stream.getvalue()


# Accuracy against what it took.


def accuracy_figures(group: Group, name: str) -> list[NamedFigure]:
    """Validation accuracy against epochs, time and dollars, with bands over the seeds."""
    runs = [run for variant in group.variants for run in variant.runs]
    virtual = all(run.run.virtual for run in runs)
    against: list[tuple[str, str, Callable[[RunHistory], list[float] | None]]] = [
        ("epochs", "epochs", _epochs),
        ("time", "seconds of virtual time" if virtual else "seconds of training", _seconds),
    ]
    if runs and all(_dollars(run) is not None for run in runs):
        against.append(("cost", "US dollars", _dollars))
    figures = []
    for what, label, axis in against:

        def draw(width: float, axis: Any = axis, label: str = label) -> Figure:
            figure, axes = _axes(width, 0.56)
            for place, variant in enumerate(group.variants):
                _curve(axes, variant, axis, theme.series(place))
            if group.target is not None:
                axes.axhline(100 * group.target, color=theme.MUTED.light, linewidth=1, linestyle=(0, (4, 3)))
                axes.annotate(
                    "target",
                    (1, 100 * group.target),
                    xycoords=("axes fraction", "data"),
                    ha="right",
                    va="bottom",
                    color=theme.MUTED.light,
                    fontsize=8.5,
                )
            axes.set_xlabel(label)
            axes.set_ylabel("validation accuracy, %")
            axes.set_xlim(left=0)
            axes.set_ylim(*_span(group))
            _legend(figure, axes, width)
            return figure

        title = f"Accuracy against {what}"
        text = f"{title}: a line for each of {_names(group)}; means over seeds, with bootstrap 95 % bands."
        figures.append(NamedFigure(f"{name}accuracy-{what}", title, text, draw))
    return figures


def _epochs(run: RunHistory) -> list[float]:
    return [float(record.epoch + 1) for record in run.evaluated]


def _seconds(run: RunHistory) -> list[float]:
    passed = np.cumsum([record.seconds for record in run.history])
    return [float(passed[record.epoch]) for record in run.evaluated]


def _dollars(run: RunHistory) -> list[float] | None:
    found = [record.dollars for record in run.evaluated]
    return None if not found or any(value is None for value in found) else [float(value or 0.0) for value in found]


def _curve(axes: Axes, variant: Variant, axis: Callable[[RunHistory], list[float] | None], colour: str) -> None:
    """The mean over seeds, where all of them still run."""
    curves = [(axis(run), [100 * (record.val_accuracy or 0.0) for record in run.evaluated]) for run in variant.runs]
    known = [(x, y) for x, y in curves if x]
    if not known:
        axes.plot([], [], color=colour, label=f"{variant.name} (none done)")
        return
    first, last = max(x[0] for x, _ in known), min(x[-1] for x, _ in known)
    grid = np.asarray(known[0][0]) if all(x == known[0][0] for x, _ in known) else np.linspace(first, last, 120)
    values = np.asarray([np.interp(grid, x, y) for x, y in known])
    axes.plot(grid, values.mean(axis=0), color=colour, label=variant.name)
    if len(known) > 1:
        chosen = np.random.default_rng(0).integers(0, len(known), (1000, len(known)))
        low, high = np.percentile(values[chosen].mean(axis=1), [2.5, 97.5], axis=0)
        axes.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)


def _span(group: Group) -> tuple[float, float]:
    """From where the curves have left their beginning, so that what matters is seen."""
    values = [
        100 * (record.val_accuracy or 0.0)
        for variant in group.variants
        for run in variant.runs
        for record in run.evaluated
    ]
    if not values:
        return 0.0, 100.0
    low, high = np.percentile(values, 15), max(values)
    room = max(0.5, 0.06 * (high - low))
    return max(0.0, float(low) - room), min(100.0, high + room)


# What it took, relative to the baseline.


def ratio_figure(group: Group, name: str) -> NamedFigure | None:
    """Epochs, time and cost to the target relative to the baseline, with intervals."""
    rows = [(place, one, one.compared) for place, one in enumerate(group.variants) if one.compared is not None]
    rows = [(place, one, found) for place, one, found in rows if not one.is_baseline]
    base = next((one.name for one in group.variants if one.is_baseline), None)
    if not rows or base is None:
        return None
    measures = [("epochs", "epochs_ratio"), ("time", "seconds_ratio"), ("cost", "dollars_ratio")]
    measures = [entry for entry in measures if any(getattr(found, entry[1]) is not None for _, _, found in rows)]

    def draw(width: float) -> Figure:
        side_by_side = width >= _NARROW
        shape = (1, len(measures)) if side_by_side else (len(measures), 1)
        height = 0.34 * len(rows) + 0.75
        figure = Figure((width, height if side_by_side else height * len(measures)), layout="constrained")
        all_axes = np.ravel(np.asarray(figure.subplots(*shape, squeeze=False)))
        for place, (axes, (what, attribute)) in enumerate(zip(all_axes, measures, strict=True)):
            _forest(axes, rows, attribute)
            axes.set_title(f"{what} to target, × {base}")
            if side_by_side and place:
                axes.set_yticklabels([])
        return figure

    title = f"To the target, relative to {base}"
    text = f"{title}: " + " ".join(group.sentences)
    return NamedFigure(f"{name}ratios", title, text, draw)


def _forest(axes: Axes, rows: Sequence[tuple[int, Variant, Compared]], attribute: str) -> None:
    axes.axvline(1, color=theme.MUTED.light, linewidth=1)
    for row, (place, _, found) in enumerate(rows):
        ratio: Interval | None = getattr(found, attribute)
        if ratio is None:
            continue
        colour = theme.series(place)
        axes.plot([ratio.low, ratio.high], [row, row], color=colour, linewidth=2.4, solid_capstyle="butt")
        # Open where some runs never came there: it is a bound.
        axes.plot(ratio.estimate, row, "o", color=colour, markersize=6, fillstyle="none" if found.sign else "full")
        label = f"{found.sign}{ratio.estimate:.2f}"
        axes.annotate(label, (ratio.estimate, row), (0, 6), textcoords="offset points", ha="center", fontsize=8.5)
    axes.set_yticks(range(len(rows)), [variant.name for _, variant, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.75)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    axes.tick_params(axis="y", length=0)


def value_figure(group: Group, name: str) -> NamedFigure | None:
    """Value, 1/(time · dollars) to the target, relative to the baseline: a bar each."""
    rows = [(place, one) for place, one in enumerate(group.variants) if one.compared is not None]
    if not any(one.compared is not None and one.compared.value_ratio is not None for _, one in rows):
        return None
    base = next(one.name for one in group.variants if one.is_baseline)

    def value(variant: Variant) -> float:
        found = variant.compared
        return 1.0 if found is None or found.value_ratio is None else found.value_ratio

    def draw(width: float) -> Figure:
        figure = Figure((width, 0.3 * len(rows) + 0.7), layout="constrained")
        axes = figure.subplots()
        for row, (place, variant) in enumerate(rows):
            axes.barh(row, value(variant), color=theme.series(place), height=0.62)
            sign = "" if variant.compared is None or variant.is_baseline else TURNED[variant.compared.sign]
            label = f" {sign}{value(variant):.2f}"
            axes.annotate(label, (value(variant), row), va="center", fontsize=8.5)
        axes.set_yticks(range(len(rows)), [variant.name for _, variant in rows])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.12)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"value, 1/(time · dollars), × {base}")
        return figure

    text = "Value relative to " + base + ": " + ", ".join(f"{one.name} {value(one):.2f}" for _, one in rows)
    return NamedFigure(f"{name}value", "Value", text, draw)


# What happened inside.


def staleness_figure(group: Group, name: str) -> NamedFigure | None:
    """How many epochs rows were behind their readers."""
    shares = {variant.name: _lags(variant) for variant in group.variants}
    lags = sorted({lag for found in shares.values() for lag in found})
    if not any(lag != 0 for lag in lags):
        return None
    shown = [(place, variant) for place, variant in enumerate(group.variants) if shares[variant.name]]

    def draw(width: float) -> Figure:
        figure, axes = _axes(width, 0.42)
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
        _legend(figure, axes, width)
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


def breakdown_figure(spans: dict[str, dict[str, float]], name: str) -> NamedFigure | None:
    """Where each variant's task time goes, by kind of task: bars of seconds per epoch.

    Args:
        spans: seconds per epoch by kind of task, by variant.
        name: for its file.
    """
    kinds = _ordered(kind for found in spans.values() for kind in found)
    if not kinds:
        return None

    def draw(width: float) -> Figure:
        figure = Figure((width, 0.34 * len(spans) + 1.3), layout="constrained")
        axes = figure.subplots()
        for row, found in enumerate(spans.values()):
            left = 0.0
            for kind in kinds:
                seconds = found.get(kind, 0.0)
                axes.barh(row, seconds, left=left, color=_kind_colour(kind, kinds), height=0.62)
                left += seconds
        for kind in kinds:
            axes.barh(0, 0, color=_kind_colour(kind, kinds), label=kind)
        axes.set_yticks(range(len(spans)), list(spans))
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("seconds of tasks per epoch")
        _legend(figure, axes, 0.0, columns=len(kinds) if width >= _NARROW else 3)
        return figure

    parts = [
        f"{variant}: " + ", ".join(f"{kind} {seconds:.3g} s" for kind, seconds in found.items())
        for variant, found in spans.items()
    ]
    return NamedFigure(
        f"{name}tasks",
        "Where task time goes",
        "Seconds of tasks per epoch, of all servers and functions together. " + "; ".join(parts),
        draw,
    )


def timeline_figure(variants: dict[str, list[TimelineTask]], name: str) -> NamedFigure | None:
    """What ran when in one epoch of each variant: a row for each lane of each resource of the first server.

    Args:
        variants: tasks of an epoch, in seconds since it began.
        name: for its file.
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
        figure = Figure((width, sum(heights) + 0.9), layout="constrained")
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
            axes.set_title(variant)
            axes.set_yticks(*_lane_ticks(lanes[variant]), fontsize=8)
            axes.invert_yaxis()
            axes.grid(visible=False)
            axes.set_xlim(0, last)
            axes.tick_params(axis="y", length=0)
        rows[-1].set_xlabel("seconds since the epoch began")
        handles = [rows[0].barh(0, 0, color=colours[kind]) for kind in kinds]
        figure.legend(handles, kinds, loc="outside lower center", ncols=len(kinds) if width >= _NARROW else 3)
        return figure

    title = "What ran when, in one epoch"
    text = (
        f"{title}: tasks of one epoch on the first graph server and the parameter servers, by resource, for "
        f"{', '.join(variants)}. All have the same scale."
    )
    return NamedFigure(f"{name}timelines", title, text, draw)


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


# Common parts.


def _axes(width: float, ratio: float) -> tuple[Figure, Axes]:
    figure = Figure((width, max(2.4, width * ratio)), layout="constrained")
    return figure, figure.subplots()


def _legend(figure: Figure, axes: Axes, width: float, *, columns: int | None = None) -> None:
    """Beside the axes where there is room, else under them."""
    handles, labels = axes.get_legend_handles_labels()
    if width >= _NARROW:
        figure.legend(handles, labels, loc="outside right upper")
    else:
        short = max(map(len, labels), default=0) <= _SHORT
        figure.legend(handles, labels, loc="outside lower center", ncols=columns or (2 if short else 1))


def _names(group: Group) -> str:
    return ", ".join(variant.name for variant in group.variants)
