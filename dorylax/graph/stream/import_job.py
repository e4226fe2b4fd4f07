"""One import: its disk space and its steps. A later process resumes after the last complete step.

ARCHIVE.npz.import/
    plan.json      sources and options, which a resumed import must share
    ids/           vertex numbers by id (`ids`)
    edges/         sorted runs of records; edges.json once they hold all edges
    archive.npz    the complete archive, and made.json
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np

from dorylax.durable import leftover_of, make_folder, move_file, write_json
from dorylax.errors import DorylaxError
from dorylax.folder_lock import FolderHeldError, clear_work_folder, work_folder
from dorylax.graph.edge_data import check_sums
from dorylax.graph.mapped import release
from dorylax.graph.npz import ORIGINAL_IDS
from dorylax.graph.room import gibibytes
from dorylax.graph.rows import spans
from dorylax.graph.stream.archive_writer import ArchiveWriter, new_archive
from dorylax.graph.stream.edge_archive import Facts, Made, Shape, records, write_edges
from dorylax.graph.stream.external_sort import ExternalSort
from dorylax.graph.stream.ids import Found, HashCollisionError, IdTable, NameList, find_ids
from dorylax.graph.stream.native import library
from dorylax.graph.stream.readers.base import Chunk, EdgeReader, Values, Wanted, checked_values
from dorylax.graph.stream.readers.choose import open_reader
from dorylax.graph.stream.readers.npy import mapped_array
from dorylax.graph.stream.vertex_data import VertexFiles, check_files, rows_said, write_vertex_data
from dorylax.graph.stream.vertex_rows import Rows
from dorylax.graph.validate import MAX_VERTICES, GraphError, check_num_vertices

_PLAN, _SEED, _FACTS, _ARCHIVE, _MADE = "plan.json", "seed.json", "edges.json", "archive.npz", "made.json"
_VERSION = 1
_SEEDS = 8  # hash seeds to try
_SHARE_OF_SORT = 0.7  # of the memory; chunks of the sources and tables of ids use the rest
_SHARE_OF_IDS = 0.15
_WORD = (1 << 64) - 1
_NAMES = 1 << 22  # bytes of names in one copy


@final
class ImportHeldError(DorylaxError, RuntimeError):
    """Another process imports to the same archive."""


@final
class DiskSpaceError(DorylaxError, OSError):
    """The disk is too small for the import."""

    user_error = False


class Estimate(NamedTuple):
    """Approximate size of an import.

    Attributes:
        edges: Number of edges in the sources.
        temporary_bytes: Disk space for temporary files, in bytes.
        archive_bytes: Size of the archive in bytes.
        free_bytes: Free disk space in bytes, including the temporary files of an interrupted import.
        native: Whether the native library reads text and sorts records.
    """

    edges: int
    temporary_bytes: int
    archive_bytes: int
    free_bytes: int
    native: bool


class Progress(NamedTuple):
    """Progress of an import.

    Attributes:
        stage: "ids", "edges" or "archive".
        done: Finished part of `total`, in bytes of files or in records.
        total: Size of the stage, in the unit of `done`.
        edges: Number of edges read so far.
    """

    stage: Literal["ids", "edges", "archive"]
    done: int
    total: int
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


@final
@dataclasses.dataclass(frozen=True)
class ImportJob:
    """An import, with the arguments of `import_graph`.

    Attributes:
        buffers: Bytes that the import may use in addition to the memory that the process already holds.
    """

    sources: tuple[Path, ...]
    out: Path
    buffers: int
    wanted: Wanted = dataclasses.field(default_factory=Wanted)
    num_vertices: int | None = None
    symmetrise: bool = False
    coalesce: Literal[False, "first", "sum"] = False
    edge_ids: bool = True
    edge_data: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    vertices: VertexFiles = dataclasses.field(default_factory=VertexFiles)
    name: str | None = None
    expected: Callable[[Estimate], object] = lambda _: None
    progress: Callable[[Progress], object] = lambda _: None

    def run(self) -> Imported:
        """Imports the sources, or resumes an interrupted import.

        Raises:
            GraphError, DiskSpaceError, ImportHeldError, OSError: as `import_graph` says.
        """
        check_files(self.vertices)
        shape = self._shape(self._readers(self.wanted))
        work = self.out.with_name(f"{self.out.name}.import")
        try:
            with work_folder(work):
                self._agree(work)
                try:
                    imported = self._run(work, shape)
                except GraphError:  # the user must change a source, and then none of these files can be used
                    self._clear(work)
                    raise
                self._clear(work)
        except FolderHeldError as error:
            raise ImportHeldError(
                f"{self.out} is being imported by {error.holder}: wait for it, or give another --out"
            ) from None
        return imported

    def _run(self, work: Path, shape: Shape) -> Imported:
        made_at, archive_at = work / _MADE, work / _ARCHIVE
        estimate = self._estimate(work, shape)
        self.expected(estimate)
        if not (made_at.is_file() and (archive_at.is_file() or self.out.is_file())):
            facts = self._numbered(work, shape) if self.wanted.ids == "names" else self._all_edges(work, shape, 0)
            made = self._write(work, shape, facts)
            write_json(made_at, {**made._asdict(), "num_vertices": facts.num_vertices, "edges_read": facts.num_edges})
        if archive_at.is_file():
            move_file(archive_at, self.out)
        return Imported(**json.loads(made_at.read_text()), estimate=estimate)

    def _numbered(self, work: Path, shape: Shape) -> Facts:
        """The edges of vertices that have names, by the first hashes under which no two of these are the same."""
        seed_at = work / _SEED
        first = json.loads(seed_at.read_text())["seed"] if seed_at.is_file() else 0
        for seed in range(first, _SEEDS):
            try:
                return self._all_edges(work, shape, seed)
            except HashCollisionError:
                shutil.rmtree(work / "ids")
                write_json(seed_at, {"seed": seed + 1})
        raise GraphError(
            f"two names have the same hash, for each of {_SEEDS} hashes: are names made so? --ids integers"
        )

    def _all_edges(self, work: Path, shape: Shape, seed: int) -> Facts:
        """Reads all edges into sorted runs."""
        readers = self._readers(self.wanted._replace(seed=seed))
        found = None
        if self.wanted.ids != "numbers":
            make_folder(work / "ids")
            chunks = functools.partial(self._chunks, readers, stage="ids")
            memory = int(self.buffers * _SHARE_OF_SORT)
            found = find_ids(work / "ids", chunks, names=self.wanted.ids == "names", memory=memory)
        facts_at = work / _FACTS
        if not facts_at.is_file():
            with self._sort(work, shape) as sort:
                facts = self._read(readers, sort, shape, work, found)
            write_json(facts_at, facts._asdict())
        facts = Facts(**json.loads(facts_at.read_text()))
        if (rows := rows_said(self.vertices)) not in (None, facts.num_vertices):
            raise GraphError(
                f"arrays of vertices have {rows:,} rows, and the edges are of {facts.num_vertices:,} vertices"
            )
        return facts

    def _read(
        self, readers: list[EdgeReader], sort: ExternalSort, shape: Shape, work: Path, found: Found | None
    ) -> Facts:
        # Counts include the runs of earlier processes, which the state of the sort records.
        state = sort.state or {
            **{"edges": 0, "largest": -1, "ascending": True, "last": -1, "sums": [0, 0, 0, 0], "names": 0},
            "at": None,
        }
        known = self._known_vertices() if found is None else found.num_ids
        table = None if found is None else IdTable(work / "ids", int(self.buffers * _SHARE_OF_IDS))
        names = NameList(work / "ids", found.longest, state["names"]) if found and found.longest else None
        given = {name: mapped_array(path) for name, path in self.edge_data.items()}
        for chunk, at in self._chunks(readers, state["at"], stage="edges", edges=state["edges"]):
            if table is None:
                sources, targets = np.asarray(chunk.sources), np.asarray(chunk.targets)
                _check_numbers(chunk, sources, targets, known)
            else:
                sources, targets = table.numbers(chunk)
            if names is not None:
                names.add(chunk, sources, targets)
            first, stop = state["edges"], state["edges"] + chunk.size
            values = dict(chunk.values)
            for name, array in given.items():
                self._check_length(name, len(array), stop, at_least=True)
                values[name] = array[first:stop]
            added = records(shape, sources, targets, first, values)
            forward = added.keys[: chunk.size]
            ends = [sources.astype(np.uint64), targets.astype(np.uint64)]
            sums = [int(one.sum(dtype=np.uint64)) for end in ends for one in (end, end * end)]
            ascending = bool(forward[0] >= state["last"] and (forward[1:] >= forward[:-1]).all())
            state = {
                "edges": stop,
                "largest": max(state["largest"], int(sources.max()), int(targets.max())),
                "ascending": state["ascending"] and ascending,
                "last": int(forward[-1]),
                "sums": [(one + more) & _WORD for one, more in zip(state["sums"], sums, strict=True)],
                "names": 0 if names is None else names.count,
                "at": at,
            }
            sort.add(added.keys, added.values, state)
            release(*given.values())
        sort.finish()
        for name, array in given.items():
            self._check_length(name, len(array), state["edges"])
        sums = state["sums"]
        num_vertices = state["largest"] + 1 if known is None else known
        return Facts(num_vertices, state["edges"], state["ascending"], sums[:2] == sums[2:])

    def _write(self, work: Path, shape: Shape, facts: Facts) -> Made:
        """Merges the runs into the archive."""
        total = facts.num_edges * shape.records_per_edge
        made = None
        with self._sort(work, shape) as sort, new_archive(work / _ARCHIVE) as archive:
            for done in write_edges(archive, sort, shape, facts, work):
                if isinstance(done, Made):
                    made = done
                else:
                    self.progress(Progress("archive", done, total, facts.num_edges))
            if self.name is not None:
                archive.add("name", np.array(self.name))
            write_vertex_data(archive, self.vertices, facts.num_vertices)
            self._write_ids(work / "ids", archive, facts.num_vertices)
        assert made is not None
        return made

    def _write_ids(self, folder: Path, archive: ArchiveWriter, num_vertices: int) -> None:
        """Writes the user's ids of the vertices."""
        if self.wanted.ids == "numbers":
            return
        dtype = np.dtype(np.int64)
        if self.wanted.ids == "names":
            dtype = np.dtype(f"S{json.loads((folder / 'ids.json').read_text())['longest']}")
        column = archive.open(ORIGINAL_IDS, dtype, (num_vertices,))
        with (folder / ("names" if self.wanted.ids == "names" else "keys")).open("rb") as file:
            for start, stop in spans(num_vertices, max(1, _NAMES // dtype.itemsize)):
                column.write(np.fromfile(file, dtype, stop - start))

    def _sort(self, work: Path, shape: Shape) -> ExternalSort:
        return ExternalSort(work / "edges", shape.dtype, memory=int(self.buffers * _SHARE_OF_SORT))

    def _readers(self, wanted: Wanted) -> list[EdgeReader]:
        return [open_reader(path, wanted) for path in self.sources]

    def _chunks(
        self, readers: list[EdgeReader], start: Any, *, stage: Literal["ids", "edges"], edges: int = 0
    ) -> Iterator[tuple[Chunk, Any]]:
        """The edges of all sources, each chunk with where the next one begins."""
        source, state = start or (0, None)
        sizes = [reader.path.stat().st_size for reader in readers]
        for number in range(source, len(readers)):
            for chunk in readers[number].chunks(state if number == source else None):
                edges += chunk.size
                self.progress(Progress(stage, sum(sizes[:number]) + chunk.read, sum(sizes), edges))
                if chunk.size:
                    yield chunk, [number, chunk.state]

    def _shape(self, readers: list[EdgeReader]) -> Shape:
        """Ids and values of the edges.

        Raises:
            GraphError: The sources differ in them, or they contradict the arguments.
        """
        values = dict(readers[0].values)
        for reader in readers[1:]:
            if dict(reader.values) != values:
                told = [f"{one.path} has {_told(one.values)}" for one in (readers[0], reader)]
                raise GraphError(
                    f"sources differ in what edges have: {told[0]}, {told[1]}: --values names those to take"
                )
        for name, path in self.edge_data.items():
            array = mapped_array(path)
            if name in values:
                raise GraphError(f"edges have {name!r} twice: of {readers[0].path} and of {path}")
            values[name] = checked_values(f"{path}: {name}", array.dtype, array.shape[1:], None)
        for name in values:
            if not name or name == "ids":
                raise GraphError(
                    f"values of edges cannot be called {name!r}: edge_ids in an archive are the edges' ids"
                )
        if values and not self.edge_ids:
            raise GraphError(f"edge_data {', '.join(values)} with edge_ids=False: values per edge need edge ids")
        if self.coalesce == "sum":
            check_sums({name: kept.dtype for name, kept in values.items()})
        if self.num_vertices is not None:
            check_num_vertices(self.num_vertices)
            if (rows := rows_said(self.vertices)) not in (None, self.num_vertices):
                raise GraphError(f"arrays of vertices have {rows:,} rows, and num_vertices is {self.num_vertices:,}")
            if self.wanted.ids != "numbers":
                raise GraphError(
                    f"num_vertices is given, and so are ids={self.wanted.ids!r}, which are counted: omit one"
                )
        return Shape(values, self.edge_ids, self.coalesce, self.symmetrise)

    def _known_vertices(self) -> int | None:
        return rows_said(self.vertices) if self.num_vertices is None else self.num_vertices

    def _check_length(self, name: str, rows: int, edges: int, *, at_least: bool = False) -> None:
        if rows < edges or (rows > edges and not at_least):
            more = "at least " if at_least else ""
            raise GraphError(f"{self.edge_data[name]}: {name} has {rows:,} rows, and there are {more}{edges:,} edges")

    def _estimate(self, work: Path, shape: Shape) -> Estimate:
        """Estimates the disk space of the import.

        Raises:
            DiskSpaceError: The disk has less free space.
        """
        edges = sum(reader.estimate() for reader in self._readers(self.wanted))
        memory = int(self.buffers * _SHARE_OF_SORT)
        kept = edges * shape.records_per_edge
        width = 4 + 4 * shape.ids + sum(one.dtype.itemsize * int(np.prod(one.row)) for one in shape.values.values())
        temporary = ExternalSort.disk_bytes(shape.dtype, kept, memory) + (0 if shape.keeps_all else kept * width)
        # The number of ids is unknown; one for every four edges is a high estimate.
        temporary += {"numbers": 0, "integers": 4 * edges, "names": 24 * edges}[self.wanted.ids]
        archive = kept * width + sum(Rows.of(path).path.stat().st_size for path in self.vertices.paths.values())
        there = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
        free = shutil.disk_usage(work).free + there
        found = Estimate(edges, temporary, archive, free, library() is not None)
        if temporary + archive > free:
            raise DiskSpaceError(
                f"{self.out.parent}: about {edges:,} edges take about {gibibytes(temporary + archive)} of disk, "
                f"{gibibytes(temporary)} of it for a while, and {gibibytes(free)} are free: --out on another disk"
            )
        return found

    def _agree(self, work: Path) -> None:
        """Records sources and options, or compares them with those of an interrupted import.

        Raises:
            GraphError: The interrupted import has other sources or options.
        """
        wanted = self.wanted._replace(piece=0)._asdict()
        vertices = [Rows.of(path).path for path in self.vertices.paths.values()]
        files = [*self.sources, *self.edge_data.values(), *vertices]
        plan = {
            "version": _VERSION,
            "files": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files],
            "options": repr((wanted, self.num_vertices, self.symmetrise, self.coalesce, self.edge_ids, self.name)),
            "data": repr((sorted(self.edge_data), self.vertices)),
        }
        plan_at = work / _PLAN
        if plan_at.is_file():
            try:
                same = json.loads(plan_at.read_text()) == plan
            except ValueError:
                same = False
            if not same:
                raise GraphError(
                    f"{work} holds a half-done import of other files or options, or a file has changed since: repeat that "
                    "command, or remove this folder"
                )
        else:
            self._clear(work)
            write_json(plan_at, plan)
        for path in work.iterdir():
            if leftover_of(path) is not None:
                path.unlink()

    @staticmethod
    def _clear(work: Path) -> None:
        """Removes all files, the records of finished steps last."""
        clear_work_folder(work, last=(_MADE, _PLAN))


def _told(values: Mapping[str, Values]) -> str:
    return ", ".join(f"{name} ({kept.dtype})" for name, kept in values.items()) or "no values"


def _check_numbers(chunk: Chunk, sources: np.ndarray, targets: np.ndarray, known: int | None) -> None:
    """Ends are numbers of vertices.

    Raises:
        GraphError: one is not; says where it is.
    """
    limit = MAX_VERTICES if known is None else known
    for end, numbers in (("source", sources), ("target", targets)):
        if numbers.min() >= 0 and numbers.max() < limit:
            continue
        k = int(np.flatnonzero((numbers < 0) | (numbers >= limit))[0])
        fault = "negative" if numbers[k] < 0 else "out of range"
        owner = "the most that int32 numbers" if known is None else "num_vertices"
        raise GraphError(
            f"{chunk.where(k)}: {end} {numbers[k]} is {fault}: must be ≥ 0 and < {owner} = {limit}; --ids integers takes any"
        )
