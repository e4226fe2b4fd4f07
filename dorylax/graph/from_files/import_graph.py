"""Import graphs of any size: edges from files of several formats to the folder that `Graph.from_folder` reads.

DuckDB reads and sorts the edges in a temporary folder next to the target. An interrupted import starts again.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dorylax.graph.array_folder import FolderWriter, check_target, write_arrays
from dorylax.graph.array_names import MASKS
from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.edge_columns import Shape, number_vertices, write_edges, write_ids
from dorylax.graph.from_files.edge_files import EdgeFile, checked_values, load_columns, num_numbers, open_edges
from dorylax.graph.from_files.sources import check_states, expand, local_name, ogb_folder
from dorylax.graph.from_files.tables import ArrayTable, stored_array
from dorylax.graph.from_files.text import Wanted
from dorylax.graph.from_files.vertices import (
    VertexFiles,
    VertexTable,
    check_files,
    file_of,
    open_vertices,
    write_vertices,
)
from dorylax.graph.mapped import state_of
from dorylax.graph.transform import check_sums
from dorylax.graph.validate import GraphError, check_num_vertices, check_printable, gibibytes
from dorylax.machine import cores, resident_bytes
from dorylax.store.durable import work_folder

LEAST_MEMORY = 1 << 28
"""Least memory of an import in bytes: Python, NumPy, pandas, DuckDB and small buffers."""

_SPLIT = (
    "no masks: training splits the labelled vertices, 60/20/20 % (data.split_seed; --train-mask, --val-mask "
    "and --test-mask give masks)"
)
_LEAST_BUFFERS = 1 << 26
_LIBRARIES = 5 << 25  # bytes of pandas and of chunks of results
_ROW_BYTES = 24  # of an edge in DuckDB's tables and sorted runs, without values


class Estimate(NamedTuple):
    """Approximate size of an import, and the detected layout of its files.

    Attributes:
        edges: Number of edges in the sources.
        temporary_bytes: Disk space for temporary files, in bytes.
        folder_bytes: Size of the folder in bytes.
        free_bytes: Free disk space in bytes.
        detected: A line per file, with the options that override the detected layout.
    """

    edges: int
    temporary_bytes: int
    folder_bytes: int
    free_bytes: int
    detected: tuple[str, ...]


class Progress(NamedTuple):
    """Progress of an import.

    Attributes:
        stage: "edges" (reading), "vertices" (numbering), "sort" or "arrays" (writing).
        done: Finished part of the stage, 0 to 1.
        edges: Number of edges read so far.
    """

    stage: Literal["edges", "vertices", "sort", "arrays"]
    done: float
    edges: int


class Imported(NamedTuple):
    """Summary of a finished import.

    Attributes:
        num_vertices: V.
        num_edges: E.
        edges_read: Number of edges in the sources.
        symmetric: Whether each edge comes with its reverse.
        self_loops: "none", "some" or "all" vertices have an edge to themselves.
        edge_ids: Whether edges have ids.
        estimate: Estimate made before the import.
    """

    num_vertices: int
    num_edges: int
    edges_read: int
    symmetric: bool
    self_loops: str
    edge_ids: bool
    estimate: Estimate


def import_graph(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    memory: int,
    wanted: Wanted | None = None,
    num_vertices: int | None = None,
    symmetrise: bool = False,
    coalesce: Literal[False, "first", "sum"] = False,
    edge_ids: bool = True,
    edge_data: Mapping[str, str | os.PathLike[str]] | None = None,
    vertices: VertexFiles | None = None,
    name: str | None = None,
    threads: int | None = None,
    expected: Callable[[Estimate], object] = lambda _: None,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Imported:
    """Make a data set of the edges in some files, within a budget of memory.

    Its arrays are those that `Graph.from_coo(…, coalesce=…)`, `symmetrise()` and `save` write for the same
    edges: the id of an edge is its position in all sources together, in the order given. An interrupted import starts
    again.

    Args:
        sources: Files of edges, patterns such as "part-*.csv", or s3://bucket/key: text, JSON lines (both also gzip and
            zstd), Parquet, `.npy`, `.npz` of NumPy and SciPy, MatrixMarket; or one folder of the Open Graph Benchmark.
        out: The folder; one that dorylax wrote is replaced.
        memory: Memory of this process in bytes, at least `LEAST_MEMORY`. MatrixMarket and SciPy files come on top.
        wanted: Columns to read, and kind of the vertex ids; by default numbers of vertices.
        num_vertices: V; None for one more than the largest number, or the number of rows of arrays of vertices.
        symmetrise: Whether to add the reverse of each edge that has none, and keep one of equal edges.
        coalesce: Keep one of equal edges, with the values of the "first" or the "sum", as `Graph.coalesce`.
        edge_ids: Whether edges have ids.
        edge_data: Files of NumPy with values of the edges, `[E, …]` in the order of the sources.
        vertices: Files with data of the vertices.
        name: Name of the data set; None for none.
        threads: Upper bound of the threads; None for the cores of this process. The arrays do not depend on it.
        expected: Called with an estimate before the import begins.
        progress: Called with the progress.

    Raises:
        GraphError: A source is damaged, has changed, or holds something else; or arguments do not fit.
        RunError: The import needs more memory than `memory`.
        RunError: Another process imports to the same folder.
        OSError: A source cannot be read, the disk has less space than the import needs, or the file system refuses.
    """
    if memory < LEAST_MEMORY:
        raise GraphError(f"an import needs at least {gibibytes(LEAST_MEMORY)} of memory, got {gibibytes(memory)}")
    path = Path(out).absolute()
    check_target(Path(out))
    check_printable("the data set's name", name or "")
    wanted, vertices = wanted or Wanted(), vertices or VertexFiles()
    check_files(vertices, wanted.ids)
    paths = expand(sources)
    if len(paths) == 1 and Path(paths[0]).is_dir() and (folder := ogb_folder(Path(paths[0]))) is not None:
        edges, count, of_folder = folder
        paths, num_vertices = [str(edges)], count if num_vertices is None else num_vertices
        vertices = vertices if vertices.paths else of_folder
    buffers = max(memory - resident_bytes() - _LIBRARIES, _LEAST_BUFFERS)
    with work_folder(path) as work:
        tell = _Teller(progress)
        with Database(work, buffers, threads or cores(), tell.share) as database:
            given = {one: stored_array(Path(file)) for one, file in (edge_data or {}).items()}
            local = [local_name(database, one, work, number) for number, one in enumerate(paths)]
            places = [*map(file_of, vertices.paths.values()), *(Path(file) for file in (edge_data or {}).values())]
            states = {one: state_of(str(one)) for one in (*local, *places)}
            shown = dict(zip(local, paths, strict=True)) | {one: str(one) for one in places}
            files = [open_edges(database, one, shown[one], wanted) for one in local]
            values = _values(files, given)
            shape = Shape(values, edge_ids, coalesce, symmetrise)
            _check_arguments(shape, num_vertices, wanted)
            sizes = [num_vertices, *(one.num_vertices for one in files)]
            known = max((size for size in sizes if size is not None), default=None)
            tables, rows = open_vertices(database, vertices, wanted.ids)
            if known is not None and rows not in (None, known):
                raise GraphError(f"arrays of vertices have {rows:,} rows, and num_vertices is {known:,}")
            known = rows if known is None and not vertices.key else known
            estimate = _estimate(files, shape, wanted, known=known, tables=tables, path=path)
            expected(estimate)
            tables_of_values = _load(database, files, given, wanted, tell)
            check_states(states, shown)
            keyed = [table.keys for what, table in tables.items() if vertices.key and what in ("features", "labels")]
            tell.stage = "vertices"
            num = number_vertices(database, files, wanted.ids, given=tables_of_values, more=keyed, known=known)
            _, size = _sizes(shape, tell.edges, num, wanted)
            free = shutil.disk_usage(path.parent).free
            _with_room(path, estimate._replace(edges=tell.edges, temporary_bytes=0, folder_bytes=size, free_bytes=free))
            made: tuple[int, bool, str, bool] | None = None

            def fill(folder: FolderWriter) -> None:
                nonlocal made
                tell.stage = "sort"
                made = write_edges(folder, database, shape, tell.sorted, num_vertices=num, num_given=tell.edges)
                if name is not None:
                    folder.add("name", np.array(name))
                write_vertices(folder, tables, vertices, num)
                write_ids(database, folder, wanted.ids, num)
                check_states(states, shown)

            write_arrays(path, fill, provenance={"command": "dorylax import", "sources": paths})
            assert made is not None
    return Imported(num, made[0], tell.edges, *made[1:], estimate)


class _Teller:
    """Turns the progress of statements into that of the import."""

    def __init__(self, progress: Callable[[Progress], object]) -> None:
        self._progress = progress
        self.stage: Literal["edges", "vertices", "sort", "arrays"] = "edges"
        self.edges, self.done, self.part = 0, 0.0, 1.0

    def share(self, done: float) -> None:
        """Take the finished share of a statement."""
        self._progress(Progress(self.stage, min(1.0, self.done + self.part * done), self.edges))

    def sorted(self, done: float) -> None:
        """Take the written share of the sorted edges."""
        self.stage = "arrays"
        self.share(done)


def _values(files: Sequence[EdgeFile], given: Mapping[str, np.ndarray]) -> dict[str, np.dtype[Any]]:
    """Return the values of the edges with arrays that are given apart; a GraphError if files differ or a name is bad."""
    values = dict(files[0].values)
    for file in files[1:]:
        if dict(file.values) != values:
            first, other = (
                f"{one.shown} has {', '.join(f'{name} ({kept.base})' for name, kept in one.values.items()) or 'no values'}"
                for one in (files[0], file)
            )
            raise GraphError(f"sources differ in what edges have: {first}, {other}: --values names those to take")
    for one, array in given.items():
        if one in values:
            raise GraphError(f"edges have {one!r} twice: of {files[0].shown} and of --edge-data")
        values[one] = checked_values(f"--edge-data {one}", np.dtype((array.dtype, array.shape[1:])))
    for one in values:
        if not one or one == "ids":
            raise GraphError(f"values of edges cannot be called {one!r}: the array edge_ids holds the ids of the edges")
    return values


def _check_arguments(shape: Shape, num_vertices: int | None, wanted: Wanted) -> None:
    if shape.values and not shape.ids:
        raise GraphError(f"edge_data {', '.join(shape.values)} with edge_ids=False: values per edge need edge ids")
    if shape.coalesce == "sum":
        check_sums({one: kept.base for one, kept in shape.values.items()})
    if num_vertices is not None:
        check_num_vertices(num_vertices)
        if wanted.ids != "numbers":
            raise GraphError(f"num_vertices is given, and so are ids={wanted.ids!r}, which are counted: omit one")


def _estimate(
    files: Sequence[EdgeFile],
    shape: Shape,
    wanted: Wanted,
    *,
    known: int | None,
    tables: Mapping[str, VertexTable],
    path: Path,
) -> Estimate:
    """Estimate the size of the import from the first rows of the files."""
    edges = sum(file.estimate for file in files)
    guess = max(file.largest for file in files) + 1 if wanted.ids == "numbers" else edges // 4
    num_vertices = guess if known is None else known
    described = (*(file.described for file in files), *(table.described for table in tables.values()))
    if "labels" in tables and not tables.keys() & set(MASKS):
        described = (*described, _SPLIT)
    temporary, archive = _sizes(shape, edges, num_vertices, wanted)
    archive += sum(table.bytes for table in tables.values())
    return _with_room(path, Estimate(edges, temporary, archive, shutil.disk_usage(path.parent).free, described))


def _sizes(shape: Shape, edges: int, num_vertices: int, wanted: Wanted) -> tuple[int, int]:
    """Bytes of temporary files, and of the arrays without those of vertices."""
    kept = edges * (2 if shape.symmetrise else 1)
    values = sum(dtype.itemsize for dtype in shape.values.values())
    names = {"numbers": 0, "integers": 8, "names": 24}[wanted.ids]
    archive = kept * (4 + 4 * shape.ids + values) + (8 + names) * num_vertices
    return (edges + kept) * (_ROW_BYTES + 8 * num_numbers(shape.values)) + names * edges, archive


def _with_room(path: Path, estimate: Estimate) -> Estimate:
    """Return an estimate that the disk has room for. Raises an OSError if it has less room."""
    size = estimate.temporary_bytes + estimate.folder_bytes
    if size > estimate.free_bytes:
        raise OSError(
            errno.ENOSPC,
            f"about {estimate.edges:,} edges take about {gibibytes(size)} of disk, {gibibytes(estimate.temporary_bytes)} "
            f"of it for a while, and {gibibytes(estimate.free_bytes)} are free: --out on another disk",
            str(path.parent),
        )
    return estimate


def _load(
    database: Database, files: Sequence[EdgeFile], given: Mapping[str, np.ndarray], wanted: Wanted, tell: _Teller
) -> dict[str, list[str]]:
    """Load the files, and then the values that are given apart; return the tables of these with their columns."""
    total = max(1, sum(file.estimate for file in files))
    for number, file in enumerate(files):
        tell.done, tell.part = tell.edges / total, file.estimate / total
        file.load(database, f"edges{number}", files[0].values)
        tell.edges += file.count
    tell.done, tell.part = 0.0, 1.0
    tables, first = {}, num_numbers(files[0].values)
    for number, (one, array) in enumerate(given.items()):
        if len(array) != tell.edges:
            raise GraphError(f"--edge-data {one} has {len(array):,} rows, and there are {tell.edges:,} edges")
        table = ArrayTable(f"--edge-data {one}", "array", {one: array})
        values = {one: checked_values(one, table.dtypes[one])}
        load_columns(database, f"given{number}", table, values, wanted, first=first)
        tables[f"given{number}"] = [f"v{k}" for k in range(first, first + num_numbers(values))]
        first += num_numbers(values)
    return tables
