"""Splits of vertices into training, validation and test: random, by class, by numbers, or one of several that came along.

`Dataset.with_split` takes them. All draws are the same for the same seed on every machine and NumPy version, and are
made piece by piece, so that their memory does not grow with the graph. Splits of edges are in `dorylax.graph.link_splits`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int8, Int64

from dorylax.graph.array_names import MASKS
from dorylax.graph.arrays import as_array
from dorylax.graph.labels import as_mask, labelled
from dorylax.graph.rows import SPAN, in_order, inverse_permutation, spans
from dorylax.graph.validate import GraphError
from dorylax.machine import cores

FRACTIONS = (0.6, 0.2, 0.2)
_LOG = logging.getLogger(__name__)


class Split(NamedTuple):
    """Disjoint sets of vertices, bool `[V]` each."""

    train_mask: np.ndarray
    val_mask: np.ndarray
    test_mask: np.ndarray


def random_split(num_vertices: int, seed: int, fractions: Sequence[float] = FRACTIONS, *, among: Any = None) -> Split:
    """Random sets of vertices: of V, training holds round(fractions[0]·V), for example.

    Args:
        num_vertices: V.
        seed: 0 or more.
        fractions: Fractions of train, validation and test; the rest is in no mask.
        among: Vertices to split, in the form of a mask; None for all. Fractions are of these.

    Raises:
        GraphError: A negative seed, or fractions out of range.
    """
    chosen = np.ones(num_vertices, bool) if among is None else as_mask("among", among, num_vertices)
    return stratified_split(chosen.astype(np.int8) - np.int8(1), seed, fractions)  # all of one class, or unlabelled


def stratified_split(labels: Any, seed: int, fractions: Sequence[float] = FRACTIONS) -> Split:
    """Random sets of vertices, of each class its fraction to within about one vertex.

    Args:
        labels: Classes, integers `[V]`; vertices with -1 are in no mask.
        seed: 0 or more.
        fractions: Fractions of train, validation and test; the rest is in no mask.

    Raises:
        GraphError: A negative seed, fractions out of range, or labels that are not classes.
    """
    classes = _checked_classes(labels)
    num_classes = int(classes.max(initial=0)) + 1
    if num_classes > 1 << 15:  # or numbers with wide gaps: renumber them
        codes = np.unique(classes, return_inverse=True)[1]
        classes = np.where(classes >= 0, codes, -1)
        num_classes = int(codes.max()) + 1
    small = np.int16 if num_classes <= 1 << 15 else np.int32  # NumPy sorts 16 bits by radix
    fractions, parts = of_three(fractions), np.full(len(classes), -1, np.int8)
    counts = np.zeros(num_classes + 1, np.int64)  # the first: unlabelled ones
    for start, stop in spans(len(classes)):
        counts += np.bincount(_known_or_not(classes[start:stop]) + 1, minlength=num_classes + 1)
    free = np.cumsum(counts[1:]) - counts[1:]  # the next place of each class, if all labelled vertices lie by class
    pieces = (piece[start:stop] for piece in _random_order(len(classes), seed) for start, stop in spans(len(piece)))
    for vertices in pieces:
        found = _known_or_not(classes[vertices]).astype(small)
        by_class = np.argsort(found, kind="stable")
        by_class = by_class[np.searchsorted(found, 0, sorter=by_class) :]
        found = found[by_class]
        here = np.bincount(found, minlength=num_classes)
        places = np.arange(len(found)) + (free - (np.cumsum(here) - here))[found]
        free += here
        parts[vertices[by_class]] = part_of(places, fractions)
    return _split(parts)


def split_bytes(num_vertices: int) -> int:
    """Peak memory of `stratified_split` in bytes, without labels and masks."""
    order = _SORTING * min(num_vertices, _MOST_THREADS * _PIECE) + 8 * min(num_vertices, _PIECE)
    return num_vertices + order + 80 * min(num_vertices, SPAN)


def per_class_split(labels: Any, seed: int, per_class: int = 20, num_val: int = 500, num_test: int = 1000) -> Split:
    """The same number of training vertices of each class, and numbers of the others for validation and test.

    The defaults are those of Planetoid (Yang et al., 2016, https://arxiv.org/abs/1603.08861).

    Args:
        labels: Classes, integers `[V]`; vertices with -1 are in no mask.
        seed: 0 or more.
        per_class: Training vertices of each class.
        num_val: Validation vertices.
        num_test: Test vertices.

    Raises:
        GraphError: A negative seed or number, labels that are not classes, or too few vertices of a class or in all.
    """
    classes = _checked_classes(labels)
    for name, number in (("per_class", per_class), ("num_val", num_val), ("num_test", num_test)):
        if number < (least := 1 if name == "per_class" else 0):
            raise GraphError(f"{name} must be ≥ {least}, got {number}")
    pool = shuffled(len(classes), seed)
    pool = pool[classes[pool] >= 0]
    by_class = pool[np.argsort(classes[pool], kind="stable")]
    found, first, counts = np.unique(classes[by_class], return_index=True, return_counts=True)
    if (short := np.flatnonzero(counts < per_class)).size:
        c = short[0]
        raise GraphError(f"class {found[c]} has {counts[c]} vertices: per_class = {per_class} needs as many of each")
    rank = np.arange(len(by_class)) - np.repeat(first, counts)
    train = np.zeros(len(classes), bool)
    train[by_class[rank < per_class]] = True
    rest = pool[~train[pool]]
    if len(rest) < num_val + num_test:
        raise GraphError(
            f"{len(rest)} labelled vertices are left beside the training vertices: "
            f"num_val + num_test = {num_val + num_test} is more"
        )
    parts = np.where(train, np.int8(0), np.int8(-1))
    parts[rest[:num_val]] = 1
    parts[rest[num_val : num_val + num_test]] = 2
    return _split(parts)


def public_split(train_mask: Any, val_mask: Any, test_mask: Any, column: int = 0) -> Split:
    """The split that came with the data, one of several if masks have a column for each.

    Args:
        train_mask: bool `[V]`, or `[V, K]` for K splits.
        val_mask: Mask of the same form; a mask `[V]` among others `[V, K]` is the same in all splits (as in WikiCS).
        test_mask: Mask of the same form.
        column: Number of the split, 0 … K-1.

    Raises:
        GraphError: There is no such column, or a mask has another type.
    """
    masks = zip(MASKS, (train_mask, val_mask, test_mask), strict=True)
    return Split(*(_column(name, as_array(name, mask), column) for name, mask in masks))


def one_split(masks: Mapping[str, Any], num_vertices: int, split: int | None) -> dict[str, np.ndarray]:
    """Masks of one split; a mask may hold K splits, `[V, K]` or `[K, V]`, and a mask `[V]` belongs to all of them.

    Raises a GraphError if `split`, 0 … K-1, is missing or out of range, or K = V.
    """
    found, count = {}, 1
    for name, mask in masks.items():
        array = as_array(name, mask)
        if array.ndim == 2 and num_vertices in array.shape:
            if array.shape[0] == array.shape[1] > 1:
                raise GraphError(
                    f"{name} has shape {list(array.shape)}, so that rows or columns could be splits: give one, [V]"
                )
            columns = array if len(array) == num_vertices else array.T
            count = max(count, columns.shape[1])
            if split is None and count > 1:
                raise GraphError(f"{name} holds {count} splits: choose one, split (data.split) = 0 … {count - 1}")
            array = _column(name, columns, split or 0)
        found[name] = array
    if split and count == 1:
        raise GraphError(f"split = {split}, but the masks hold one split: leave split (data.split) out")
    return found


def chosen_masks(
    name: str,
    given: Mapping[str, Any],
    labels: np.ndarray,
    *,
    split: int | None,
    seed: int,
    ids: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """The masks of one split that came with a data set, or of a random split of its labelled vertices, which is logged.

    Without any mask or label there are none. The random split goes by class if labels are classes.

    Args:
        name: Name of the data set.
        given: Masks as for `one_split`.
        labels: Labels as a data set holds them.
        split: As for `one_split`.
        seed: Seed of the random split.
        ids: Vertex of each row, so that the random split does not depend on the order of rows.
    """
    masks = one_split(given, len(labels), split)
    if masks or not labelled(labels).any():
        return masks
    _LOG.warning(
        "%s has no masks: %.0f %% of its labelled vertices train, %.0f %% validate and %.0f %% test (split_seed=%d); give "
        "masks, or use Dataset.with_split, for another split",
        *(name, *(100 * share for share in FRACTIONS), seed),
    )
    rows = slice(None) if ids is None else inverse_permutation(ids)
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        drawn = stratified_split(labels[rows], seed)
    else:
        drawn = random_split(len(labels), seed, among=labelled(labels[rows]))
    return {mask: vertices if ids is None else vertices[ids] for mask, vertices in drawn._asdict().items()}


def shuffled(count: int, seed: int) -> Int64[np.ndarray, " N"]:
    """0 … count-1 in an order drawn from a seed; a GraphError if it is negative."""
    return np.concatenate(list(_random_order(count, seed)))


def part_of(places: Int64[np.ndarray, " N"], fractions: Sequence[float]) -> Int8[np.ndarray, " N"]:
    """The part of each place, if parts are spread evenly over all places; -1 for none.

    Of any run of n places a part gets its fraction of n, to within about one. Fractions add up to at most 1.
    """
    parts = np.full(len(places), -1, np.int8)
    left, rest = np.arange(len(places)), 1.0  # remainder of the given places, and of all
    for number, part in enumerate(fractions):
        share = min(1.0, part / rest) if rest > 0 else 0.0
        before, after = _taken(share, places), _taken(share, places + 1)
        chosen = after > before
        parts[left[chosen]] = number
        left, places = left[~chosen], (places - before)[~chosen]  # the place among those that are left
        rest -= part
    return parts


def _checked_classes(labels: Any) -> np.ndarray:
    classes = as_array("labels", labels)
    if classes.ndim != 1 or classes.dtype.kind not in "iub":
        raise GraphError(
            f"labels must be classes, integers [V], to split by class, got {classes.dtype} {list(classes.shape)}: "
            "random_split needs no labels"
        )
    return classes.astype(np.int64) if classes.dtype.kind == "b" else classes


def of_three(fractions: Sequence[float]) -> Sequence[float]:
    """The fractions of training, validation and test; a GraphError for other numbers."""
    if len(fractions) != 3:
        raise GraphError(f"split fractions must be three, of train, validation and test, got {tuple(fractions)}")
    if not (all(0 <= part <= 1 for part in fractions) and 0 < sum(fractions) <= 1 + 1e-9):
        raise GraphError(f"split fractions must be in 0 … 1 and add up to at most 1, got {tuple(fractions)}")
    return fractions


def _split(parts: Int8[np.ndarray, " V"]) -> Split:
    """The masks of parts 0, 1 and 2."""
    return Split(*(parts == part for part in range(3)))


def _random_order(count: int, seed: int) -> Iterator[Int64[np.ndarray, " N"]]:
    if seed < 0:
        raise GraphError(f"the split's seed must be ≥ 0, got {seed}")
    return random_order(lambda: np.random.PCG64(seed), count)


def _known_or_not(classes: np.ndarray) -> Int64[np.ndarray, " N"]:
    """Classes as int64, with -1 for all numbers below 0."""
    return np.maximum(classes.astype(np.int64), -1)


def _column(name: str, mask: np.ndarray, column: int) -> Bool[np.ndarray, " V"]:
    if mask.ndim != 2:
        return as_mask(name, mask, len(mask))
    if not 0 <= column < mask.shape[1]:
        raise GraphError(f"{name} holds the splits 0 … {mask.shape[1] - 1}, got {column}")
    return as_mask(name, mask[:, column], len(mask))


def _taken(share: float, places: np.ndarray) -> Int64[np.ndarray, " N"]:
    """The number of places before each that belong to a part of this share of all."""
    # the nudge: 0.2 / 0.4 may fall just below a half
    taken: np.ndarray = np.floor(share * places + (0.5 + 1e-9)).astype(np.int64)
    return taken


_PIECE = 1 << 22  # things in a piece, about
_MOST_THREADS = 2  # each sorts a piece
_SORTING = 44  # bytes for each thing that is sorted: word and place, both twice, the order, and room to sort in
_CHUNK = 1 << 16  # words that are drawn at a time: they stay in a core's cache


def random_order(generator: Callable[[], np.random.BitGenerator], count: int) -> Iterator[Int64[np.ndarray, " N"]]:
    """0 … count-1 in ascending order of random words, equal ones in their own order, in consecutive pieces.

    The generator returns the stream from its beginning; its raw word i belongs to number i. NumPy promises that raw
    words never change, and does not for its permutations.
    """
    pieces = math.ceil(count / _PIECE)
    if pieces <= 1:
        yield np.argsort(generator().random_raw(count), kind="stable")
        return

    def piece(number: int) -> Int64[np.ndarray, " N"]:
        """The numbers whose words lie in one of as many equal ranges as there are pieces."""
        first, end = (end * (1 << 64) // pieces for end in (number, number + 1))
        draw, places, found = generator().random_raw, [], []
        for start, stop in spans(count, _CHUNK):
            word = draw(stop - start)
            word -= np.uint64(first)  # smaller words wrap around and become large
            (kept,) = np.nonzero(word < np.uint64(end - first))
            places.append((kept + start).astype(np.int32))
            found.append(word[kept])
        order: np.ndarray = np.concatenate(places)[np.argsort(np.concatenate(found), kind="stable")].astype(np.int64)
        return order

    yield from in_order(piece, range(pieces), min(cores(), _MOST_THREADS))
