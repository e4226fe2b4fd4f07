"""Whether training ended too early: what its loss did at the end."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

_PARTS = 10
_SHARE = 0.03
"""Of the whole fall. A loss that falls evenly loses a ninth of it in the last tenth; one that has come within e^-3 of where
it goes, 1 %."""


def still_falling(losses: Sequence[float]) -> bool:
    """Whether the training loss fell fast when it ended: by 3 % of its whole fall or more, from one tenth to the last.

    Args:
        losses: by epoch. Of fewer than 20, nothing can be said: False.
    """
    if len(losses) < 2 * _PARTS:
        return False
    tenth = len(losses) // _PARTS
    before, last = fmean(losses[-2 * tenth : -tenth]), fmean(losses[-tenth:])
    whole = losses[0] - last
    return whole > 0 and before - last >= _SHARE * whole
