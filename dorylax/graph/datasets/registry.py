"""Data sets by name: which there are, and where each is taken from."""

from __future__ import annotations

import dataclasses
import logging
import os
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from dorylax.errors import InputError
from dorylax.graph.array_names import MASKS
from dorylax.graph.cache import cache_directory
from dorylax.graph.compressed import numbered_by_source
from dorylax.graph.data_shape import Size
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import communities, download
from dorylax.graph.datasets.communities import Progress
from dorylax.graph.datasets.published import PUBLISHED, Published
from dorylax.graph.from_libraries import Imported, by_role
from dorylax.graph.graph import Graph
from dorylax.graph.labels import Labels
from dorylax.graph.manifest import is_array_folder, is_data_path
from dorylax.graph.splits import chosen_masks
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean
from dorylax.settings.byte_sizes import parse_bytes

_LOG = logging.getLogger(__name__)


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


def load(
    name_or_path: Any,
    *,
    split: int | None = None,
    split_seed: int = 0,
    verify: bool = True,
    known: Labels | None = None,
    **options: Any,
) -> Dataset:
    """Return a named data set, one in a folder, or one converted from an object of another library.

    A name is looked up in this order: a folder that dorylax wrote; the generator, for `communities`;
    `$DORYLAX_DATA/<name>`; the cache of downloads (`$DORYLAX_CACHE`, or the platform's cache directory); the network.
    The function never prompts.

    Args:
        name_or_path: One of `names()`, or the path of a folder (`Dataset.save`, `dorylax import`) or of an old `.npz`
            archive; or a PyG `Data`, a DGL or networkx graph, or a SciPy sparse matrix.
        split: Which split, 0 … K-1, where masks hold several.
        split_seed: of the split (60 % training, 20 % validation, 20 % test, by class) of data that come without masks;
            data with masks keep theirs.
        verify: Whether to compare arrays with their checksums; memory-mapped ones are compared once per state.
        known: As for `Dataset.from_folder`.
        options: of `communities`: `size="tiny"`, `seed=0`, `num_vertices=…`, …; see
            `dorylax.graph.datasets.communities.Options`. For objects those of `Dataset.from_pyg` and the other readers;
            for a matrix `features`, `labels`, masks, `num_classes` and `multilabel`.

    Returns:
        The data set; features as published, not normalised.

    Raises:
        InputError: Unknown name or option, or a damaged file; the message names the remedy.
        RunError: The data set cannot be downloaded.
        GraphError: the arrays do not make a data set.
        OSError: the machine fails to read or keep its files.
    """
    if not isinstance(name_or_path, str | PathLike):
        return _of_object(name_or_path, split=split, split_seed=split_seed, **options)
    name = fspath(name_or_path)
    path = _user_path(name)
    if split is not None and path is None:
        raise InputError(f"{name} has one split: leave split (data.split) out")
    if name == communities.NAME and path is None:
        return communities.load(split_seed=split_seed, **options)
    if options:
        raise InputError(f"{name} takes no option {next(iter(options))!r}: only {communities.NAME!r} is generated")
    if path is not None:
        if not path.exists():
            raise InputError(
                f"there is no folder {name}: give the path of a folder that dorylax wrote, or one of {', '.join(names())}"
            )
        data = Dataset.from_folder(path, split=split, split_seed=split_seed, verify=verify, known=known)
        return data if is_data_path(name) or data.name == name else dataclasses.replace(data, name=name)
    if name not in PUBLISHED:
        if name and Path(name).exists():
            raise InputError(
                f"{name} is no data set: Dataset.save and dorylax import write folders with a manifest.json"
            )
        raise InputError(f"there is no data set {name!r}: {_hint(name) or did_you_mean(name, names())}")
    return _load_published(PUBLISHED[name], split_seed, verify=verify)


def _of_object(value: Any, **options: Any) -> Dataset:
    if hasattr(value, "is_edge_attr"):
        return Dataset.from_pyg(value, **options)
    if hasattr(value, "ndata"):
        return Dataset.from_dgl(value, **options)
    if hasattr(value, "is_multigraph"):
        return Dataset.from_networkx(value, **options)
    if not hasattr(value, "tocoo"):
        raise InputError(
            "load takes a name, a path, a PyG Data, a DGL or networkx graph, or a SciPy sparse matrix, got "
            f"{type(value).__name__}: dorylax.Dataset takes arrays"
        )
    masks = {mask: options.pop(mask) for mask in MASKS if options.get(mask) is not None}
    name = options.pop("name", "scipy")
    return Dataset(**by_role(name, Imported(Graph.from_scipy(value), masks), **options))


