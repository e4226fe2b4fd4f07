"""Files as tables of columns c0, c1, … in DuckDB: lines of text, lines of JSON, and Parquet.

DuckDB's CSV reader takes text whose first lines are regular. Files that it refuses, or whose values are no numbers, are read
again line by line, which also takes runs of blanks, comments between rows and mixed line ends, and which locates a wrong
line. Fields of text and JSON stay text, because DuckDB's casts accept 1.5, 1e3, 0x10 and 1_000 as integers.
"""

from __future__ import annotations

import abc
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, final

import duckdb

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
)
from dorylax.graph.validate import GraphError

_HEAD = 1000  # lines
_RATIO = 4  # of text to its compressed form, for estimates


class Row(NamedTuple):
    """Row of a table in a message: its place, its fields, the line it stands in, and advice."""

    place: str
    fields: Sequence[str | None]
    line: str = ""
    advice: str = ""


class Table(abc.ABC):
    """A file as a table.

    Attributes:
        path: Name that DuckDB opens.
        shown: Its name in messages.
        names: Names of the columns; None if neither the file nor the user names them.
        types: DuckDB's type of each column; None if fields are text.
        rows: Fields of the first rows of text.
        estimate: Approximate number of rows.
        described: Detected layout, with the options that override it.
    """

    path: Path
    shown: str
    names: Sequence[str] | None
    types: Mapping[str, str] | None = None
    rows: Sequence[Sequence[str]] = ()
    estimate: int
    described: str

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names or (self.rows[0] if self.rows else ()))

    @abc.abstractmethod
    def queries(self) -> list[str]:
        """Return queries for the columns c0, c1, …; each takes files that the one before it refuses."""

    @abc.abstractmethod
    def row(self, database: Database, number: int) -> Row:
        """Return a row for a message."""

    @abc.abstractmethod
    def damage(self, error: duckdb.Error) -> str:
        """Describe a failure to read the file."""

    def label(self, column: int) -> str:
        """Return the name of a column for a message."""
        return (self.names or ())[column]

    def fill(self, take: Callable[[str], int | None]) -> int | None:
        """Call a function with each query until one takes all rows; return the number of the first row that none takes.

        Raises a GraphError if the file is damaged.
        """
        check_packed(self.path, self.shown)
        *others, last = self.queries()
        for query in others:
            with contextlib.suppress(duckdb.Error):
                if take(query) is None:
                    return None
        try:
            return take(last)
        except duckdb.Error as error:
            raise GraphError(f"{self.shown} {self.damage(error)}") from None


def open_table(database: Database, path: Path, shown_as: str, options: Wanted) -> Table:
    """Open a file in the format of its name (`shown_as`), else as text.

    Raises a GraphError if the file is damaged, compressed in an unknown way, no text, or contradicts an option.
    """
    suffixes = [one for one in Path(shown_as).suffixes if one not in (".gz", ".zst")] or [""]
    if suffixes[-1] in (".parquet", ".pq", ".jsonl", ".ndjson"):
        return FileTable(database, path, shown_as, is_json=suffixes[-1] in (".jsonl", ".ndjson"))
    return TextTable(database, path, shown_as, options)


@final
class TextTable(Table):
    """Lines of text, whose layout the first 1,000 show."""

    def __init__(self, database: Database, path: Path, shown_as: str, options: Wanted) -> None:
        columns, comments, any_text = options.columns, options.comments, options.ids == "names"
        self.path, self.shown, self._any_text = path, shown_as, any_text
        self._packed = packed = packed_as(path, shown_as)
        marks = COMMENTS if comments is None else comments
        try:
            lines = [line or "" for (line,) in database.rows(f"SELECT line FROM {self._lines()} LIMIT {_HEAD}")]
        except duckdb.Error as error:
            raise GraphError(f"{shown_as} {self.damage(error)}") from None
        is_row = [bool(line.strip()) and not line.lstrip(" \t").startswith(tuple(marks)) for line in lines]
        first = is_row.index(True) if any(is_row) else len(lines)
        rows = [line for line, taken in zip(lines, is_row, strict=True) if taken]
        mark = options.separator
        mark = detected_separator(rows, Path(shown_as), packed) if mark is None else mark
        self._separator = mark
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

    def label(self, column: int) -> str:
        """See `Table`."""
        return str(column + 1)

    def queries(self) -> list[str]:
        """See `Table`: by the CSV reader where the first lines are regular, and by splitting lines."""
        width = self.width
        fields = f"CASE WHEN len(fields) = {width} THEN fields END"
        unquoted = "CASE WHEN starts_with(x, '\"') THEN replace(x[2:-2], '\"\"', '\"') ELSE x END"
        columns = ", ".join(f"nullif(fields[{k + 1}], '') AS c{k}" for k in range(width))
        split = f"SELECT [{unquoted} FOR x IN [trim(y, {self._blanks}) FOR y IN {self._split()}]] AS fields"
        careful = f"SELECT {columns} FROM (SELECT {fields} AS fields FROM ({split} FROM ({self._data()})))"
        if not self._regular:
            return [careful]
        typed = ", ".join(f"'c{k}': 'VARCHAR'" for k in range(width))
        options = f", skip = {self._skip}, delim = {text(self._separator or ' ')}, quote = '\"', escape = '\"')"
        return [f"SELECT * FROM {self._reading(typed, options)}", careful]

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

    def damage(self, error: duckdb.Error) -> str:
        """See `Table`."""
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
            f"read_csv({text(str(self.path))}, auto_detect = false, header = false, compression = '{self._packed}', "
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
    """Parquet, whose fields keep their types, or lines of JSON."""

    def __init__(self, database: Database, path: Path, shown_as: str, *, is_json: bool) -> None:
        self.path, self.shown = path, shown_as
        self._kind = "file of JSON lines" if is_json else "Parquet file"
        self.described = f"{shown_as}: {self._kind}"
        self._from = f"read_parquet({text(str(path))})"
        if is_json:
            packed = packed_as(path, shown_as)
            self._from = f"read_json({text(str(path))}, format = 'newline_delimited', compression = '{packed}')"
        try:
            found = {row[0]: row[1] for row in database.rows(f"DESCRIBE SELECT * FROM {self._from}")}
            rows = f"SELECT sum(num_rows) FROM parquet_file_metadata({text(str(path))})"
            self.estimate = path.stat().st_size // 32 if is_json else int(database.value(rows) or 0)
        except duckdb.Error as error:
            raise GraphError(f"{shown_as} {self.damage(error)}") from None
        self.names = tuple(found)
        if is_json:
            columns = ", ".join(f"{text(one)}: 'VARCHAR'" for one in found)
            self._from = f"{self._from[:-1]}, columns = {{{columns}}})"
        else:
            self.types = found

    def queries(self) -> list[str]:
        """See `Table`."""
        columns = ", ".join(f"{name(one)} AS c{k}" for k, one in enumerate(self.names or ()))
        return [f"SELECT {columns} FROM {self._from}"]

    def row(self, database: Database, number: int) -> Row:
        """See `Table`."""
        columns = ", ".join(f"{name(one)}::VARCHAR" for one in self.names or ())
        found = database.rows(f"SELECT {columns} FROM {self._from} LIMIT 1 OFFSET {number}")[0]
        return Row(f"row {number + 1:,}", found)

    def damage(self, error: duckdb.Error) -> str:
        """See `Table`."""
        return f"is no {self._kind}, or is damaged ({str(error).strip().splitlines()[0]}): get it again"
