"""Files as tables of columns c0, c1, … in DuckDB: lines of text, lines of JSON, Parquet, and arrays of NumPy.

DuckDB's CSV reader takes text whose first lines are regular. Files that it refuses, or whose values are no numbers, are read
again line by line, which also takes runs of blanks, comments between rows and mixed line ends, and which locates a wrong
line. Fields of text and JSON stay text, because DuckDB's casts accept 1.5, 1e3, 0x10 and 1_000 as integers.
"""

from __future__ import annotations

import abc
import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import duckdb
import numpy as np

from dorylax.graph.from_files.database import Database, name, text
from dorylax.graph.from_files.text import (
    COMMENTS,
    Wanted,
    check_packed,
    detected_header,
    detected_separator,
    fields_of,
    packed_as,
    shown,
    suffix_of,
)
from dorylax.graph.mapped import release
from dorylax.graph.rows import spans
from dorylax.graph.stored import NPY_DAMAGE, open_arrays
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean

_HEAD = 1000  # lines
_RATIO = 4  # of text to its compressed form, for estimates
_PIECE = 1 << 19  # rows per insertion of arrays
_TYPES = {
    **{"FLOAT": "f4", "DOUBLE": "f8", "DECIMAL": "f8", "BOOLEAN": "?"},
    **{"TINYINT": "i1", "SMALLINT": "i2", "INTEGER": "i4", "BIGINT": "i8"},
    **{"UTINYINT": "u1", "USMALLINT": "u2", "UINTEGER": "u4", "UBIGINT": "u8"},
}


class Row(NamedTuple):
    """Row of a table in a message: its place, its fields, its content, and advice."""

    place: str
    fields: Sequence[str | None]
    line: str
    advice: str = ""


class Table(abc.ABC):
    """A file as a table.

    Attributes:
        shown: Its name in messages.
        names: Names of the columns; None if neither the file nor the user names them.
        dtypes: Type of each column, with the shape of its rows; object for no numbers. Empty if fields are text.
        types: Types of columns in messages, if they differ from `dtypes`.
        rows: Fields of the first rows of text.
        estimate: Approximate number of rows.
        num_vertices: V where the file states it.
        described: Detected layout, with the options that override it.
    """

    shown: str
    names: Sequence[str] | None
    dtypes: Mapping[str, np.dtype[Any]] = {}
    types: Mapping[str, str] = {}
    rows: Sequence[Sequence[str]] = ()
    estimate: int
    num_vertices: int | None = None
    described: str

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names or (self.rows[0] if self.rows else ()))

    @abc.abstractmethod
    def fill(self, database: Database, into: str, columns: Mapping[str, str], *, complete: bool) -> int | None:
        """Make a table of all rows; its columns are expressions of c0, c1, ….

        If it should be `complete`, returns the number of the first row with NULL, or None. Raises a GraphError if the file
        is damaged.
        """

    @abc.abstractmethod
    def row(self, database: Database, number: int) -> Row:
        """Return a row for a message."""

    def place(self, column: str) -> int:
        """Return k if a column is ck; the numbers of one row of a column are ck, ck+1, …."""
        names = list(self.names or ())
        before = names[: names.index(column)]
        return sum(math.prod(self.dtypes[one].shape) for one in before) if self.dtypes else len(before)

    def label(self, column: str) -> str:
        """Return the name of a column for a message."""
        return column


def open_table(database: Database, path: Path, shown_as: str, options: Wanted) -> Table:
    """Open a file in the format of its name (`shown_as`), else as text.

    Raises a GraphError if the file is damaged, compressed in an unknown way, no text, or contradicts an option.
    """
    suffix = suffix_of(shown_as)
    if suffix in (".parquet", ".pq", ".jsonl", ".ndjson"):
        return FileTable(database, path, shown_as, is_json=suffix in (".jsonl", ".ndjson"))
    return TextTable(database, path, shown_as, options)


def stored_array(path: Path, member: str | None = None, shown_as: str | None = None) -> np.ndarray:
    """Return the array in a .npy file, or one of an archive: memory-mapped if it is stored uncompressed, else read.

    Raises a GraphError if the file is damaged, or lacks the array.
    """
    if member is not None:
        with open_arrays(path) as archive:
            if member not in archive:
                raise GraphError(f"has no array {member}: {did_you_mean(member, archive.names)}")
            return archive.fetch(member, map_all=True)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except NPY_DAMAGE as error:
        raise GraphError(f"{shown_as or path} is no array of np.save, or is damaged ({error})") from None
    if not isinstance(array, np.ndarray):
        raise GraphError(f"{shown_as or path} is an archive of arrays, expected one array of np.save")
    return array


