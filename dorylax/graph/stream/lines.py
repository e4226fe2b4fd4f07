"""Lines of text to arrays: what a line may look like, and what is wrong with one. Files are `readers.text`'s.

A line has the same number of fields everywhere, separated by blanks, one comma or one semicolon (or by one given character
alone, where fields may hold blanks); a field may be in double quotes. Empty lines and those that begin with # or % are
passed over. The loop is native (`kernel/text.cc`); Python's is the same, and a hundred times slower.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Int64

from dorylax.errors import DorylaxError
from dorylax.graph.stream.native import address, library

_BLANKS = b" \t\r"
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|inf(inity)?|nan)", re.I)
_WORD = (1 << 64) - 1


class Kind(enum.IntEnum):
    """What a column holds (kernel/text.cc)."""

    SKIP = 0
    INTEGER = 1
    NUMBER = 2
    NAME = 3


class Names(NamedTuple):
    """Names, where they are in a text.

    Attributes:
        text: holds them, in UTF-8.
        table: int64 `[n, 4]`: two hashes of each name, where it begins, its length in bytes.
    """

    text: bytes
    table: Int64[np.ndarray, "n 4"]

    def name(self, k: int) -> str:
        """One of them."""
        first, size = self.table[k, 2:]
        return self.text[first : first + size].decode(errors="replace")


class Parsed(NamedTuple):
    """What a text holds.

    Attributes:
        columns: of each column int64 `[n]`, float64 `[n]` or names; None for those that are skipped.
        rows: n.
        lines: of the text, those that hold no row among them.
    """

    columns: list[np.ndarray | Names | None]
    rows: int
    lines: int


@final
class LineError(DorylaxError, ValueError):
    """A line that holds something else.

    Attributes:
        line: how many are before it.
        first: where it begins in the text.
    """

    def __init__(self, message: str, line: int, first: int) -> None:
        super().__init__(message)
        self.line = line
        self.first = first


class _Fault(enum.IntEnum):
    """What is wrong with a line (kernel/text.cc)."""

    FINE = 0
    TOO_FEW = 1
    TOO_MANY = 2
    BAD = 3
    TOO_LARGE = 4
    QUOTE = 5


class _BadFieldError(DorylaxError):
    def __init__(self, fault: _Fault, column: int) -> None:
        super().__init__(fault.name)
        self.fault, self.column = fault, column


def parse(text: bytes, kinds: Sequence[Kind], separator: str = "", seed: int = 0) -> Parsed:
    """Reads whole lines.

    Args:
        text: lines.
        kinds: of all columns.
        separator: one ASCII character; empty for blanks, commas and semicolons.
        seed: of the hashes of names.

    Raises:
        LineError: one holds something else.
    """
    capacity = text.count(b"\n") + 1
    outs: list[np.ndarray | None] = [_empty(kind, capacity) for kind in kinds]
    native = library()
    if native is None:
        rows, lines = _parse_in_python(text, kinds, separator, seed, outs)
    else:
        info = np.zeros(4, np.int64)
        pointers = np.array([address(out) or 0 for out in outs], np.uintp)
        numbers = np.array(kinds, np.int32)
        rows = native.dorylax_stream_parse(
            text,
            len(text),
            ord(separator) if separator else 0,
            len(kinds),
            address(numbers),
            address(pointers),
            seed,
            address(info),
        )
        if info[0]:
            raise _error(_BadFieldError(_Fault(info[0]), int(info[2])), kinds, int(info[3]), int(info[1]))
        lines = int(info[3])
    found = [None if out is None else out[:rows] for out in outs]
    return Parsed(
        [
            Names(text, out) if kind == Kind.NAME and out is not None else out
            for kind, out in zip(kinds, found, strict=True)
        ],
        rows,
        lines,
    )


def row_lines(text: bytes, separator: str = "") -> Iterator[tuple[int, int, bytes]]:
    """The lines that hold rows: how many are before each, where it begins, what it is."""
    at = 0
    for number, line in enumerate(text.split(b"\n")):
        inside = line.strip(_blanks(separator))
        if inside and inside[:1] not in (b"#", b"%"):
            yield number, at, line
        at += len(line) + 1


def fields_of(line: bytes, separator: str = "") -> list[bytes]:
    """The fields of a line, without their quotes.

    Raises:
        LineError: a quote is not closed, or something follows it.
    """
    try:
        return [field for field, _ in _fields(line, separator)]
    except _BadFieldError as bad:
        raise _error(bad, [], 0, 0) from None


def names_in(values: Sequence[bytes], seed: int) -> Names:
    """Names that are in no text yet."""
    text = b"".join(values)
    table = np.zeros((len(values), 4), np.int64)
    table[:, 3] = [len(value) for value in values]
    table[1:, 2] = np.cumsum(table[:-1, 3])
    native = library()
    if native is None:
        for row, value in zip(table, values, strict=True):
            row[:2] = _hashes(value, seed)
    else:
        native.dorylax_stream_hash(len(values), text, address(table), seed)
    return Names(text, table)


def _empty(kind: Kind, size: int) -> np.ndarray | None:
    if kind == Kind.SKIP:
        return None
    return (
        np.empty((size, 4), np.int64) if kind == Kind.NAME else np.empty(size, "i8" if kind == Kind.INTEGER else "f8")
    )


def _error(bad: _BadFieldError, kinds: Sequence[Kind], line: int, first: int) -> LineError:
    what = {Kind.INTEGER: "an integer", Kind.NUMBER: "a number", Kind.NAME: "a name"}
    wanted = what.get(kinds[bad.column], "a field") if bad.column < len(kinds) else ""
    message = {
        _Fault.TOO_FEW: f"has {bad.column} column{'s' * (bad.column != 1)}, expected {len(kinds)}",
        _Fault.TOO_MANY: f"has more than {len(kinds)} columns",
        _Fault.BAD: f"has in column {bad.column + 1} not {wanted}",
        _Fault.TOO_LARGE: f"has in column {bad.column + 1} an integer that does not fit 64 bits",
        _Fault.QUOTE: f'has in column {bad.column + 1} a quote (") that is not closed, or does not end the field',
    }
    return LineError(message[bad.fault], line, first)


def _parse_in_python(
    text: bytes, kinds: Sequence[Kind], separator: str, seed: int, outs: Sequence[np.ndarray | None]
) -> tuple[int, int]:
    row = 0
    for number, first, line in row_lines(text, separator):
        try:
            column = -1
            for column, (field, begin) in enumerate(_fields(line, separator)):
                if column == len(kinds):
                    raise _BadFieldError(_Fault.TOO_MANY, column)
                _store(outs[column], row, kinds[column], field, (first + begin, column, seed))
            if column + 1 < len(kinds):
                raise _BadFieldError(_Fault.TOO_FEW, column + 1)
        except _BadFieldError as bad:
            raise _error(bad, kinds, number, first) from None
        row += 1
    return row, text.count(b"\n") + (not text.endswith(b"\n") and bool(text))


def _store(out: np.ndarray | None, row: int, kind: Kind, field: bytes, about: tuple[int, int, int]) -> None:
    begin, column, seed = about
    if out is None:
        return
    if kind == Kind.INTEGER:
        if not _INTEGER.fullmatch(field):
            raise _BadFieldError(_Fault.BAD, column)
        if not -(2**63) <= int(field) < 2**63:
            raise _BadFieldError(_Fault.TOO_LARGE, column)
        out[row] = int(field)
    elif kind == Kind.NUMBER:
        if not _NUMBER.fullmatch(field):
            raise _BadFieldError(_Fault.BAD, column)
        out[row] = float(field)
    else:
        if not field:
            raise _BadFieldError(_Fault.BAD, column)
        out[row] = (*_hashes(field, seed), begin, len(field))


def _blanks(separator: str) -> bytes:
    return _BLANKS.replace(separator.encode(), b"") if separator else _BLANKS


def _fields(line: bytes, separator: str) -> Iterator[tuple[bytes, int]]:
    """The fields of a line that has some, and where each begins."""
    blanks = _blanks(separator)
    ends = separator.encode() if separator else _BLANKS + b",;"
    marks = separator.encode() if separator else b",;"
    at, column = 0, 0
    while True:
        at = _past(line, at, blanks)
        if line[at : at + 1] == b'"':
            begin, close = at + 1, line.find(b'"', at + 1)
            at = close + 1
            if close < 0 or (at < len(line) and line[at] not in ends + blanks):
                raise _BadFieldError(_Fault.QUOTE, column)
            yield line[begin:close], begin
        else:
            begin = at
            while at < len(line) and line[at] not in ends:
                at += 1
            yield line[begin:at].rstrip(blanks), begin
        before, at = at, _past(line, at, blanks)
        if at == len(line):
            return
        if line[at] in marks:
            at += 1
        elif separator or at == before:
            raise _BadFieldError(_Fault.BAD, column)
        column += 1


def _past(line: bytes, at: int, blanks: bytes) -> int:
    while at < len(line) and line[at] in blanks:
        at += 1
    return at


def _mixed(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _hashes(name: bytes, seed: int) -> tuple[int, int]:
    """Two of 64 bits each, as int64."""
    found = []
    for start in (seed, seed ^ _WORD):
        state = _mixed((start + len(name)) & _WORD)
        for at in range(0, len(name), 8):
            word = int.from_bytes(name[at : at + 8], "little")
            state = (_mixed(state ^ word) + 0x9E3779B97F4A7C15) & _WORD
        state = _mixed(state)
        found.append(state - (1 << 64) if state >> 63 else state)
    return found[0], found[1]
