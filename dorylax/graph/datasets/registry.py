"""Data sets by name: which there are, and where each is taken from."""

from __future__ import annotations

import dataclasses
import logging
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from dorylax.graph.assemble import numbered_by_source
from dorylax.graph.cache import cache_directory
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import communities, community_archive, download, local, ogb, planetoid, reddit, shchur
from dorylax.graph.datasets.base import DatasetError, Description, Published, near_matches
from dorylax.graph.datasets.community_archive import Progress
from dorylax.graph.graph import Graph
from dorylax.graph.importers.base import Imported
from dorylax.graph.importers.roles import by_role
from dorylax.graph.labels import Labels
from dorylax.graph.npz import MASKS
from dorylax.graph.splits import default_split
from dorylax.graph.validate import GraphError
from dorylax.settings.byte_sizes import parse_bytes

_LOG = logging.getLogger(__name__)

PUBLISHED: dict[str, Published] = {
    entry.name: entry for entry in (*planetoid.PUBLISHED, *shchur.PUBLISHED, *reddit.PUBLISHED, *ogb.PUBLISHED)
}


def load(
    name_or_path: Any,
    *,
    split: int | None = None,
    split_seed: int = 0,
    verify: bool = True,
    known: Labels | None = None,
    **options: Any,
) -> Dataset:
    """A data set by name, from a file, or of an object of another library.

    Taken from the first of these that has it: the file, where the argument ends in `.npz`; the generator, for
    `communities`; `$DORYLAX_DATA/<name>.npz`; the cache of downloads (`$DORYLAX_CACHE`, or the platform's cache
    directory); the network. Nothing is ever asked.

    Args:
        name_or_path: one of `names()`, or the path of an archive of the layout of `dorylax.graph.npz`; or a PyG `Data`, a
            DGL or networkx graph, or a SciPy sparse matrix.
        split: Which split, 0 … K-1, where masks hold several.
        split_seed: of the split (60 % training, 20 % validation, 20 % test, by class) of data that come without
            masks; data with masks keep theirs.
        verify: compare what is memory-mapped of an archive with its checksums the first time that it is loaded.
        known: As for `Dataset.from_npz`.
        options: of `communities`: `size="tiny"`, `seed=0`, `num_vertices=…`, …; see
            `dorylax.graph.datasets.communities.Options`. Of objects: those of `Dataset.from_pyg` and its like; of a matrix
            `features`, `labels`, masks, `num_classes` and `multilabel`.

    Returns:
        The data set; features as published, not normalised.

    Raises:
        DatasetError: unknown name or option, or the data set cannot be had; the message says what to do.
        GraphError: the arrays do not make a data set.
        OSError: the machine fails to read or keep its files.
    """
    if not isinstance(name_or_path, str | PathLike):
        return _of_object(name_or_path, split=split, split_seed=split_seed, **options)
    name = fspath(name_or_path)
    if split is not None and not name.endswith(".npz") and local.find(name) is None:
        raise DatasetError(f"{name} has one split: leave split (data.split) out")
    if name == communities.NAME:
        return communities.load(split_seed=split_seed, **options)
    if options:
        raise DatasetError(f"{name} takes no option {next(iter(options))!r}: only {communities.NAME!r} is generated")
    if name.endswith(".npz"):
        if Path(name).is_dir():
            raise DatasetError(f"{name} is a folder: give the path of an npz archive, as Dataset.save_npz writes")
        if not Path(name).is_file():
            raise DatasetError(
                f"there is no file {name}: give the path of an npz archive, or one of {', '.join(names())}"
            )
        return Dataset.from_npz(name, split=split, split_seed=split_seed, verify=verify, known=known)
    if file := local.find(name):
        data = Dataset.from_npz(file, split=split, split_seed=split_seed, verify=verify, known=known)
        return data if data.name == name else dataclasses.replace(data, name=name)  # archives spell names as they like
    if name not in PUBLISHED:
        if name and Path(name).exists():
            raise DatasetError(f"{name} is not a file that ends in .npz: Dataset.save_npz writes one")
        raise DatasetError(f"there is no data set {name!r}.{_hint(name)}{near_matches(name, names())}")
    return _load_published(PUBLISHED[name], split_seed, verify=verify)


def _of_object(value: Any, **options: Any) -> Dataset:
    if hasattr(value, "is_edge_attr"):
        return Dataset.from_pyg(value, **options)
    if hasattr(value, "ndata"):
        return Dataset.from_dgl(value, **options)
    if hasattr(value, "is_multigraph"):
        return Dataset.from_networkx(value, **options)
    if not hasattr(value, "tocoo"):
        raise DatasetError(
            "load takes a name, a path, a PyG Data, a DGL or networkx graph, or a SciPy sparse matrix, got "
            f"{type(value).__name__}: dorylax.Dataset takes arrays"
        )
    usual: dict[str, Any] = dict.fromkeys(("features", "labels", "num_classes", "multilabel"))
    masks = {mask: options.pop(mask) for mask in MASKS if options.get(mask) is not None}
    read = Imported(Graph.from_scipy(value), masks, {})
    return Dataset(**by_role(options.pop("name", "scipy"), read, (), **usual | options))


