"""Source files: patterns, objects of S3, formats, and changes while they are read."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dorylax.graph.from_files.arrays import matrix_market, npy, npz
from dorylax.graph.from_files.columns import EdgeFile, Wanted
from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.tables import TableEdges, TextEdges, table_function
from dorylax.graph.validate import GraphError
from dorylax.graph.verification import State, difference, state_of
from dorylax.storage.location import Location
from dorylax.storage.s3 import S3Storage


def expand(sources: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Expand patterns, in order of names.

    Raises:
        GraphError: Nothing matches a pattern, or there is no source.
    """
    found: list[str] = []
    for source in (os.fspath(one) for one in sources):
        if source.startswith("s3:/"):  # click's paths drop a slash
            found.append("s3://" + source.removeprefix("s3:/").lstrip("/"))
        elif os.path.lexists(source) or not glob.has_magic(source):
            found.append(os.path.abspath(source))
        elif matches := sorted(glob.glob(source)):
            found += map(os.path.abspath, matches)
        else:
            raise GraphError(f"no file matches {source!r}")
    if not found:
        raise GraphError("there is nothing to import: name at least one file of edges")
    return found


def local_name(database: Database, source: str, work: Path, number: int) -> Path:
    """Link a source into the folder of temporary files, or download an object of S3.

    Raises:
        GraphError: The source is a folder, or not s3://bucket/key.
        OSError: The source cannot be read.
    """
    if source.startswith("s3://"):
        local = work / f"object-{number}"
        try:
            place = Location.of(source)
        except ValueError as error:
            raise GraphError(f"{source!r} {error}") from None
        folder, _, key = place.prefix.rpartition("/")
        storage = S3Storage(Location(place.bucket, folder))
        try:
            storage.download(key, local)
        finally:
            storage.close()
        return local
    if os.path.isdir(source):
        raise GraphError(
            f"{source} is a folder: name the files in it (one of the Open Graph Benchmark has raw/edge.csv.gz or "
            "raw/data.npz)"
        )
    return database.link(Path(source))


def open_edges(database: Database, path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Open a file of edges in the format that its name and first bytes tell; text if they tell none.

    Raises:
        GraphError: The file is damaged, or holds no edges.
        OSError: The file cannot be read.
    """
    given = Path(shown_as)
    suffixes = [one for one in given.suffixes if one not in (".gz", ".zst")] or [""]
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"%%MatrixMarket") or suffixes[-1] == ".mtx":
        return matrix_market(path, shown_as, wanted)
    if suffixes[-1] in (".graph", ".metis"):
        raise GraphError(
            f"{shown_as} is a METIS graph by its name, which is not read: convert it to lines of edges, or rename it if it "
            "has such lines"
        )
    if given.suffix == ".npy":
        return npy(path, shown_as, wanted)
    if given.suffix == ".npz":  # errors name the file that is opened
        return npz(Path(os.readlink(path)) if path.is_symlink() else path, shown_as, wanted)
    if (function := table_function(path, shown_as)) is not None:
        return TableEdges(database, path, shown_as, wanted, function)
    return TextEdges(database, path, shown_as, wanted)


def check_states(states: Mapping[Path, State], shown: Mapping[Path, str]) -> None:
    """Raise a GraphError if a file has changed."""
    for path, before in states.items():
        how = difference(before, state_of(str(path))) if path.exists() else "it is gone"
        if how:
            raise GraphError(
                f"{shown[path]} has changed since the import began ({how}): import it again when nobody touches it"
            )
