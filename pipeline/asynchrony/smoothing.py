"""Smoothing: received rows are averaged over epochs, as in PipeGCN (ICLR '22) for ghosts' features and gradients.

PipeGCN's mean starts from zero, `m = γ m + (1 - γ) x`. Here it is corrected like the moments of Adam, `m / (1 - γᵗ)`. In
terms of the corrected mean h the step is `h + (x - h) (1 - γ) / (1 - γᵗ)`, which needs the count t and no second array.
"""

from __future__ import annotations

from typing import final

import numpy as np


@final
class ExponentialMean:
    """See `Reception`.

    Args:
        decay: γ, 0 ≤ γ < 1; 0 keeps only the last rows.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay

    def weights(self, times: np.ndarray) -> np.ndarray:
        """See `Reception`."""
        shares: np.ndarray = (1 - self._decay) / (1 - self._decay ** times.astype(np.float64))
        return shares
