"""Metrics by name: each has a kind and labels that it is for, and says where it is not defined."""

from __future__ import annotations

import typing

import numpy as np
import pytest

from dorylax.errors import InputError
from dorylax.metrics.catalogue import MEASURES, check_defined, check_metric
from dorylax.runs.metric import METRICS, MetricName


def test_every_metric_has_a_name_and_a_way_to_compute_it() -> None:
    assert {*MEASURES, "loss"} == METRICS.keys() == set(typing.get_args(MetricName))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("mae", "classes", "is not for one class for each example: choose one of accuracy,"),
        ("accuracy", "targets", "is not for targets"),
        ("mrr", "several", "is not for several classes"),
        ("auc", "pairs", "is no metric: choose one of roc_auc,"),
    ],
)
def test_labels_of_another_kind_are_refused(name: str, kind: typing.Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_metric(name, kind)


def test_the_loss_is_for_all() -> None:
    for kind in ("classes", "several", "pairs", "targets"):
        check_metric("loss", kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [np.zeros(6, np.int32), np.ones((6, 2), np.float32), np.zeros(6, np.float32)])
def test_a_rank_among_one_class_is_refused_and_says_where(labels: np.ndarray) -> None:
    masks = {"train_mask": np.arange(6) < 0, "val_mask": np.arange(6) < 3}
    with pytest.raises(InputError, match="roc_auc is not defined on val_mask: it needs examples that are of a class"):
        check_defined("roc_auc", labels, masks)
    check_defined("accuracy", labels, masks)


def test_an_empty_mask_needs_nothing() -> None:
    check_defined("roc_auc", np.zeros(3, np.int32), {"test_mask": np.zeros(3, bool)})
