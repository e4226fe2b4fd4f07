from __future__ import annotations

import numpy as np
import pytest

from dorylax.runs.result import EpochRecord, Timings, TrainResult, best_epoch


def result(records: list[EpochRecord], metric: str = "accuracy") -> TrainResult:
    return TrainResult(records, {"w": np.ones((500, 40))}, {}, best_epoch(records), "epochs", Timings(), metric)  # type: ignore[arg-type]


CLASSES = [EpochRecord(k, 1 / (k + 1), 0.5, None if k == 1 else 0.1 * k, 0.3, 0.5) for k in range(3)]
TARGETS = [EpochRecord(k, 1.0, None, None, None, 0.5, None, 3.0 - k, 4.0 - k, None) for k in range(3)]
PAIRS = [EpochRecord.judged(k, 1.0, (0.6, 0.5 + 0.1 * k, None), "roc_auc", seconds=0.5) for k in range(3)]


def test_frame_has_what_the_epochs_have() -> None:
    table = result(CLASSES).frame()
    assert list(table) == ["epoch", "loss", "train_accuracy", "val_accuracy", "test_accuracy", "seconds", "time"]
    assert table["epoch"].dtype == np.int64
    assert table["time"].tolist() == [0.5, 1.0, 1.5]
    assert np.isnan(table["val_accuracy"][1])
    assert table.loc[table["val_accuracy"].idxmax(), "epoch"] == 2
    assert "val_loss" in result(TARGETS, "loss").frame()
    assert result([]).frame().empty
    assert "time" in result([]).frame()


@pytest.mark.parametrize(
    ("records", "metric", "title", "lines"),
    [
        (CLASSES, "accuracy", "accuracy, %", ["training", "validation", "test"]),
        (CLASSES, "micro_f1", "micro-F1, %", ["training", "validation", "test"]),
        (TARGETS, "loss", "loss", ["training", "validation"]),
        (PAIRS, "roc_auc", "ROC-AUC, %", ["training", "validation"]),
        ([], "accuracy", "accuracy, %", []),
    ],
)
def test_plot(records: list[EpochRecord], metric: str, title: str, lines: list[str]) -> None:
    figure = result(records, metric).plot()
    loss, judged = figure.axes
    assert loss.lines[0].get_ydata().tolist() == [record.loss for record in records]  # type: ignore[union-attr]
    assert judged.get_title(loc="left") == title
    assert [line.get_label() for line in judged.lines if not str(line.get_label()).startswith("_")] == lines
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_a_result_is_a_line() -> None:
    text = repr(result(CLASSES))
    assert text == (
        "TrainResult(stopped='epochs', epochs=3, metric='accuracy', best_epoch=2, val_accuracy=0.2, test_accuracy=0.3, "
        "final_loss=0.3333, still_falling=False, seconds_per_epoch=0.5)"
    )