def generate(
    name: str,
    path: str | PathLike[str],
    *,
    memory: int | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Write a generated data set to a folder part by part, of any size in a few bytes a vertex.

    The arrays are those that `load(name, …).save(path)` writes, byte for byte. The folder appears complete or not at all.

    Args:
        name: "communities".
        path: Path of the folder; a folder that dorylax wrote is replaced.
        memory: Limit of this process's memory, in bytes or as in "4GiB"; None for all that it may have. It determines
            the number of threads; the result does not depend on it.
        progress: Called with the number of bytes written, their total, and the kind of the last ones.
        options: Options as for `load`: `size="friendster"`, `seed=0`, `split_seed=0`, `order="community"`, …; see
            `dorylax.graph.datasets.communities.Options`.

    Raises:
        InputError: An unknown name or option, or too little memory.
        GraphError: There is something else at the path.
        OSError: The disk has too little room, which is checked first, or fails.
    """
    if name != communities.NAME:
        raise InputError(f"{name!r} is not generated: only {communities.NAME!r} is, and load reads the others")
    if isinstance(memory, str):
        try:
            memory = parse_bytes(memory)
        except ValueError as error:
            raise InputError(f"memory: {error}") from None
    communities.write(Path(path), memory=memory, progress=progress, **options)


def stored_path(name_or_path: str | PathLike[str]) -> Path | None:
    """Return the folder or archive that `load` would read; None if it would generate, parse published files, or refuse.

    Raises:
        InputError: `$DORYLAX_DATA` names no directory, or the name is ambiguous.
    """
    name = fspath(name_or_path)
    if (path := _user_path(name)) is not None:
        return path if path.exists() else None
    entry = PUBLISHED.get(name)
    return _parsed(entry) if entry is not None and entry.slow and is_array_folder(_parsed(entry)) else None


def _user_path(name: str) -> Path | None:
    """The folder or archive of the user that a name means; it need not exist if the name is a path.

    Raises:
        InputError: The name means a folder here and another data set.
    """
    found = None if name == communities.NAME else _local().get(name)
    if not is_data_path(name):
        return found
    path = Path(name)
    other = name in (communities.NAME, *PUBLISHED) or (found is not None and not found.samefile(path))
    if other and path.name == name and not name.endswith(".npz"):
        raise InputError(f"{name!r} is the name of a data set and of a folder here: give ./{name} for the folder")
    return path


def names() -> list[str]:
    """Names that `load` knows: the generator, the published data sets, and those in `$DORYLAX_DATA`."""
    return list(dict.fromkeys([communities.NAME, *PUBLISHED, *sorted(_local())]))


def describe() -> list[Description]:
    """All of `names()` with their numbers and where `load` would take them from; `communities` once for each size."""
    generated = "generated: communities, power-law degrees, noisy features"
    sizes = communities.SIZES.items()
    lines = [Description(communities.NAME, name, generated, size, "built in") for name, size in sizes]
    here = _local()
    for entry in PUBLISHED.values():
        cached = download.is_cached(entry.sources) or is_array_folder(_parsed(entry))
        origin = "DORYLAX_DATA" if entry.name in here else "cache" if cached else "download"
        lines.append(Description(entry.name, None, entry.summary, entry.size, origin))
    others = sorted(here.keys() - {communities.NAME, *PUBLISHED})
    lines += [Description(name, None, "a data set of yours", None, "DORYLAX_DATA") for name in others]
    return lines


def _load_published(entry: Published, split_seed: int, *, verify: bool) -> Dataset:
    parsed = _parsed(entry)
    if entry.slow and is_array_folder(parsed):
        try:
            return Dataset.from_folder(parsed, split_seed=split_seed, verify=verify)
        except GraphError as error:
            _LOG.warning(
                "reading the published files of %s again, because their copy is damaged: %s", entry.name, error
            )
    found = entry.read(download.fetch(entry.name, entry.sources))
    masks = {name: found.pop(name) for name in MASKS if name in found}
    found |= chosen_masks(entry.name, masks, found["labels"], split=None, seed=split_seed)
    found["graph"] = numbered_by_source(found["graph"])  # as it is once it was kept, or comes from an archive
    data = Dataset(entry.name, **found)
    if entry.slow:
        try:
            parsed.parent.mkdir(parents=True, exist_ok=True)
            data.save(parsed)
        except (OSError, GraphError) as error:  # a full disk only costs time on the next load
            _LOG.warning("could not keep %s for the next time: %s", parsed, error)
    return data


def _parsed(entry: Published) -> Path:
    """The folder of a data set parsed from a slow format. The number changes when a reader gives another result."""
    return cache_directory() / "parsed-2" / entry.name


def is_cached(path: Path) -> bool:
    """Whether a folder is a copy in the cache, which `load` makes again if it is damaged."""
    return path.parent == cache_directory() / "parsed-2"


def _local() -> dict[str, Path]:
    """The folders and archives in `$DORYLAX_DATA` under their names; none if it is not set."""
    value = os.environ.get("DORYLAX_DATA")
    if not value:
        return {}
    folder = Path(os.path.expanduser(value))
    if not folder.is_dir():
        raise InputError(f"DORYLAX_DATA names {value!r}, which is not a directory: correct or unset it")
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    archives = {path.stem: path for path in paths if path.suffix == ".npz" and path.is_file()}
    return archives | {path.name: path for path in paths if is_array_folder(path)}


def _hint(name: str) -> str:
    start, _, size = name.replace(":", "-").replace("_", "-").partition("-")
    if start == communities.NAME and size in communities.SIZES:
        return f"for that size, load({communities.NAME!r}, size={size!r})"
    return ""