def generate(
    name: str,
    path: str | PathLike[str],
    *,
    memory: int | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Writes a generated data set to an archive part by part, of any size in a few bytes a vertex.

    The file is the one that `load(name, …).save_npz(path)` writes, byte for byte. It appears whole or not at all.

    Args:
        name: "communities".
        path: of the file, `….npz`, in place of one that may be there; its folder must be there.
        memory: what this process may take in all, in bytes or as in "4GiB"; None for all that it may have. It decides how
            many threads work; the result does not depend on it.
        progress: is told how many bytes are written, how many there will be, and what they are.
        options: as of `load`: `size="friendster"`, `seed=0`, `split_seed=0`, `order="community"`, …; see
            `dorylax.graph.datasets.communities.Options`.

    Raises:
        DatasetError: an unknown name or option, or too little memory, in which case nothing is written.
        OSError: the disk has too little room, which is seen beforehand, or fails.
    """
    if name != communities.NAME:
        raise DatasetError(f"{name!r} is not generated: only {communities.NAME!r} is, and load reads the others")
    if isinstance(memory, str):
        try:
            memory = parse_bytes(memory)
        except ValueError as error:
            raise DatasetError(f"memory: {error}") from None
    community_archive.write(Path(path), memory=memory, progress=progress, **options)


def archive_of(name_or_path: str | PathLike[str]) -> Path | None:
    """The archive that `load` would read; None where it would generate, parse published files, or refuse.

    Raises:
        DatasetError: `$DORYLAX_DATA` names no directory.
    """
    name = fspath(name_or_path)
    if name == communities.NAME:
        return None
    if name.endswith(".npz"):
        return Path(name) if Path(name).is_file() else None
    if file := local.find(name):
        return file
    entry = PUBLISHED.get(name)
    return _parsed(entry) if entry is not None and entry.slow and _parsed(entry).is_file() else None


def names() -> list[str]:
    """What `load` knows: the generator, the published data sets, and the archives in `$DORYLAX_DATA`."""
    known = [communities.NAME, *PUBLISHED]
    return known + [name for name in local.names() if name not in known]


def describe() -> list[Description]:
    """All of `names()` with their numbers and where `load` would take them from; `communities` once for each size."""
    lines = [
        Description(
            communities.NAME, size_name, "generated: communities, power-law degrees, noisy features", size, "built in"
        )
        for size_name, size in communities.SIZES.items()
    ]
    here = set(local.names())
    for entry in PUBLISHED.values():
        cached = download.is_cached(entry.sources) or _parsed(entry).is_file()
        origin = "DORYLAX_DATA" if entry.name in here else "cache" if cached else "download"
        lines.append(Description(entry.name, None, entry.summary, entry.size, origin))
    others = sorted(here - {communities.NAME, *PUBLISHED})
    lines += [Description(name, None, "an archive of yours", None, "DORYLAX_DATA") for name in others]
    return lines


def _load_published(entry: Published, split_seed: int, *, verify: bool) -> Dataset:
    parsed = _parsed(entry)
    if entry.slow and parsed.is_file():
        try:
            return Dataset.from_npz(parsed, split_seed=split_seed, verify=verify)
        except GraphError as error:
            _LOG.warning(
                "reading the published files of %s again, because what was kept of them is no good: %s",
                entry.name,
                error,
            )
    found = entry.read(download.fetch(entry.name, entry.sources))
    masks = found.masks or default_split(entry.name, found.labels, split_seed)
    graph = numbered_by_source(found.graph)  # as it is once it was kept, or comes from an archive
    data = Dataset(entry.name, graph, found.features, found.labels, found.num_classes, *masks)
    if entry.slow:
        try:
            parsed.parent.mkdir(parents=True, exist_ok=True)
            data.save_npz(parsed)
        except OSError as error:  # a full disk costs time on the next load, nothing else
            _LOG.warning("could not keep %s for the next time: %s", parsed, error)
    return data


def _parsed(entry: Published) -> Path:
    """Where what has been read from slow formats is kept. The number changes when a reader gives another result."""
    return cache_directory() / "parsed-1" / f"{entry.name}.npz"


def is_kept(file: Path) -> bool:
    """Whether this archive is a copy in the cache, which `load` makes anew where it is damaged."""
    return file.parent == cache_directory() / "parsed-1"


def _hint(name: str) -> str:
    start, _, size = name.replace(":", "-").replace("_", "-").partition("-")
    if start == communities.NAME and size in communities.SIZES:
        return f" For that size: load({communities.NAME!r}, size={size!r})."
    return ""
