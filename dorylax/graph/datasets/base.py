"""Records of named data sets, between the table of data sets and the readers of published formats.

A data set is a `Published` record: its numbers, its files, and a `read` function that turns the files into `Contents`.
`download` fetches files; `registry` finds a data set by name and splits data without masks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from dorylax.errors import InputError
from dorylax.graph.graph import Graph
from dorylax.near_matches import close

DatasetError = InputError


@dataclasses.dataclass(frozen=True)
class Source:
    """One published file.

    Attributes:
        path: Its path below the cache directory, `family/file`.
        url: Its address.
        sha256: SHA-256 of its bytes, 64 hexadecimal digits; None if the publisher states none: then the hash of the first
            copy is recorded beside it (`file.sha256`), and later ones must agree (trust on first use).
    """

    path: str
    url: str
    sha256: str | None = None


@dataclasses.dataclass(frozen=True)
class Contents:
    """Contents of a published format.

    Attributes:
        graph: Graph of V vertices.
        features: float32 `[V, F]`, as published (not normalised).
        labels: int `[V]`, or float32 `[V, C]` if multi-label.
        num_classes: C.
        masks: Training, validation and test masks, bool `[V]` each; None without a public split.
    """

    graph: Graph
    features: np.ndarray
    labels: np.ndarray
    num_classes: int
    masks: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


@dataclasses.dataclass(frozen=True)
class Size:
    """The numbers of a data set: V vertices, E directed edges, F features, C classes."""

    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int


@dataclasses.dataclass(frozen=True)
class Published:
    """A named data set and its files.

    Attributes:
        name: Name for `load`.
        summary: One line for people.
        size: Published numbers, edges in both directions.
        sources: Its files.
        read: Makes the contents from the files by name (the last part of `Source.path`).
        slow: Whether the cache keeps the result, because reading takes long.
    """

    name: str
    summary: str
    size: Size
    sources: tuple[Source, ...]
    read: Callable[[Mapping[str, Path]], Contents]
    slow: bool = False


@dataclasses.dataclass(frozen=True)
class Description:
    """A line of `describe()`.

    Attributes:
        name: Name for `load`.
        size_name: For `communities`, the value of its option `size`.
        summary: One line for people.
        size: Numbers of the data set; None if only opening the file would tell.
        origin: "built in", "DORYLAX_DATA", "cache" or "download".
    """

    name: str
    size_name: str | None
    summary: str
    size: Size | None
    origin: str


def near_matches(word: str, known: Iterable[str]) -> str:
    """End of an error message: similar names (` Did you mean …?`), then all known names."""
    names = list(known)
    alike = close(word, names)
    guess = f" Did you mean {' or '.join(repr(name) for name in alike)}?" if alike else ""
    return f"{guess} There are: {', '.join(names)}"


def mask_of(ids: np.ndarray, num_vertices: int) -> np.ndarray:
    """The mask, bool `[V]`, that is true at `ids`."""
    mask = np.zeros(num_vertices, bool)
    mask[ids] = True
    return mask
