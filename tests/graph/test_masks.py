"""Masks: integers are read in the only way they can be meant, or not at all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dorylax.graph.array_names import MASKS
from dorylax.graph.labels import as_mask, checked_masks
from dorylax.graph.validate import GraphError


@pytest.mark.parametrize("num_vertices", [1, 2, 3])
def test_integers_are_never_guessed(num_vertices: int) -> None:
    """All short arrays of small integers: as a mask, as vertices, refused; both only below three vertices."""
    both = 0
    for length in range(1, 4):
        for values in product(range(-1, num_vertices + 2), repeat=length):
            mask = length == num_vertices and set(values) <= {0, 1}
            vertices = len(set(values)) == length and set(values) <= set(range(num_vertices))
            both += mask and vertices
            if mask == vertices:
                with pytest.raises(GraphError, match="may be a mask or a list" if mask else "neither a mask"):
                    as_mask("train_mask", list(values), num_vertices)
                continue
            expected = np.array(values, bool) if mask else np.isin(np.arange(num_vertices), values)
            np.testing.assert_array_equal(as_mask("train_mask", np.array(values), num_vertices), expected)
    assert (both > 0) == (num_vertices < 3)


def test_without_masks_all_labelled_vertices_train() -> None:
    masks = checked_masks(dict.fromkeys(MASKS), np.array([0, -1, 1], np.int32))
    assert [mask.tolist() for mask in masks.values()] == [[True, False, True], [False] * 3, [False] * 3]
