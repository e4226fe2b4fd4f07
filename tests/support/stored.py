"""Arrays of a data set on disk."""

from __future__ import annotations

from os import PathLike

import numpy as np

from dorylax.graph.dataset import Dataset
from dorylax.graph.stored import open_arrays


def contents(path: str | PathLike[str]) -> dict[str, np.ndarray]:
    """All arrays and values of a folder or archive, in memory."""
    with open_arrays(path) as stored:
        return {name: np.array(stored.fetch(name)) for name in stored.names}


def assert_same_data(found: Dataset, expected: Dataset) -> None:
    """The same data in the same memory order, with values of the same types."""
    for name in ("features", "labels", "class_names", "original_ids", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for name in ("name", "num_classes", "multilabel"):
        assert getattr(found, name) == getattr(expected, name)
    for inputs in ("vertex_inputs", "edge_inputs"):
        assert getattr(found, inputs).keys() == getattr(expected, inputs).keys()
        for name, values in getattr(found, inputs).items():
            np.testing.assert_array_equal(values, getattr(expected, inputs)[name], err_msg=name, strict=True)
    one, other = found.graph, expected.graph
    for ours, theirs in zip(one.host_rows(), other.host_rows(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (one.symmetric, one.self_loops, one.num_edge_ids) == (other.symmetric, other.self_loops, other.num_edge_ids)
    for field in ("vertex_ids", "edge_order", "edge_ids"):
        ours, theirs = getattr(one, field), getattr(other, field)
        if ours is None or theirs is None:
            assert ours is None or np.array_equal(ours, np.arange(len(ours))), field
            assert theirs is None or np.array_equal(theirs, np.arange(len(theirs))), field
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=field)
