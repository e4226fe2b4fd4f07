"""Importing graphs of any size: edges from files of several formats to the archive that `Graph.from_npz` reads.

Edges are read in pieces, sorted into runs on disk, and merged into the archive; `import_job` has the steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from dorylax.graph.room import gibibytes
from dorylax.graph.stream.import_job import Estimate, Imported, ImportJob, Progress
from dorylax.graph.stream.ogb_folder import OgbFolder
from dorylax.graph.stream.readers.base import Wanted
from dorylax.graph.stream.vertex_data import VertexFiles
from dorylax.graph.validate import GraphError
from dorylax.machine import resident_bytes

LEAST_MEMORY = 1 << 28
"""Bytes: Python, NumPy and the smallest useful buffers."""

_LEAST_BUFFERS = 1 << 25  # of a process that is large already


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
    expected: Callable[[Estimate], object] = lambda _: None,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Imported:
    """Makes an archive of the edges in some files, within a budget of memory.

    The archive is, array for array, what `Graph.from_coo(…, coalesce=…)`, `symmetrise()` and `save_npz` make of the same
    edges: the id of an edge is its position in all sources together, in the order given. A call that was interrupted, at
    whatever moment, is continued by the same call; `memory` may be another.

    Args:
        sources: files of edges: text, also gzipped; `.npy`, `.npz`, `.parquet`; or one folder of the Open Graph Benchmark,
            whose features, labels and split come along.
        out: the archive, in place of one that may be there.
        memory: bytes that this process may take in all, at least `LEAST_MEMORY`.
        wanted: which columns are what, and what vertices are called by; by default numbers of vertices.
        num_vertices: V; None takes one more than the largest number, or as many as arrays of vertices have rows.
        symmetrise: add the reverse of each edge that has none, and keep one of equal edges, as `Graph.symmetrise`.
        coalesce: keep one of equal edges, "first" or "sum", as `Graph.coalesce`.
        edge_ids: False where nothing per edge will ever come; a third less of disk and 4 bytes an edge of archive.
        edge_data: files of NumPy with values of the edges, `[E, …]` in the order of the sources.
        vertices: files with what is known about the vertices.
        name: of the data set; None for none.
        expected: is told what the import will take before it begins.
        progress: is told how far it is.

    Raises:
        GraphError: a source is damaged or holds something else, with its place; or arguments do not fit.
        DiskSpaceError: there is not as much disk as will be needed.
        ImportHeldError: another process imports to the same archive.
        OSError: a source cannot be read, or the file system refuses; what was done is kept.
    """
    if memory < LEAST_MEMORY:
        raise GraphError(f"an import needs at least {gibibytes(LEAST_MEMORY)} of memory, got {gibibytes(memory)}")
    path = Path(out)
    if path.suffix != ".npz":
        raise GraphError(f"the archive's name must end in .npz, got {str(path)!r}")
    if not sources:
        raise GraphError("there is nothing to import: name at least one file of edges")
    paths = [Path(source).absolute() for source in sources]
    if len(paths) == 1 and paths[0].is_dir() and (folder := OgbFolder.of(paths[0])) is not None:
        paths, num_vertices = [folder.edges], folder.num_vertices if num_vertices is None else num_vertices
        vertices = vertices or folder.vertices
    job = ImportJob(
        sources=tuple(paths),
        out=path.absolute(),
        buffers=max(memory - resident_bytes(), _LEAST_BUFFERS),
        wanted=(wanted or Wanted())._replace(piece=min(1 << 24, memory // 64)),
        num_vertices=num_vertices,
        symmetrise=symmetrise,
        coalesce=coalesce,
        edge_ids=edge_ids,
        edge_data={key: Path(file).absolute() for key, file in (edge_data or {}).items()},
        vertices=vertices or VertexFiles(),
        name=name,
        expected=expected,
        progress=progress,
    )
    return job.run()
