"""The contract of a metric: what is computed beside the outputs, and the number that this makes for a mask.

What is additive over examples is summed where the outputs are, on the device or by each server. Metrics that rank examples
need all scores at once: their outputs come to the host, and are ranked in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.errors import DorylaxError
from dorylax.graph.labels import Kind

KINDS: dict[Kind, str] = {
    "classes": "one class for each example",
    "several": "several classes for each example",
    "pairs": "pairs of vertices",
    "targets": "targets, which are numbers",
}


@final
class MetricError(DorylaxError, ValueError):
    """No metric of this name, none for labels of this kind, or one that is not defined on these labels."""


class Measure(NamedTuple):
    """How a metric is computed.

    Attributes:
        kinds: of the labels that it is for.
        sums: `(output, labels, masks bool [M, N]) -> arrays`, traced; of what is additive `[M, …]`.
        value: `(arrays on the host, which mask) -> number`; NaN where it is not defined.
        additive: whether `sums` of some examples add up to those of all.
        undefined: `(labels of a mask [n, …]) -> why`, empty where it is defined on them; n ≥ 1.
    """

    kinds: Sequence[Kind]
    sums: Callable[[Any, Any, Any], Any]
    value: Callable[[Any, int], float]
    additive: bool
    undefined: Callable[[np.ndarray], str] = lambda labels: ""  # noqa: ARG005


class Gathered(NamedTuple):
    """What ranking needs of all examples.

    Attributes:
        output: of the model, `[N]` or `[N, C]`.
        labels: `[N, …]`.
        masks: bool `[M, N]`.
    """

    output: Any
    labels: Any
    masks: Any

    def of(self, mask: int) -> tuple[np.ndarray, np.ndarray]:
        """Output in float64, and labels, of the examples of one mask."""
        chosen = np.asarray(self.masks[mask])
        return np.asarray(self.output)[chosen].astype(np.float64), np.asarray(self.labels)[chosen]


def on_all(
    kinds: Sequence[Kind],
    value: Callable[[np.ndarray, np.ndarray], float],
    undefined: Callable[[np.ndarray], str] = lambda labels: "",  # noqa: ARG005
) -> Measure:
    """A metric of all examples of a mask at once: `value(output, labels)`."""
    return Measure(kinds, Gathered, lambda gathered, mask: value(*Gathered(*gathered).of(mask)), False, undefined)
