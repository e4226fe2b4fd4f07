from __future__ import annotations

import pytest

from dorylax.runs.result import EpochRecord, Timings, TrainResult, best_epoch


def history(values, seconds=None):
    seconds = seconds or [1.0] * len(values)
    return [
        EpochRecord(i, 1.0 + i, None if v == "-" else 0.5, None if v == "-" else v, None if v == "-" else i / 10, s)
        for i, (v, s) in enumerate(zip(values, seconds, strict=True))
    ]


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([], None),
        (["-", "-"], None),
        ([0.1, 0.3, 0.2], 1),
        ([0.3, 0.1, 0.3], 0),
        (["-", 0.2, "-", 0.4, "-"], 3),
        ([None, None, None, "-"], 2),
    ],
)
def test_best_epoch(values, best):
    assert best_epoch(history(values)) == best


def result(records):
    return TrainResult(records, None, None, best_epoch(records), "epochs", Timings())


def test_accuracy_is_at_the_best_epoch():
    assert result(history([0.1, 0.3, 0.3])).test_accuracy == 0.1
    assert result(history([0.1, 0.3, 0.3])).val_accuracy == 0.3
    assert result(history(["-"])).test_accuracy is None


def test_seconds_per_epoch_is_the_median_without_the_first():
    assert result(history([0.1] * 4, [90.0, 1.0, 8.0, 2.0])).seconds_per_epoch == 2.0
    assert result(history([0.1], [90.0])).seconds_per_epoch == 90.0
    assert result([]).seconds_per_epoch is None
    assert result([]).final_loss is None


def test_record_round_trip():
    record = history([0.25])[0]
    assert EpochRecord.from_dict(record.to_dict()) == record
    with pytest.raises(ValueError, match="fields"):
        EpochRecord.from_dict({**record.to_dict(), "more": 1})


@pytest.mark.parametrize("metric", ["roc_auc", "mae", "loss", "accuracy", "micro_f1"])
def test_a_record_holds_any_metric(metric):
    record = EpochRecord.judged(3, 1.5, [0.25, None, 0.75], metric, seconds=1.0)
    assert (record.score("train"), record.score("val"), record.score("test")) == (0.25, None, 0.75)
    assert record.evaluated
    assert not record.validated
    assert EpochRecord.from_dict(record.to_dict()) == record
    assert record.unevaluated() == EpochRecord.judged(3, 1.5, [None, None, None], metric, seconds=1.0)


def test_fields_of_scores_are_there_together_or_not_at_all():
    fields = EpochRecord.judged(0, 1.0, [0.5, 0.5, 0.5], "roc_auc", seconds=1.0).to_dict()
    assert {"metric", "train_score", "val_score", "test_score"} < fields.keys()
    del fields["val_score"]
    with pytest.raises(ValueError, match="fields"):
        EpochRecord.from_dict(fields)
    assert "metric" not in history([0.5])[0].to_dict()


@pytest.mark.parametrize(("metric", "best"), [("mae", 2), ("roc_auc", 1)])
def test_the_best_epoch_knows_which_way_is_better(metric, best):
    values = [0.4, 0.6, 0.2, 0.6, 0.2]
    records = [EpochRecord.judged(i, 1.0, [v, v, i / 10], metric, seconds=1.0) for i, v in enumerate(values)]
    found = TrainResult(records, None, None, best_epoch(records), "epochs", Timings(), metric=metric)
    assert found.best_epoch == best
    assert found.test_score == best / 10
    assert found.val_accuracy is found.val_loss is None
    summary = found.summary()
    assert (summary["val_score"], summary["test_score"]) == (values[best], best / 10)
