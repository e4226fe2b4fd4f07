"""Seeded train, validation and test masks, for data that come without."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Shaped

from dorylax.graph.validate import GraphError, check_length


def seeded_split(
    num_vertices: int,
    seed: int,
    labels: Shaped[np.ndarray, "V *classes"] | None = None,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
) -> tuple[Bool[np.ndarray, " V"], Bool[np.ndarray, " V"], Bool[np.ndarray, " V"]]:
    """Three disjoint random sets of vertices, the same for the same seed on every machine and NumPy version.

    With integer labels `[V]` the split is stratified: of each class a mask gets its fraction, to within about one
    vertex. With multi-label labels `[V, C]`, or none, it is plain. In either case train holds round(fractions[0]·V)
    vertices, and the others likewise their fraction.

    Args:
        num_vertices: V.
        seed: 0 or more.
        labels: integers `[V]`, `[V, C]`, or None.
        fractions: of train, validation and test; what they leave of 1 is in no mask.

    Returns:
        `(train_mask, val_mask, test_mask)`, bool `[V]` each.

    Raises:
        GraphError: a negative seed, fractions out of range, or labels of the wrong length.
    """
    if seed < 0:
        raise GraphError(f"the split's seed must be ≥ 0, got {seed}")
    if not (all(0 <= part <= 1 for part in fractions) and 0 < sum(fractions) <= 1 + 1e-9):
        raise GraphError(f"split fractions must be in 0 … 1 and add up to at most 1, got {fractions}")
    # Ranks of raw generator words: NumPy promises that these never change, and does not for permutation().
    pool = np.argsort(np.random.PCG64(seed).random_raw(num_vertices), kind="stable")
    if labels is not None:
        check_length("labels", labels, num_vertices, "one per vertex")
        if labels.ndim == 1:
            pool = pool[np.argsort(labels[pool], kind="stable")]
    masks, left = [], 1.0
    for part in fractions:
        chosen = _evenly_spaced(len(pool), min(1.0, part / left) if left > 0 else 0.0)
        mask = np.zeros(num_vertices, bool)
        mask[pool[chosen]] = True
        masks.append(mask)
        pool, left = pool[~chosen], left - part
    return masks[0], masks[1], masks[2]


def _evenly_spaced(length: int, share: float) -> Bool[np.ndarray, " N"]:
    """round(share·N) of N places, spread so that every run of n places gets share·n of them to within one."""
    steps = np.floor(share * np.arange(length + 1) + (0.5 + 1e-9))  # the nudge: 0.2 / 0.4 may fall just below a half
    chosen: np.ndarray = np.diff(steps) > 0
    return chosen
