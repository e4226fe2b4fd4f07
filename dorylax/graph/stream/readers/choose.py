"""Which reader reads a file: by its name."""

from __future__ import annotations

from pathlib import Path

from dorylax.graph.stream.readers.base import EdgeReader, Wanted
from dorylax.graph.stream.readers.npy import NpyReader
from dorylax.graph.stream.readers.npz import NpzReader
from dorylax.graph.stream.readers.parquet import ParquetReader
from dorylax.graph.stream.readers.text import TextReader
from dorylax.graph.validate import GraphError

_BY_SUFFIX: dict[str, type[NpyReader | NpzReader | ParquetReader]] = {
    ".npy": NpyReader,
    ".npz": NpzReader,
    ".parquet": ParquetReader,
    ".pq": ParquetReader,
}


def open_reader(path: Path, wanted: Wanted) -> EdgeReader:
    """The reader of a file: of NumPy's and Parquet by their suffixes, of text for all others.

    Raises:
        GraphError: the file is damaged, or holds no such edges.
        OSError: it cannot be read.
    """
    if path.is_dir():
        raise GraphError(
            f"{path} is a folder: name the files in it (one of the Open Graph Benchmark has raw/edge.csv.gz or raw/data.npz)"
        )
    return _BY_SUFFIX.get(path.suffix, TextReader)(path, wanted)
