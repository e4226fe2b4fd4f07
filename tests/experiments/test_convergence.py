"""The protocol by which convergence is judged."""

from __future__ import annotations

import pytest

from dorylax.experiments.measures import crossing, target_of


def test_crossing_is_judged_on_the_mean_of_three_epochs():
    # A single epoch above the target does not count; the window that reaches it ends at epoch 6.
    accuracies = [0.1, 0.9, 0.1, 0.7, 0.8, 0.9, 0.9]
    assert crossing(accuracies, 0.75) == 6
    assert crossing([0.8, 0.8, 0.8], 0.79) == 3


def test_a_run_may_never_cross():
    assert crossing([0.1] * 50, 0.5) is None
    assert crossing([0.9, 0.9], 0.5) is None


def test_target():
    assert target_of([0.8, 0.9]) == pytest.approx(0.84)
    with pytest.raises(ValueError, match="at least one run"):
        target_of([])
