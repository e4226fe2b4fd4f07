"""Tables of text: separator, header, comments and columns from the first lines, and the query that reads all lines.

DuckDB's CSV reader takes files whose first lines are regular. Files that it refuses, or whose values are no numbers, are
read again line by line, which also takes runs of blanks, comments between rows and mixed line ends, and which locates a
wrong line. All fields are read as text, because DuckDB's casts accept 1.5, 1e3, 0x10 and 1_000 as integers.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import duckdb

from dorylax.errors import named
from dorylax.graph.from_files.database import Database, text
from dorylax.graph.validate import GraphError

INTEGER = r"[ \t\r]*[+-]?[0-9]+[ \t\r]*"
"""Regular expression of an integer."""
NUMBER = r"(?i)[ \t\r]*[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf(inity)?|nan)[ \t\r]*"
"""Regular expression of a real number."""
COMMENTS = "#%"
"""Characters at the beginning of lines that are skipped."""

_HEAD = 1000  # lines
_SEPARATORS = (",", ";", "\t", "|")
_BY_SUFFIX = {".csv": ",", ".tsv": "\t"}
_RATIO = 4  # of text to its compressed form, for estimates
_SHOWN = 60  # characters of a line in a message
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
    b"\xfd7zXZ": "xz",
    b"PK\3\4": "ZIP",
    b"\4\x22\x4d\x18": "LZ4",
}
_READ = {"none", "gzip", "zstd"}


@final
class TextTable(NamedTuple):
    """A file of text with a row per line.

    Attributes:
        path: Name that DuckDB opens.
        shown: Name that the user gave.
        packed: "none", "gzip" or "zstd".
        separator: Character between fields; empty for runs of blanks.
        skip: Number of lines before the first row.
        names: Names of the columns; None if neither the file nor the user names them.
        header: Line that names the columns; empty if none does.
        skipped: Number of comment lines before the first row.
        comments: Characters at the beginning of further lines to skip.
        regular: Whether DuckDB's CSV reader may take the file.
        rows: Fields of the first rows.
        estimate: Approximate number of rows.
    """

    path: str
    shown: str
    packed: str
    separator: str
    skip: int
    names: tuple[str, ...] | None
    header: str
    skipped: int
    comments: str
    regular: bool
    rows: list[list[str]]
    estimate: int

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names or (self.rows[0] if self.rows else ()))

    def described(self) -> str:
        """Return the detected layout, with the options that override it."""
        separator = {"": "blanks", "\t": "tabs"}.get(self.separator, f"{self.separator!r}")
        packed = "" if self.packed == "none" else f" ({self.packed})"
        header = f"header {shown(self.header)}" if self.header else "no header"
        skipped = f", {self.skipped} comment lines skipped (--comments)" if self.skipped else ""
        return (
            f"{self.shown}: text{packed}, fields separated by {separator} (--separator), {header} (--header){skipped}"
        )

    def query(self, *, careful: bool) -> str:
        """Return the query for the columns c0, c1, … as text.

        Args:
            careful: Whether to split lines here instead of in the CSV reader.
        """
        if not careful:
            columns = ", ".join(f"'c{k}': 'VARCHAR'" for k in range(self.width))
            mark = text(self.separator or " ")
            options = f", skip = {self.skip}, delim = {mark}, quote = '\"', escape = '\"')"
            return f"SELECT * FROM {_reading(self.path, self.packed, columns, options)}"
        fields = f"CASE WHEN len(fields) = {self.width} THEN fields END"
        unquoted = "CASE WHEN starts_with(x, '\"') THEN replace(x[2:-2], '\"\"', '\"') ELSE x END"
        columns = ", ".join(f"nullif(fields[{k + 1}], '') AS c{k}" for k in range(self.width))
        split = f"SELECT [{unquoted} FOR x IN [trim(y, {self._blanks}) FOR y IN {self._split()}]] AS fields"
        return f"SELECT {columns} FROM (SELECT {fields} AS fields FROM ({split} FROM ({self._data()})))"

    def line(self, database: Database, row: int) -> tuple[int, str]:
        """Return the number and the text of the line of a row."""
        found = database.rows(f"SELECT number, line FROM ({self._data()}) LIMIT 1 OFFSET {row}")
        return found[0] if found else (0, "")

    def fields(self, line: str) -> list[str]:
        """Split a line."""
        return _fields(line, self.separator)

    def _data(self) -> str:
        """Lines that hold rows, with their numbers."""
        skipped = "".join(f" AND NOT starts_with(ltrim(line), {text(mark)})" for mark in self.comments)
        numbered = f"SELECT row_number() OVER () AS number, line FROM {_lines(self.path, self.packed)}"
        return (
            f"SELECT number, line FROM ({numbered}) WHERE number > {self.skip} AND trim(line, ' \t\r') <> ''{skipped}"
        )

    @property
    def _blanks(self) -> str:
        return text(" \t\r".replace(self.separator, "") if self.separator else " \t\r")

    def _split(self) -> str:
        mark, blank, quoted = re.escape(self.separator), f"[{self._blanks[1:-1]}]", '"(?:[^"]|"")*"'
        if self.separator:
            plain, line = f"string_split(line, {text(self.separator)})", f"{text(self.separator)} || line"
            one = f'{mark}{blank}*({quoted}|[^"{mark}]*)'
            whole, group = f"({one}{blank}*)+", 1
        else:
            plain, line = f"string_split_regex(trim(line, {self._blanks}), '{blank}+')", "line"
            one = f'({quoted}|[^"{blank[1:-1]}]+)'
            whole, group = f"{blank}*({one}({blank}+|$))+", 1
        found = f"WHEN regexp_full_match({line}, {text(whole)}) THEN regexp_extract_all({line}, {text(one)}, {group})"
        return f"CASE WHEN NOT contains(line, '\"') THEN {plain} {found} END"


def read_head(
    database: Database,
    path: Path,
    shown_as: str,
    *,
    separator: str | None = None,
    header: bool | None = None,
    columns: Sequence[str] | None = None,
    comments: str | None = None,
    named_columns: Sequence[str] = (),
    names: bool = False,
) -> TextTable:
    """Detect the layout of a text file from its first 1,000 lines.

    Args:
        database: Reads the lines.
        path: The file.
        shown_as: Its name in messages.
        separator: Character between fields; None to detect it.
        header: Whether a line names the columns; None to detect it.
        columns: Names of the columns; None to take them from the file.
        comments: Characters at the beginning of lines to skip; None for `COMMENTS`.
        named_columns: Names whose occurrence in the first row makes it a header.
        names: Whether fields may be any text, so that comments may be rows.

    Raises:
        GraphError: The file is compressed in an unknown way or cut off, is no text, or contradicts an argument.
        OSError: The file cannot be read.
    """
    packed = packed_as(path, shown_as)
    marks = COMMENTS if comments is None else comments
    try:
        lines = [line or "" for (line,) in database.rows(f"SELECT line FROM {_lines(str(path), packed)} LIMIT {_HEAD}")]
    except duckdb.Error as error:
        raise GraphError(f"{shown_as} {damage(error)}") from None
    is_row = [bool(line.strip()) and not line.lstrip(" \t").startswith(tuple(marks)) for line in lines]
    first = is_row.index(True) if any(is_row) else len(lines)
    rows = [line for line, taken in zip(lines, is_row, strict=True) if taken]
    mark = _separator(rows, Path(shown_as), packed) if separator is None else separator
    fields = [_fields(line, mark) for line in rows]
    before = [line for line in lines[:first] if line.strip()]
    line, is_first = _header(
        shown_as, rows, fields, before, mark, wanted=header, columns=columns, known=named_columns, names=names
    )
    width = len(fields[0]) if fields else 0
    if names and comments is None and not line:
        for comment in before:
            if comment[1:2].strip() and len(_fields(comment, mark)) == width:
                raise GraphError(
                    f"{shown_as}: {shown(comment)} may be a comment or an edge: --comments '#%' skips such lines, "
                    "--comments '' reads them, --header takes the last one before the first edge as names of the columns"
                )
    data, fields = rows[is_first:], fields[is_first:]
    found = _fields(line if is_first else line.strip(" \t").lstrip(COMMENTS), mark) if line else None
    if columns is not None and fields and len(columns) != width:
        raise GraphError(
            f"{shown_as} has {width} columns, and --columns names {len(columns)}, {','.join(columns)}: name each, "
            "- for one to skip"
        )
    regular = bool(mark) or all(" ".join(one) == row for one, row in zip(fields, data, strict=True))
    regular &= not any(text.strip() for text, taken in zip(lines[first:], is_row[first:], strict=True) if not taken)
    mean = sum(len(row.encode()) + 1 for row in data) / max(1, len(data))
    size = path.stat().st_size * (1 if packed == "none" else _RATIO)
    return TextTable(
        path=str(path),
        shown=shown_as,
        packed=packed,
        separator=mark,
        skip=first + is_first,
        names=tuple(columns) if columns is not None else tuple(found) if found else None,
        header=line,
        skipped=len(before) - bool(line and not is_first),
        comments="" if names and comments is None else marks,
        regular=regular and not (names and comments),
        rows=fields,
        estimate=len(data) if len(lines) < _HEAD else round(size / mean),
    )


def check_packed(path: Path, shown_as: str) -> None:
    """Read a compressed file to its end: DuckDB ignores the checksums of gzip, and takes zstd that is cut off.

    Raises:
        GraphError: The file is damaged or cut off.
        OSError: The file cannot be read.
    """
    packed = packed_as(path, shown_as)
    with named(path), path.open("rb") as file:
        try:
            if packed == "gzip":
                with gzip.open(file) as content:
                    while content.read(1 << 20):
                        pass
            elif packed == "zstd":
                _check_zstd(file)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise GraphError(f"{shown_as} is damaged, or cut off ({error}): get it again") from None


def shown(line: str) -> str:
    """A line of text in a message."""
    line = line.strip()
    return repr(line if len(line) <= _SHOWN else line[:_SHOWN] + "…")


def damage(error: duckdb.Error) -> str:
    """What DuckDB says about a file, in one line."""
    told = str(error)
    if "unicode" in told or "utf-8" in told:
        return "is no text in UTF-8: convert it, as iconv -f latin1 -t utf8 does"
    if "GZIP" in told or "ZSTD" in told or "decompress" in told or "frame" in told:
        return f"is damaged, or cut off ({told.splitlines()[0]}): get it again"
    if "line size" in told:
        return "has a line of more than 2,000,000 bytes: is it text?"
    lines = [line for line in told.splitlines() if line.strip()]
    return f"cannot be read ({'; '.join(lines[:3])})"


def _lines(path: str, packed: str) -> str:
    """The lines of a file as column `line`; NULL for empty ones."""
    # No character separates fields: U+001F does not occur in text.
    options = ", delim = '\x1f', quote = '', escape = '', comment = '', strict_mode = false"
    return _reading(path, packed, "'line': 'VARCHAR'", f"{options})")


def _reading(path: str, packed: str, columns: str, options: str) -> str:
    return (
        f"read_csv({text(path)}, auto_detect = false, header = false, compression = '{packed}', "
        f"columns = {{{columns}}}{options}"
    )


def packed_as(path: Path, shown_as: str) -> str:
    """Return how a file is compressed: "none", "gzip" or "zstd".

    Raises:
        GraphError: The file is compressed in another way.
        OSError: The file cannot be read.
    """
    with named(path), path.open("rb") as file:
        start = file.read(8)
    packed = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "none")
    if packed not in _READ:
        raise GraphError(
            f"{shown_as} is compressed by {packed}, which is not read: unpack it, or compress it by gzip or zstd"
        )
    return packed


def _check_zstd(file: BinaryIO) -> None:
    """Walk over the blocks of all frames (RFC 8878); DuckDB compares their checksums."""

    def take(size: int) -> int:
        content = file.read(size)
        if len(content) < size:
            raise EOFError("a block is incomplete")
        return int.from_bytes(content, "little")

    while magic := file.read(4):
        kind = int.from_bytes(magic, "little")
        if kind & 0xFFFFFFF0 == 0x184D2A50:  # a frame to skip
            take(take(4))
            continue
        if kind != 0xFD2FB528:
            raise EOFError("there is no frame of zstd where one is expected")
        flags = take(1)
        single = flags >> 5 & 1
        take((1 - single) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6])
        last = False
        while not last:
            block = take(3)
            last = bool(block & 1)
            take(1 if block >> 1 & 3 == 1 else block >> 3)
        take(4 * (flags >> 2 & 1))


def _separator(rows: Sequence[str], path: Path, packed: str) -> str:
    """The separator that cuts most rows into as many fields as the first, at least two; empty for blanks."""
    suffix = Path(path.stem).suffix if packed != "none" else path.suffix
    best, most = _BY_SUFFIX.get(suffix, ""), 0
    for mark in dict.fromkeys([best, *_SEPARATORS, ""] if best else [*_SEPARATORS, ""]):
        widths = [len(_fields(row, mark)) for row in rows]
        if widths and widths[0] > 1 and widths.count(widths[0]) > most:
            best, most = mark, widths.count(widths[0])
    return best


def _fields(line: str, separator: str) -> list[str]:
    blanks = " \t\r".replace(separator, "") if separator else " \t\r"
    if line.count('"') % 2 or '"' not in line:
        return [field.strip(blanks) for field in line.split(separator)] if separator else line.split()
    dialect: Any = {"delimiter": separator or " ", "skipinitialspace": True}
    line = line if separator else line.strip().replace("\t", " ")
    return [field.strip(blanks) for field in next(csv.reader([line], **dialect), [])]


def _is_number(field: str) -> bool:
    return re.fullmatch(NUMBER, field) is not None


def _header(
    shown_as: str,
    rows: Sequence[str],
    fields: Sequence[Sequence[str]],
    before: Sequence[str],
    mark: str,
    *,
    wanted: bool | None,
    columns: Sequence[str] | None,
    known: Sequence[str],
    names: bool,
) -> tuple[str, bool]:
    """The line that names the columns, empty if none does, and whether it is the first row instead of a comment."""
    if wanted is False or not fields:
        return "", False
    first, rest = fields[0], fields[1:]
    comment = before[-1] if before else ""
    if comment and len(_fields(comment.strip(" \t").lstrip(COMMENTS), mark)) != len(first):
        comment = ""
    differs = bool(rest) and any(
        not _is_number(field) and all(k < len(row) and _is_number(row[k]) for row in rest)
        for k, field in enumerate(first)
    )
    lower = {field.lower() for field in first}
    is_named = (
        {"source", "target"} <= lower or bool(known and set(known) <= set(first)) or list(columns or ()) == [*first]
    )
    if is_named or differs:
        return rows[0], True
    if comment and (wanted or {"source", "target"} <= {one.lower() for one in _fields(comment.strip("#% \t"), mark)}):
        return comment, False
    if wanted and not names and all(map(_is_number, first)):
        raise GraphError(
            f"{shown_as}: --header is given, but {shown(rows[0])} holds numbers and no names of columns: omit it"
        )
    return (rows[0], True) if wanted else ("", False)
