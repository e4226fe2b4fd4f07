"""Records of named data sets, between the table of data sets and the readers of published formats.

A data set is a `Published` record: its numbers, its files, and a `read` function that turns the files into arrays.
`download` fetches files; `registry` finds a data set and splits data without masks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dorylax.errors import InputError
from dorylax.near_matches import close

DatasetError = InputError
Reader = Callable[[Mapping[str, Path]], dict[str, Any]]
"""Makes the arguments of `Dataset` from files under their names."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One published file.

    Attributes:
        path: Its path below the cache directory, `family/file`.
        url: Its address.
        sha256: SHA-256 of its bytes, 64 hexadecimal digits; None if the publisher states none: then the hash of the
            first copy is recorded in `file.sha256`, and later ones must agree (trust on first use).
    """

    path: str
    url: str
    sha256: str | None = None


@dataclasses.dataclass(frozen=True)
class Size:
    """V vertices, E directed edges, F features and C classes of a data set."""

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
        read: Makes the arguments of `Dataset` from the files under their names (last part of `Source.path`); features
            as published, masks only if there is a public split.
        slow: Whether the cache keeps the result, because reading takes long.
    """

    name: str
    summary: str
    size: Size
    sources: tuple[Source, ...]
    read: Reader
    slow: bool = False


@dataclasses.dataclass(frozen=True)
class Description:
    """A line of `describe()`; `size` is None if only opening the file would tell, `size_name` is an option of `communities`.

    `origin` is "built in", "DORYLAX_DATA", "cache" or "download".
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
