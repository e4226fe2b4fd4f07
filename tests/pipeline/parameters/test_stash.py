from __future__ import annotations

import pytest

from dorylax.errors import RunError
from dorylax.pipeline.parameters.messages import Pulled
from dorylax.pipeline.parameters.stash import Stash

OLD, NEW = Pulled(3, {"w": 1}, {"n": 5}), Pulled(4, {"w": 2}, {"n": 6})


def test_the_first_pull_of_an_epoch_decides() -> None:
    stash = Stash(first=0)
    assert stash.pull(0, 0, OLD) is OLD
    assert stash.pull(0, 0, NEW) is OLD
    assert stash.pull(1, 0, NEW) is NEW
    assert len(stash) == 2
    assert stash.release(0, 0) is OLD
    assert stash.pull(0, 1, NEW) is NEW
    stash.release(0, 1)
    stash.release(1, 0)
    assert len(stash) == 0


def test_pulls_out_of_turn_are_refused() -> None:
    stash = Stash(first=1)
    with pytest.raises(RunError, match=r"interval 0 cannot pull weights for epoch 0: its gradient .* is complete"):
        stash.pull(0, 0, OLD)
    stash.pull(0, 1, OLD)
    with pytest.raises(RunError, match="epoch 2 before all of its gradient of epoch 1 is pushed"):
        stash.pull(0, 2, OLD)
    with pytest.raises(RunError, match="interval 0 pushed a gradient of epoch 2 without"):
        stash.release(0, 2)
    stash.release(0, 1)
    with pytest.raises(RunError, match=r"epoch 1: its gradient .* is complete"):
        stash.pull(0, 1, NEW)
    with pytest.raises(RunError, match="without having pulled"):
        stash.release(0, 1)
