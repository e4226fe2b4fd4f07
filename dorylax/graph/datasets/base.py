"""The contract between the table of named data sets and the modules that know one published format each.

A family (planetoid, amazon and coauthor, reddit, OGB) states its data sets as `Published` records: what they are, which
files they consist of, and a `read` that turns those files into `Contents`. Fetching files is `download`'s, choosing a
data set by name and splitting what comes without masks is `registry`'s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from dorylax.errors import DorylaxError
from dorylax.graph.graph import Graph
from dorylax.near_matches import close


class DatasetError(DorylaxError, ValueError):
    """A data set cannot be had: unknown name or option; a file that is missing, damaged or not what it should be."""


@final
class DownloadError(DatasetError):
    """The network does not give a file; another try may do.

    Attributes:
        user_error: see `dorylax.terminal.failures.explain`.
    """

    user_error: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class Source:
    """One published file.

    Attributes:
        path: where it lies below the cache directory, `family/file`.
        url: where it is downloaded from.
        sha256: of its bytes, 64 hexadecimal digits; None where the publisher states none: then the hash of the first
            copy seen is recorded beside it (`file.sha256`) and later ones must agree (trust on first use).
    """

    path: str
    url: str
    sha256: str | None = None


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a published format holds.

    Attributes:
        graph: V vertices.
        features: float32 `[V, F]`, as published (not normalised).
        labels: int `[V]`, or float32 `[V, C]` where multi-label.
        num_classes: C.
        masks: train, validation and test, bool `[V]` each; None where there is no public split.
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
        name: what `load` calls it.
        summary: one line for people.
        size: its published numbers, edges in both directions.
        sources: its files.
        read: makes the contents from the files, given by the last part of their `Source.path`.
        slow: reading takes so long that the result is kept in the cache as well.
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
        name: what `load` calls it.
        size_name: for `communities`, the value of its option `size`.
        summary: one line for people.
        size: its numbers; None where only opening the file would tell.
        origin: "built in", "DORYLAX_DATA", "cache" or "download": where `load` would take it from now.
    """

    name: str
    size_name: str | None
    summary: str
    size: Size | None
    origin: str


def near_matches(word: str, known: Iterable[str]) -> str:
    """The end of an error message: ` Did you mean …?` where something is spelt alike, then what there is."""
    names = list(known)
    alike = close(word, names)
    guess = f" Did you mean {' or '.join(repr(name) for name in alike)}?" if alike else ""
    return f"{guess} There are: {', '.join(names)}"


def mask_of(ids: np.ndarray, num_vertices: int) -> np.ndarray:
    """The mask, bool `[V]`, that is true at `ids`."""
    mask = np.zeros(num_vertices, bool)
    mask[ids] = True
    return mask
