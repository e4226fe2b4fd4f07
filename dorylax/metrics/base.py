"""Contract of a metric: sums computed next to the outputs, and the number derived from them for a mask.

Additive sums over examples are computed with the outputs, on the device or by each server. Metrics that rank examples need
all scores together: their outputs are copied to the host, and ranked in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dorylax.graph.labels import Kind

KINDS: dict[Kind, str] = {
    "classes": "one class for each example",
    "several": "several classes for each example",
    "pairs": "pairs of vertices",
    "targets": "targets, which are numbers",
}


class Measure(NamedTuple):
    """Computation of a metric.

    Attributes:
        kinds: Kinds of labels that it fits.
        sums: `(output, labels, masks bool [M, N]) -> arrays`, traced; `[M, …]` if additive.
        value: `(arrays on the host, number of the mask) -> number`; NaN if it is not defined.
        additive: Whether `sums` of some examples add up to those of all.
        undefined: `(labels of a mask [n, …]) -> reason`, empty if it is defined on them; n ≥ 1.
    """

    kinds: Sequence[Kind]
    sums: Callable[[Any, Any, Any], Any]
    value: Callable[[Any, int], float]
    additive: bool
    undefined: Callable[[np.ndarray], str] = lambda labels: ""  # noqa: ARG005


class Gathered(NamedTuple):
    """Data of all examples, for ranking.

    Attributes:
        output: Output of the model, `[N]` or `[N, C]`.
        labels: `[N, …]`.
        masks: bool `[M, N]`.
    """

    output: Any
    labels: Any
    masks: Any

    def of(self, mask: int) -> tuple[np.ndarray, np.ndarray]:
        """Return output in float64, and labels, of the examples of one mask."""
        chosen = np.asarray(self.masks[mask])
        return np.asarray(self.output)[chosen].astype(np.float64), np.asarray(self.labels)[chosen]


def on_all(
    kinds: Sequence[Kind],
    value: Callable[[np.ndarray, np.ndarray], float],
    undefined: Callable[[np.ndarray], str] = lambda labels: "",  # noqa: ARG005
) -> Measure:
    """Return a metric of all examples of a mask together: `value(output, labels)`."""
    return Measure(kinds, Gathered, lambda gathered, mask: value(*Gathered(*gathered).of(mask)), False, undefined)
