"""The history of a run as columns of a frame, and as a figure."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dorylax.columns import column
from dorylax.figure_style import MUTED, PAPER, series, styled
from dorylax.runs.metric import MetricKind

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

_KINDS = {"int": int, "float": float, "str": str}
_SPLITS = {"train": "training", "val": "validation", "test": "test"}


def columns_of(kind: type[Any], histories: Sequence[Sequence[Any]]) -> dict[str, pandas.Series]:
    """Return a column for each field of the records, run after run, and `time`, the training seconds so far.

    Args:
        kind: Type of the records (`EpochRecord`); its fields are numbers or names.
        histories: Records of each run.
    """
    records = list(itertools.chain.from_iterable(histories))
    columns = {
        field.name: column([getattr(record, field.name) for record in records], _KINDS[str(field.type).split(" ")[0]])
        for field in dataclasses.fields(kind)
    }
    times = [itertools.accumulate(record.seconds for record in history) for history in histories]
    columns["time"] = column(list(itertools.chain.from_iterable(times)), float)
    return columns


@final
class CurveFigure(Figure):
    """A figure that notebooks show with and without pyplot."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=110, facecolor=PAPER.light)
        return stream.getvalue()


def plot(history: Sequence[Any], best_epoch: int | None, metric: MetricKind) -> Figure:
    """Draw two panels: the training loss, and the metric that judges the run.

    Args:
        history: Records of the run.
        best_epoch: Its best epoch, or None.
        metric: Its metric.
    """
    with styled():
        figure = CurveFigure((8.4, 3.2), layout="constrained")
        loss, judged = figure.subplots(1, 2)
        epochs = [record.epoch for record in history]
        loss.plot(epochs, [record.loss for record in history], color=series(0))
        _label(loss, "training loss, with dropout")
        scale = 100 if metric.fraction else 1
        for place, (split, name) in enumerate(_SPLITS.items()):
            scores = [(record.epoch, record.score(split)) for record in history]
            known = [(epoch, scale * value) for epoch, value in scores if value is not None]
            if known:
                judged.plot(*zip(*known, strict=True), color=series(place), label=name)
        if best_epoch is not None:
            judged.axvline(best_epoch, color=MUTED.light, linewidth=1, linestyle=(0, (4, 3)))
            left = best_epoch > 0.6 * max(epochs)
            judged.annotate(
                f"best epoch, {best_epoch}",
                (best_epoch, 0),
                xycoords=("data", "axes fraction"),
                xytext=(-4 if left else 4, 4),
                textcoords="offset points",
                ha="right" if left else "left",
                color=MUTED.light,
                fontsize=8.5,
            )
            judged.legend(loc="best")
        _label(judged, f"{metric.title}, %" if metric.fraction else metric.title)
        return figure


def _label(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("epoch")
    axes.set_xlim(left=0)
