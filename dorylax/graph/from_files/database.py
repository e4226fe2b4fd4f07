"""A DuckDB database in a folder of temporary files: limits, progress, errors, and results as NumPy arrays.

DuckDB keeps the order of the rows of a file when it inserts them into a table, with any number of threads. It does not keep
it in joins and aggregates, so callers order their results by `rowid` or by a column that they made from it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, final

import duckdb
import numpy as np

from dorylax.errors import RunError
from dorylax.graph.validate import GraphError

_POLL_SECONDS = 0.2
_VECTORS = 256
"""Vectors of 2,048 rows in one chunk of a result, over all columns."""
_BYTES_PER_THREAD = 1 << 26
"""Memory below which another thread makes DuckDB spill instead of making it faster."""
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",  # no downloads at run time
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "preserve_insertion_order": "true",
}


@final
class Database:
    """A database that this process alone uses; a context that closes it.

    Args:
        folder: Existing folder for the database and its temporary files; a GraphError refuses a path that is not UTF-8.
        memory: Limit of DuckDB's buffers in bytes.
        threads: Upper bound of the number of threads.
        progress: Called with the finished share (0 to 1) of a long statement, from another thread.
    """

    def __init__(self, folder: Path, memory: int, threads: int, progress: Callable[[float], object]) -> None:
        settings = {
            **_SETTINGS,
            "memory_limit": f"{memory}B",
            "threads": str(max(1, min(threads, memory // _BYTES_PER_THREAD))),
            "temp_directory": str(folder / "spill"),
        }
        try:
            os.fspath(folder).encode()
        except UnicodeEncodeError:
            raise GraphError(f"{folder} is no path in UTF-8, which DuckDB needs: give another --out") from None
        self._connection = duckdb.connect(str(folder / "import.duckdb"), config=settings)
        self._connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
        self._folder, self._links, self._progress = folder, 0, progress

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def link(self, path: Path) -> Path:
        """Give a file a name without characters that DuckDB takes for a pattern, in the folder of the database.

        Raises a GraphError if it is no regular file; a pipe, for example, cannot be read twice.
        """
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise GraphError(
                f"{path} is no regular file, and an import reads files several times: copy it to a file first"
            )
        link = self._folder / f"source-{self._links}"
        self._links += 1
        link.symlink_to(os.path.abspath(path))
        return link

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, report its progress, and return all rows of its result.

        Raises:
            RunError: Memory or disk space is exhausted.
            duckdb.Error: The statement fails; for a file, its content or format.
        """
        with _translated(), self._polled():
            return self._connection.execute(statement).fetchall()

    def value(self, query: str) -> Any:
        """Return the first value of the first row; None if there is no row. Raises as `rows`."""
        found = self.rows(query)
        return found[0][0] if found else None

    def chunks(self, query: str) -> Iterator[dict[str, np.ndarray]]:
        """Yield the result of a query as named columns, about 500,000 elements per chunk. Raises as `rows`."""
        with _translated():
            with self._polled():
                result = self._connection.execute(query)
            vectors = max(1, _VECTORS // len(result.description))
            while len(frame := result.fetch_df_chunk(vectors)):
                yield {str(name): frame[name].to_numpy() for name in frame}

    def make(self, table: str, query: str, complete: Iterable[str] = (), *, append: bool = False) -> int | None:
        """Make a table of a query, or replace or extend one. Raises as `rows`.

        Returns the number of the first row with NULL in one of the columns that should be complete, or None.
        """
        self.rows(f"INSERT INTO {table} {query}" if append else f"CREATE OR REPLACE TABLE {table} AS {query}")
        missing = " OR ".join(f"{column} IS NULL" for column in complete)
        return self.value(f"SELECT min(rowid) FROM {table} WHERE {missing}") if missing else None

    def table_of(self, arrays: dict[str, np.ndarray]) -> str:
        """Make arrays `[n]` readable as a table until the next call; return its name."""
        self._connection.register("arrays", arrays)
        return "arrays"

    @contextlib.contextmanager
    def _polled(self) -> Iterator[None]:
        done = threading.Event()

        def poll() -> None:
            while not done.wait(_POLL_SECONDS):
                self._progress(max(0.0, self._connection.query_progress()) / 100)

        thread = threading.Thread(target=poll, name="dorylax-import-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def text(value: str) -> str:
    """A value as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def name(column: str) -> str:
    """The name of a column in SQL."""
    return '"' + column.replace('"', '""') + '"'


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        reason = str(error).splitlines()[0]
        raise RunError(f"the import needs more memory or disk space: --memory ({reason})") from None
    except duckdb.IOException as error:
        if "space" not in str(error):
            raise
        raise RunError(f"the disk is full: --out on another disk ({str(error).splitlines()[0]})") from None
