"""Edges from text, also gzipped: a line per edge, as `dorylax.graph.stream.lines` describes."""

from __future__ import annotations

import gzip
import io
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import numpy as np

from dorylax.durable import named
from dorylax.graph.stream.lines import Kind, LineError, Parsed, fields_of, parse, row_lines
from dorylax.graph.stream.readers.base import Chunk, EdgeReader, Values, Wanted, roles
from dorylax.graph.validate import GraphError
from dorylax.machine import cores

_HEAD = 1 << 18  # bytes that tell columns, and the length of lines
_LONGEST = 1 << 24  # bytes of a line
_SHOWN = 60  # characters of a line in a message
_MARK = b"\xef\xbb\xbf"  # of UTF-8, at the beginning of files that Windows writes
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_GZIP = b"\x1f\x8b"


class _Piece(NamedTuple):
    """Whole lines, which are being parsed.

    Attributes:
        text: they.
        end: the byte behind them.
        read: bytes of the file that were read, of one that is packed fewer.
        parsed: what they hold.
    """

    text: bytes
    end: int
    read: int
    parsed: Future[Parsed]


class _TextFile:
    """A file of text, which may be gzipped.

    Attributes:
        path: of it.
        packed: whether it is gzipped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with named(path), path.open("rb") as file:
            self.packed = file.read(2) == _GZIP

    def separator(self) -> str:
        """By the file's name."""
        return _SEPARATORS.get(Path(self.path.stem).suffix if self.packed else self.path.suffix, "")

    def texts(self, file: io.BufferedIOBase, piece: int) -> Iterator[bytes]:
        """Whole lines, about as many bytes as `piece` at once."""
        rest = b""
        while text := self.read(file, piece):
            whole = text.rfind(b"\n") + 1
            if whole:
                yield rest + text[:whole]
                rest = text[whole:]
            else:
                rest += text
            if len(rest) > _LONGEST:
                raise GraphError(f"{self.path} has a line of more than {_LONGEST:,} bytes: is it text?")
        if rest:
            yield rest

    def open(self) -> Any:
        with named(self.path):
            return gzip.open(self.path) if self.packed else self.path.open("rb")

    def skip(self, file: io.BufferedIOBase, at: int, piece: int) -> None:
        """Goes on where an earlier process has been; what is packed is unpacked once more."""
        if not self.packed:
            file.seek(at)
        while self.packed and file.tell() < at:
            if not self.read(file, min(at - file.tell(), piece)):
                raise GraphError(f"{self.path} is shorter than it was: remove what was read of it, and begin again")

    def read(self, file: io.BufferedIOBase, size: int) -> bytes:
        try:
            with named(self.path):
                return file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise GraphError(
                f"{self.path} is damaged, or cut off, after {file.tell():,} bytes of text ({error}): get it again"
            ) from None

    def read_so_far(self, file: io.BufferedIOBase) -> int:
        """Bytes of the file itself."""
        return int(cast(Any, file).fileobj.tell() if self.packed else file.tell())


