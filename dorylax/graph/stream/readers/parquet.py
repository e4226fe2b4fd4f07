"""Edges from Parquet, by pyarrow, which is needed for nothing else and comes with `pip install pyarrow`."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.durable import named
from dorylax.errors import DorylaxError
from dorylax.graph.stream.readers.base import Chunk, EdgeReader, Values, Wanted, checked_values, ends_of, roles
from dorylax.graph.validate import GraphError


@final
class MissingPyarrowError(DorylaxError, ImportError):
    """Parquet is to be read, and pyarrow is not there."""

    user_error = True


@final
class ParquetReader(EdgeReader):
    """A Parquet file.

    Args:
        path: of the file.
        wanted: what to read of it.

    Raises:
        MissingPyarrowError: there is no pyarrow.
        GraphError: it is damaged, or has no such columns.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path, self._wanted = path, wanted
        with self._file() as file:
            schema, self._size = file.schema_arrow, file.metadata.num_rows
            source, target, values = roles(path, schema.names, wanted)
            stored = {name: schema.field(name).type for name in values}
        self._ends = source, target
        self._values = {}
        for name, dtype in values.items():
            try:
                found = np.dtype(stored[name].to_pandas_dtype())
            except (NotImplementedError, TypeError):
                found = np.dtype(object)
            self._values[name] = checked_values(f"{path}: {name}", found, (), dtype)

    @property
    def path(self) -> Path:
        """See `EdgeReader`."""
        return self._path

    @property
    def values(self) -> Mapping[str, Values]:
        """See `EdgeReader`."""
        return self._values

    def estimate(self) -> int:
        """See `EdgeReader`."""
        return int(self._size)

    def chunks(self, state: Any = None) -> Iterator[Chunk]:
        """See `EdgeReader`."""
        columns = [*self._ends, *self._values]
        skipped = state or 0
        size = max(1, self._wanted.piece // (8 * len(columns)))
        first, bytes_all = 0, self._path.stat().st_size
        with self._file() as file:
            for batch in file.iter_batches(batch_size=size, columns=columns):
                stop = first + batch.num_rows
                if stop > skipped:
                    yield self._chunk(batch.slice(max(0, skipped - first)), stop, bytes_all * stop // self._size)
                first = stop

    def _chunk(self, batch: Any, stop: int, read: int) -> Chunk:
        first = stop - batch.num_rows

        def where(k: int) -> str:
            return f"{self._path}, row {first + k:,}"

        arrays = {}
        for name in (*self._ends, *self._values):
            column = batch.column(name)
            if column.null_count:
                empty = int(np.flatnonzero(np.asarray(column.is_null()))[0])
                raise GraphError(f"{where(empty)} has no {name}")
            arrays[name] = column.to_numpy(zero_copy_only=False)
        found = [ends_of(f"{self._path}: {name}", arrays[name], self._wanted) for name in self._ends]
        values = {name: arrays[name].astype(kept.dtype, copy=False) for name, kept in self._values.items()}
        return Chunk(found[0], found[1], values, where, stop, read)

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        """The file, open; what reading damaged bytes raises meanwhile becomes a `GraphError` that names it."""
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise MissingPyarrowError(f"{self._path}: Parquet is read by pyarrow: pip install pyarrow") from None
        try:
            with named(self._path), self._path.open("rb") as stream, pyarrow.parquet.ParquetFile(stream) as file:
                yield file
        except GraphError:
            raise
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EIO):  # Arrow's own are a text alone
                raise
            raise GraphError(f"{self._path} is no Parquet file, or is damaged ({error}): get it again") from None
