"""Lines of text: compression and its damage, separators, headers, and the forms of numbers."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from dorylax.errors import named
from dorylax.graph.validate import GraphError

INTEGER = r"[ \t\r]*[+-]?[0-9]+[ \t\r]*"
"""Regular expression of an integer."""
NUMBER = r"(?i)[ \t\r]*[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf(inity)?|nan)[ \t\r]*"
"""Regular expression of a real number."""
COMMENTS = "#%"
"""Characters at the beginning of lines that are skipped."""

_SEPARATORS = (",", ";", "\t", "|")
_BY_SUFFIX = {".csv": ",", ".tsv": "\t"}
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


Ids = Literal["numbers", "integers", "names"]
"""What files call vertices: numbers 0 … V-1, any integers, or any text."""


class Wanted(NamedTuple):
    """Columns to read from files of edges.

    Attributes:
        ids: Kind of the ends of edges.
        source: Column of the sources; None for "source", or the first.
        target: Column of the targets; None for "target", or the second.
        values: Columns of values and their types, None for the type in the file; None for all other columns.
        columns: Names of all columns of text, "-" for one to skip; None to take them from the file.
        header: Whether a line of text names the columns; None to detect it.
        separator: Character between the fields of text, empty for blanks; None to detect it.
        comments: Characters at the beginning of lines of text to skip; None for "#%".
        nonfinite: Whether values may be infinite or NaN.
    """

    ids: Ids = "numbers"
    source: str | None = None
    target: str | None = None
    values: Mapping[str, np.dtype[Any] | None] | None = None
    columns: Sequence[str] | None = None
    header: bool | None = None
    separator: str | None = None
    comments: str | None = None
    nonfinite: bool = False

    @property
    def named(self) -> list[str]:
        """Names of columns that the user gives; a first row that holds them is a header."""
        return [one for one in (self.source, self.target, *(self.values or ())) if one]


def check_packed(path: Path, shown_as: str) -> None:
    """Read a compressed file to its end: DuckDB ignores the checksums of gzip, and takes zstd that is cut off.

    Raises a GraphError if the file is damaged or cut off.
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


def packed_as(path: Path, shown_as: str) -> str:
    """Return how a file is compressed: "none", "gzip" or "zstd". Raises a GraphError for another compression."""
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


def suffix_of(name: str) -> str:
    """Return the suffix of a file before those of compression."""
    return next((one for one in reversed(Path(name).suffixes) if one not in (".gz", ".zst")), "")


def detected_separator(rows: Sequence[str], shown_as: str) -> str:
    """The separator that cuts most rows into as many fields as the first, at least two; empty for blanks."""
    best, most = _BY_SUFFIX.get(suffix_of(shown_as), ""), 0
    for mark in dict.fromkeys([best, *_SEPARATORS, ""] if best else [*_SEPARATORS, ""]):
        widths = [len(fields_of(row, mark)) for row in rows]
        if widths and widths[0] > 1 and widths.count(widths[0]) > most:
            best, most = mark, widths.count(widths[0])
    return best


def fields_of(line: str, separator: str) -> list[str]:
    """Split a line; an empty separator stands for runs of blanks."""
    blanks = " \t\r".replace(separator, "") if separator else " \t\r"
    if line.count('"') % 2 or '"' not in line:
        return [field.strip(blanks) for field in line.split(separator)] if separator else line.split()
    dialect: Any = {"delimiter": separator or " ", "skipinitialspace": True}
    line = line if separator else line.strip().replace("\t", " ")
    return [field.strip(blanks) for field in next(csv.reader([line], **dialect), [])]


def _is_number(field: str) -> bool:
    return re.fullmatch(NUMBER, field) is not None


def detected_header(
    shown_as: str, rows: Sequence[str], before: Sequence[str], mark: str, options: Wanted
) -> tuple[str, bool]:
    """The line that names the columns, empty if none does, and whether it is the first row instead of a comment."""
    wanted, known, fields = options.header, options.named, [fields_of(row, mark) for row in rows]
    if wanted is False or not fields:
        return "", False
    first, rest = fields[0], fields[1:]
    comment = before[-1] if before else ""
    if comment and len(fields_of(comment.strip(" \t").lstrip(COMMENTS), mark)) != len(first):
        comment = ""
    differs = bool(rest) and any(
        not _is_number(field) and all(k < len(row) and _is_number(row[k]) for row in rest)
        for k, field in enumerate(first)
    )
    lower = {field.lower() for field in first}
    is_named = (
        {"source", "target"} <= lower
        or bool(known and set(known) <= set(first))
        or list(options.columns or ()) == [*first]
    )
    if is_named or differs:
        return rows[0], True
    if comment and (wanted or {"source", "target"} <= {one.lower() for one in fields_of(comment.strip("#% \t"), mark)}):
        return comment, False
    if wanted and options.ids != "names" and all(map(_is_number, first)):
        raise GraphError(
            f"{shown_as}: --header is given, but {shown(rows[0])} holds numbers and no names of columns: omit it"
        )
    return (rows[0], True) if wanted else ("", False)