@final
class NumberTable:
    """A table of numbers, a line per row.

    Args:
        path: of the file.

    Attributes:
        dtype: int64 where the first line has integers alone, else float64.
        width: columns.

    Raises:
        GraphError: the first line has something else.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = _TextFile(path)
        self._separator = self._file.separator()
        with self._file.open() as file:
            head = self._file.read(file, _HEAD).removeprefix(_MARK)
        _, _, line = next(row_lines(head, self._separator), (0, 0, b""))
        fields = fields_of(line, self._separator) if line else []
        whole = all(field.lstrip(b"+-").isdigit() for field in fields)
        self.dtype = np.dtype(np.int64 if whole else np.float64)
        self.width = len(fields)
        self._kinds = [Kind.INTEGER if whole else Kind.NUMBER] * self.width

    def pieces(self) -> Iterator[np.ndarray]:
        """Rows from the first to the last, `[n, width]`.

        Raises:
            GraphError: a line holds something else, or the file is damaged.
            OSError: it cannot be read.
        """
        lines = 0
        with self._file.open() as file:
            for text in self._file.texts(file, 1 << 22):
                try:
                    parsed = parse(text.removeprefix(b"" if lines else _MARK), self._kinds, self._separator)
                except LineError as error:
                    raise GraphError(f"{self._file.path}, line {lines + error.line + 1:,}, {error}") from None
                lines += parsed.lines
                if parsed.rows:
                    yield np.stack([column for column in parsed.columns if isinstance(column, np.ndarray)], axis=1)


@final
class TextReader(EdgeReader):
    """Lines of text.

    Args:
        path: of the file.
        wanted: what to read of it.

    Raises:
        GraphError: the first line has other columns than those that are wanted, or the file is damaged.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path, self._wanted, self._file = path, wanted, _TextFile(path)
        self._separator = self._file.separator() if wanted.separator is None else wanted.separator
        with self._file.open() as file:
            head = self._file.read(file, _HEAD)
            self._head = self._file.read_so_far(file)
        rows = list(row_lines(head[:_HEAD].removeprefix(_MARK), self._separator))
        self._lines_in_head = max(0, len(rows) - wanted.header)
        self._start = {"at": len(_MARK) if head.startswith(_MARK) else 0, "lines": 0}
        fields, self._first_row = [b"source", b"target"], 0
        if rows:
            number, first, line = rows[0]
            self._first_row = number
            fields = self._fields(number, line)
            if wanted.header:
                self._start = {"at": self._start["at"] + first + len(line) + 1, "lines": number + 1}
        columns = self._columns(fields)
        source, target, values = roles(path, columns, wanted)
        self._values = {
            name: Values(np.dtype(np.float32) if dtype is None else dtype) for name, dtype in values.items()
        }
        end = Kind.NAME if wanted.ids == "names" else Kind.INTEGER
        self._kinds = [self._kind(name, end, source, target) for name in columns]
        self._ends = columns.index(source), columns.index(target)
        self._places = {name: columns.index(name) for name in values}

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
        return round(self._lines_in_head * self._path.stat().st_size / max(self._head, 1))

    def chunks(self, state: Any = None) -> Iterator[Chunk]:
        """See `EdgeReader`."""
        state = dict(state or self._start)
        lines = state["lines"]
        with self._file.open() as file, ThreadPoolExecutor(cores()) as pool:
            self._file.skip(file, state["at"], self._wanted.piece)
            for piece in self._pieces(file, pool, state["at"]):
                try:
                    parsed = piece.parsed.result()
                except LineError as error:
                    end = piece.text.find(b"\n", error.first)
                    shown = _shown(piece.text[error.first : end if end >= 0 else None])
                    raise GraphError(
                        f"{self._path}, line {lines + error.line + 1:,}, {error}: {shown}{self._advice(lines + error.line)}"
                    ) from None
                yield self._chunk(piece, parsed, lines)
                lines += parsed.lines

    def _chunk(self, piece: _Piece, parsed: Parsed, lines: int) -> Chunk:
        def where(k: int) -> str:
            for row, (number, _, line) in enumerate(row_lines(piece.text, self._separator)):
                if row == k:
                    return f"{self._path}, line {lines + number + 1:,}: {_shown(line)}"
            raise IndexError(k)

        source, target = (parsed.columns[end] for end in self._ends)
        assert source is not None
        assert target is not None
        values = {}
        for name, place in self._places.items():
            column = parsed.columns[place]
            assert isinstance(column, np.ndarray)
            values[name] = _converted(name, column, self._values[name].dtype, where)
        return Chunk(source, target, values, where, {"at": piece.end, "lines": lines + parsed.lines}, piece.read)

    def _pieces(self, file: io.BufferedIOBase, pool: ThreadPoolExecutor, at: int) -> Iterator[_Piece]:
        """Whole lines, of which some are parsed ahead."""
        ahead: deque[_Piece] = deque()
        for text in self._file.texts(file, self._wanted.piece):
            at += len(text)
            parsed = pool.submit(parse, text, self._kinds, self._separator, self._wanted.seed)
            ahead.append(_Piece(text, at, self._file.read_so_far(file), parsed))
            if len(ahead) > cores():
                yield ahead.popleft()
        yield from ahead

    def _fields(self, number: int, line: bytes) -> list[bytes]:
        try:
            return fields_of(line, self._separator)
        except LineError as error:
            raise GraphError(f"{self._path}, line {number + 1:,}, {error}: {_shown(line)}") from None

    def _columns(self, fields: list[bytes]) -> list[str]:
        """The names of the columns."""
        given = self._wanted.columns
        if given is not None:
            if len(given) != len(fields):
                raise GraphError(
                    f"{self._path} has {len(fields)} columns, and --columns names {len(given)}, {','.join(given)}: name "
                    "each, - for one to skip"
                )
            return list(given)
        if self._wanted.header:
            return [field.decode(errors="replace") for field in fields]
        if len(fields) != 2:
            raise GraphError(
                f"{self._path} has {len(fields)} column{'s' * (len(fields) != 1)}, expected 2: say what they are, as "
                "--columns source,target,weight (- skips one), or --header if its first line does"
            )
        return ["source", "target"]

    def _kind(self, name: str, end: Kind, source: str, target: str) -> Kind:
        if name in (source, target):
            return end
        if name not in self._values:
            return Kind.SKIP
        return Kind.INTEGER if self._values[name].dtype.kind in "iu" else Kind.NUMBER

    def _advice(self, line: int) -> str:
        if line == self._first_row and not self._wanted.header:
            return ": --header if this line names the columns"
        return ": --ids names if vertices have names" if self._wanted.ids != "names" else ""


def _shown(line: bytes) -> str:
    text = line.strip().decode(errors="replace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _converted(name: str, column: np.ndarray, dtype: np.dtype[Any], where: Any) -> np.ndarray:
    """Values in the type that they are kept in."""
    if dtype.kind in "iu" and len(column):
        info = np.iinfo(dtype)
        wrong = np.flatnonzero((column < info.min) | (column > min(info.max, 2**63 - 1)))
        if wrong.size:
            raise GraphError(f"{where(int(wrong[0]))} has a {name} that {dtype} does not hold: say {name}:int64")
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, as everywhere
        return column.astype(dtype, copy=False)