def _selected(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{expression} AS {name}" for name, expression in columns.items()) or "1 AS one"


@final
class TextTable(Table):
    """Lines of text, whose layout the first 1,000 show."""

    def __init__(self, database: Database, path: Path, shown_as: str, options: Wanted) -> None:
        columns, comments, any_text = options.columns, options.comments, options.ids == "names"
        self._path, self.shown, self._any_text = path, shown_as, any_text
        self._packed = packed = packed_as(path, shown_as)
        marks = COMMENTS if comments is None else comments
        try:
            lines = [line or "" for (line,) in database.rows(f"SELECT line FROM {self._lines()} LIMIT {_HEAD}")]
        except duckdb.Error as error:
            raise GraphError(f"{shown_as} {self._damage(error)}") from None
        is_row = [bool(line.strip()) and not line.lstrip(" \t").startswith(tuple(marks)) for line in lines]
        first = is_row.index(True) if any(is_row) else len(lines)
        rows = [line for line, taken in zip(lines, is_row, strict=True) if taken]
        self._separator = mark = detected_separator(rows, shown_as) if options.separator is None else options.separator
        fields = [fields_of(line, mark) for line in rows]
        before = [line for line in lines[:first] if line.strip()]
        line, is_first = detected_header(shown_as, rows, before, mark, options)
        width = len(fields[0]) if fields else 0
        if any_text and comments is None and not line:
            for comment in before:
                if comment[1:2].strip() and len(fields_of(comment, mark)) == width:
                    raise GraphError(
                        f"{shown_as}: {shown(comment)} may be a comment or an edge: --comments '#%' skips such lines, "
                        "--comments '' reads them, --header takes the last one before the first edge as names of the "
                        "columns"
                    )
        rows, fields = rows[is_first:], fields[is_first:]
        found = fields_of(line if is_first else line.strip(" \t").lstrip(COMMENTS), mark) if line else None
        if columns is not None and fields and len(columns) != width:
            raise GraphError(
                f"{shown_as} has {width} columns, and --columns names {len(columns)}, {','.join(columns)}: name each, "
                "- for one to skip"
            )
        regular = bool(mark) or all(" ".join(one) == row for one, row in zip(fields, rows, strict=True))
        regular &= not any(text.strip() for text, taken in zip(lines[first:], is_row[first:], strict=True) if not taken)
        self._regular = regular and not (any_text and comments)
        self.names = tuple(columns) if columns is not None else tuple(found) if found else None
        self._skip, self._header, self.rows = first + is_first, line, fields
        self._comments = "" if any_text and comments is None else marks
        mean = sum(len(row.encode()) + 1 for row in rows) / max(1, len(rows))
        size = path.stat().st_size * (1 if packed == "none" else _RATIO)
        self.estimate = len(rows) if len(lines) < _HEAD else round(size / mean)
        told = {"": "blanks", "\t": "tabs"}.get(mark, f"{mark!r}")
        skipped = len(before) - bool(line and not is_first)
        self.described = (
            f"{shown_as}: text{'' if packed == 'none' else f' ({packed})'}, fields separated by {told} (--separator), "
            f"{f'header {shown(line)}' if line else 'no header'} (--header)"
            + (f", {skipped} comment lines skipped (--comments)" if skipped else "")
        )

    def label(self, column: str) -> str:
        """See `Table`."""
        return str(self.place(column) + 1)

    def fill(self, database: Database, into: str, columns: Mapping[str, str], *, complete: bool) -> int | None:
        """See `Table`: by the CSV reader where the first lines are regular, else or if it refuses by splitting lines."""
        check_packed(self._path, self.shown)
        names = [f"c{k}" for k in range(self.width)]
        made, required = f"SELECT {_selected(columns)} FROM", columns if complete else ()
        if self._regular:
            typed = ", ".join(f"'{name}': 'VARCHAR'" for name in names)
            options = f", skip = {self._skip}, delim = {text(self._separator or ' ')}, quote = '\"', escape = '\"')"
            with contextlib.suppress(duckdb.Error):
                if database.make(into, f"{made} {self._reading(typed, options)}", required) is None:
                    return None
        unquoted = "CASE WHEN starts_with(x, '\"') THEN replace(x[2:-2], '\"\"', '\"') ELSE x END"
        split = f"SELECT [{unquoted} FOR x IN [trim(y, {self._blanks}) FOR y IN {self._split()}]] AS fields"
        fields = ", ".join(f"nullif(fields[{k}], '') AS {name}" for k, name in enumerate(names, 1))
        whole = f"CASE WHEN len(fields) = {len(names)} THEN fields END AS fields"
        rows = f"SELECT {whole} FROM ({split} FROM ({self._data()}))"
        try:
            return database.make(into, f"{made} (SELECT {fields} FROM ({rows}))", required)
        except duckdb.Error as error:
            raise GraphError(f"{self.shown} {self._damage(error)}") from None

    def row(self, database: Database, number: int) -> Row:
        """See `Table`."""
        found = database.rows(f"SELECT number, line FROM ({self._data()}) LIMIT 1 OFFSET {number}")
        place, line = found[0] if found else (0, "")
        advice = "" if self._any_text else ": --ids names if vertices have names"
        if place == self._skip + 1 and not self._header:
            advice = ": --header if this line names the columns"
        if line.lstrip()[:1] in ("#", "%"):
            advice = ": --comments '#%' skips such lines"
        return Row(f"line {place:,}", fields_of(line, self._separator), shown(line), advice)

    def _damage(self, error: duckdb.Error) -> str:
        told = str(error)
        if "unicode" in told or "utf-8" in told:
            return "is no text in UTF-8: convert it, as iconv -f latin1 -t utf8 does"
        if "GZIP" in told or "ZSTD" in told or "decompress" in told or "frame" in told:
            return f"is damaged, or cut off ({told.splitlines()[0]}): get it again"
        if "line size" in told:
            return "has a line of more than 2,000,000 bytes: is it text?"
        lines = [line for line in told.splitlines() if line.strip()]
        return f"cannot be read ({'; '.join(lines[:3])})"

    def _lines(self) -> str:
        """The lines of the file as column `line`; NULL for empty ones."""
        # No character separates fields: U+001F does not occur in text.
        options = ", delim = '\x1f', quote = '', escape = '', comment = '', strict_mode = false)"
        return self._reading("'line': 'VARCHAR'", options)

    def _reading(self, columns: str, options: str) -> str:
        return (
            f"read_csv({text(str(self._path))}, auto_detect = false, header = false, compression = '{self._packed}', "
            f"columns = {{{columns}}}{options}"
        )

    def _data(self) -> str:
        """Lines that hold rows, with their numbers."""
        skipped = "".join(f" AND NOT starts_with(ltrim(line), {text(mark)})" for mark in self._comments)
        numbered = f"SELECT row_number() OVER () AS number, line FROM {self._lines()}"
        return (
            f"SELECT number, line FROM ({numbered}) WHERE number > {self._skip} AND trim(line, ' \t\r') <> ''{skipped}"
        )

    @property
    def _blanks(self) -> str:
        return text(" \t\r".replace(self._separator, "") if self._separator else " \t\r")

    def _split(self) -> str:
        mark, blank, quoted = re.escape(self._separator), f"[{self._blanks[1:-1]}]", '"(?:[^"]|"")*"'
        if self._separator:
            plain, line = f"string_split(line, {text(self._separator)})", f"{text(self._separator)} || line"
            one = f'{mark}{blank}*({quoted}|[^"{mark}]*)'
            whole, group = f"({one}{blank}*)+", 1
        else:
            plain, line = f"string_split_regex(trim(line, {self._blanks}), '{blank}+')", "line"
            one = f'({quoted}|[^"{blank[1:-1]}]+)'
            whole, group = f"{blank}*({one}({blank}+|$))+", 1
        found = f"WHEN regexp_full_match({line}, {text(whole)}) THEN regexp_extract_all({line}, {text(one)}, {group})"
        return f"CASE WHEN NOT contains(line, '\"') THEN {plain} {found} END"


@final
class FileTable(Table):
    """Parquet, whose fields keep their types, or lines of JSON, whose fields are text."""

    def __init__(self, database: Database, path: Path, shown_as: str, *, is_json: bool) -> None:
        self._path, self.shown = path, shown_as
        self._kind = "file of JSON lines" if is_json else "Parquet file"
        self.described = f"{shown_as}: {self._kind}"
        read = f"read_parquet({text(str(path))})"
        if is_json:
            read = f"read_json({text(str(path))}, format = 'newline_delimited', compression = '{packed_as(path, shown_as)}')"
        try:
            found = {row[0]: row[1] for row in database.rows(f"DESCRIBE SELECT * FROM {read}")}
            rows = f"SELECT sum(num_rows) FROM parquet_file_metadata({text(str(path))})"
            self.estimate = path.stat().st_size // 32 if is_json else int(database.value(rows) or 0)
        except duckdb.Error as error:
            raise self._damaged(error) from None
        self.names, self._from = tuple(found), read
        if is_json:
            columns = ", ".join(f"{text(one)}: 'VARCHAR'" for one in found)
            self._from = f"{read[:-1]}, columns = {{{columns}}})"
        else:
            self.types = found
            self.dtypes = {one: np.dtype(_TYPES.get(kind.partition("(")[0], "O")) for one, kind in found.items()}

    def fill(self, database: Database, into: str, columns: Mapping[str, str], *, complete: bool) -> int | None:
        """See `Table`."""
        check_packed(self._path, self.shown)
        fields = ", ".join(f"{name(one)} AS c{k}" for k, one in enumerate(self.names or ()))
        try:
            query = f"SELECT {_selected(columns)} FROM (SELECT {fields} FROM {self._from})"
            return database.make(into, query, columns if complete else ())
        except duckdb.Error as error:
            raise self._damaged(error) from None

    def row(self, database: Database, number: int) -> Row:
        """See `Table`."""
        columns = ", ".join(f"{name(one)}::VARCHAR" for one in self.names or ())
        found = database.rows(f"SELECT {columns} FROM {self._from} LIMIT 1 OFFSET {number}")[0]
        return Row(f"row {number + 1:,}", found, shown(", ".join(map(str, found))))

    def _damaged(self, error: duckdb.Error) -> GraphError:
        reason = str(error).strip().splitlines()[0]
        return GraphError(f"{self.shown} is no {self._kind}, or is damaged ({reason}): get it again")


@final
class ArrayTable(Table):
    """Arrays `[E, …]` under their names: of NumPy, memory-mapped if they are stored uncompressed, or of a sparse matrix."""

    def __init__(
        self, shown_as: str, kind: str, arrays: Mapping[str, np.ndarray], num_vertices: int | None = None
    ) -> None:
        self.shown, self.num_vertices, self._arrays = shown_as, num_vertices, list(arrays.values())
        self.names = tuple(arrays)
        self.dtypes = {one: np.dtype((array.dtype, array.shape[1:])) for one, array in arrays.items()}
        self.estimate = len(self._arrays[0])
        self.described = f"{shown_as}: {kind}, {self.estimate:,} edges"

    def fill(self, database: Database, into: str, columns: Mapping[str, str], *, complete: bool) -> int | None:
        """See `Table`."""
        for start, stop in list(spans(self.estimate, _PIECE)) or [(0, 0)]:
            parts = [array[start:stop] for array in self._arrays]
            stored = [
                column
                for part in parts
                for column in self._stored(part.reshape(len(part), math.prod(part.shape[1:]))).T
            ]
            # DuckDB reads NaN from arrays as NULL.
            fields = ", ".join(
                f"coalesce(c{k}, 'nan'::DOUBLE) AS c{k}" if column.dtype.kind == "f" else f"c{k}"
                for k, column in enumerate(stored)
            )
            table = database.table_of({f"c{k}": column for k, column in enumerate(stored)})
            query = f"SELECT {_selected(columns)} FROM (SELECT {fields} FROM {table})"
            required = columns if complete and stop == self.estimate else ()
            bad = database.make(into, query, required, append=start > 0)
            release(*self._arrays)
        return bad

    def row(self, database: Database, number: int) -> Row:  # noqa: ARG002
        """See `Table`."""
        numbers = [one for array in self._arrays for one in array[number].reshape(-1).tolist()]
        fields = [one.decode() if isinstance(one, bytes) else None if one is None else str(one) for one in numbers]
        return Row(f"edge {number:,}", fields, f"({', '.join(map(str, fields))})")

    def _stored(self, part: np.ndarray) -> np.ndarray:
        """Values in a type that DuckDB reads."""
        if part.dtype.kind not in "SUOT":
            return np.asarray(part, "f8" if part.dtype.kind == "f" else part.dtype.newbyteorder("="), order="F")
        try:
            names = [one.decode() if isinstance(one, bytes) else one for one in part.reshape(-1).tolist()]
        except UnicodeDecodeError as error:
            raise GraphError(
                f"{self.shown} has a name that is no text in UTF-8 ({error.object!r}): rename it"
            ) from None
        return np.array([one if one is None else str(one) for one in names], object).reshape(part.shape)
