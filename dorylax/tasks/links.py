"""Link prediction: which pairs of vertices are joined.

A model gives each vertex a row, and a decoder computes the score of a pair from its two rows. Validation and test links
carry no messages; training links may. Pairs without a link are drawn, for training again in each epoch, since a model would
memorise a fixed set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from jaxtyping import Array, Float, Int, Int32

from dorylax.graph.array_names import MASKS
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.link_splits import Links, LinkSplit, keys_of_links, link_split, pairs_without_links
from dorylax.program.model.base import ModelParts
from dorylax.tasks.base import Task, headed

_PAIRS = "link_pairs"


def dot_product(sources: Float[Array, "N D"], targets: Float[Array, "N D"]) -> Float[Array, " N"]:
    """Return the logit of each pair: the inner product of its rows (Kipf & Welling, arXiv 1611.07308)."""
    scores: Array = (sources * targets).sum(axis=1)
    return scores


Decoder = Callable[[Any, Any], Any]
"""`(rows of sources [N, D], rows of targets [N, D]) -> logits [N]`: a pure function without parameters."""


@final
@dataclasses.dataclass(frozen=True)
class LinkPrediction(Task):
    """Predicts whether two vertices are joined. Ignores the labels and masks of the data set.

    Attributes:
        seed: Seed of the split.
        val_fraction: Share of the links for validation.
        test_fraction: Share of the links for the test.
        apart: Share of the training links that are predicted and carry no messages; 0: all do both.
        redrawn: Whether pairs without a link are drawn again for each epoch of training.
        negative_ratio: Number of such pairs per link.
        decoder: Computes a logit from two rows.
        embedding: Width of a row, if a configuration makes the model.
    """

    seed: int = 0
    val_fraction: float = 0.05
    test_fraction: float = 0.1
    apart: float = 0.0
    redrawn: bool = True
    negative_ratio: float = 1.0
    decoder: Decoder = dot_product
    embedding: int = 16

    def split(self, data: Dataset) -> LinkSplit:
        """Return the graph of messages and the links of each part, in the user's order; equal seeds give equal splits.

        Raises:
            GraphError: There are too few edges, or the graph was reordered.
        """
        fractions = (1 - self.val_fraction - self.test_fraction, self.val_fraction, self.test_fraction)
        return link_split(data.graph, self.seed, fractions, apart=self.apart, negatives=self.negative_ratio)

    def prepare(self, data: Dataset) -> Dataset:
        """Return pairs for training, validation and test, in this order, each with its links first."""
        split = self.split(data)
        parts = (split.train, split.val, split.test)
        sizes = [len(part.labels) for part in parts]
        part_of = np.repeat(np.arange(3), sizes)
        found = data.of_examples(
            "pairs",
            kind="pairs",
            graph=split.graph,
            labels=np.concatenate([part.labels for part in parts]),
            num_classes=None,
            multilabel=False,
            class_names=None,
            **{name: part_of == number for number, name in enumerate(MASKS)},
            vertex_inputs={**data.vertex_inputs, _PAIRS: np.concatenate([_pairs(part) for part in parts])},
            edge_inputs={name: array[_places(data, split)] for name, array in data.edge_inputs.items()},
            of_task=(_PAIRS,),
        )
        first = self._drawn(found, 0, 0)  # so that training pairs are drawn in the same way if `redrawn` is False
        return found.of_examples("pairs", vertex_inputs={**found.vertex_inputs, **first})

    def outputs(self, data: Dataset | AbstractData) -> int:  # noqa: ARG002
        """Return the width of a row."""
        return self.embedding

    def wrap(self, parts: ModelParts, data: Dataset) -> ModelParts:  # noqa: ARG002
        """Return the model followed by the decoder."""
        return headed(parts, _Decoder(self.decoder), apart=(_PAIRS,))

    def redraw(self, data: Dataset, seed: int, epoch: int) -> Mapping[str, np.ndarray]:
        """Draw other training pairs without a link."""
        return self._drawn(data, seed, epoch + 1) if self.redrawn else {}

    def _drawn(self, data: Dataset, seed: int, number: int) -> dict[str, np.ndarray]:
        """Draw pairs. They may include validation and test links, which training must not use."""
        pairs, labels = data.vertex_inputs[_PAIRS], data.labels
        drawn = data.train_mask & (labels == 0)
        known = keys_of_links(data.graph, pairs[data.train_mask & (labels == 1)])
        pairs = pairs.copy()
        pairs[drawn] = pairs_without_links(data.graph, known, int(drawn.sum()), (self.seed, 2, seed, number))
        return {_PAIRS: pairs}


@final
@dataclasses.dataclass(frozen=True)
class _Decoder:
    decoder: Decoder
    names: tuple[str, ...] = (_PAIRS,)

    def __call__(self, rows: Any, **inputs: Any) -> Any:
        sources, targets = inputs[_PAIRS].T
        return self.decoder(rows[sources], rows[targets])


def _places(data: Dataset, split: LinkSplit) -> Int[np.ndarray, " M"]:
    """Return the positions of the remaining edges among all edges."""
    ids, left = data.graph.edge_ids, split.graph.edge_ids
    places: np.ndarray = np.arange(split.graph.num_edges) if left is None else np.asarray(left)
    return places if ids is None else np.searchsorted(ids, places)


def _pairs(links: Links) -> Int32[np.ndarray, "N 2"]:
    return np.stack([links.sources, links.targets], axis=1)
