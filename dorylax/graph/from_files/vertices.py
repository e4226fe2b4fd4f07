"""Arrays with a row per vertex, from arrays of NumPy or from tables of text, Parquet and JSON lines.

Rows are in the order of the vertices' numbers, or tables are joined by a key column. Features and further inputs are
written piece by piece. Labels and masks are held, 7 bytes a vertex, because they are checked against each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.graph.array_folder import FolderWriter
from dorylax.graph.array_names import CLASS_NAMES, MASKS, VERTEX_PREFIX
from dorylax.graph.arrays import stored_names
from dorylax.graph.features import check_name, held_dtype
from dorylax.graph.from_files.database import Database, name
from dorylax.graph.from_files.tables import open_table, stored_array
from dorylax.graph.from_files.text import INTEGER, NUMBER, Ids, Wanted
from dorylax.graph.labels import checked_masks, named_labels
from dorylax.graph.mapped import release
from dorylax.graph.rows import spans
from dorylax.graph.validate import GraphError, as_held
from dorylax.near_matches import did_you_mean

_MEMBER = re.compile(r"(?P<file>.+\.(npz|csv|tsv|txt|parquet|pq|jsonl|ndjson)(\.gz|\.zst)?):(?P<columns>[^/]+)")
_SHORT = r"[+-]?[0-9]{1,18}"  # integers that fit int64
_LISTED = 5  # columns in a message
_PIECE = 1 << 22  # elements of an array at a time


class VertexFiles(NamedTuple):
    """Files of arrays with a row per vertex: FILE.npy, FILE.npz:NAME, or a table, FILE or FILE:COLUMN,….

    Attributes:
        features: `[V, F]`.
        labels: As for `Dataset`; text gives classes in sorted order, whose names are kept.
        masks: Of `MASKS`, as for `Dataset`; with a key also tables of vertices alone.
        inputs: Further inputs and their names, `[V, …]`.
        num_classes: C; None to infer it from the labels.
        multilabel: Whether labels are any number of classes; None to infer it.
        nan_is_unlabelled: Whether floating labels are classes, and NaN where there is none.
        key: Column by which tables name vertices; None if rows are in the order of the vertices.
    """

    features: Path | None = None
    labels: Path | None = None
    masks: Mapping[str, Path] = {}
    inputs: Mapping[str, Path] = {}
    num_classes: int | None = None
    multilabel: bool | None = None
    nan_is_unlabelled: bool = False
    key: str | None = None

    @property
    def paths(self) -> dict[str, Path]:
        """All files by the name of their content."""
        own = {"features": self.features, "labels": self.labels}
        inputs = {f"{VERTEX_PREFIX}{one}": path for one, path in self.inputs.items()}
        return {one: path for one, path in own.items() if path is not None} | dict(self.masks) | inputs


def file_of(path: Path) -> Path:
    """The file of FILE:NAME."""
    return _parts(path)[0]


def _parts(path: Path) -> tuple[Path, list[str] | None]:
    """The file and the columns of FILE:COLUMN,…; None for FILE."""
    found = _MEMBER.fullmatch(str(path))
    return (Path(found["file"]), found["columns"].split(",")) if found else (path, None)


@final
class VertexTable:
    """An array with a row per vertex, from FILE, FILE.npz:NAME or FILE:COLUMN,…, joined by the column `key` if it is given.

    Attributes:
        names: Names of the columns; None for arrays and for tables without a header.
        dtype: Type of the elements; object for text.
        row: Shape of one vertex's row.
        bytes: Approximate size in an archive.
        described: Detected layout, with the options that override it.
        size: Number of rows; None if the rows are joined by key.
    """

    def __init__(
        self, database: Database, what: str, place: Path, *, key: str | None, ids: Ids, others: set[str]
    ) -> None:
        self._database, self._what, self._key, self.shown = database, what, key, str(place)
        file, columns = _parts(place)
        self._array: np.ndarray | None = None
        self.names: list[str] | None = None
        if file.suffix in (".npy", ".npz"):
            if key is not None:
                raise GraphError(f"{place} has no column {key!r} to join by (--key): give a table with a header")
            if file.suffix == ".npz" and columns is None:
                raise GraphError(f"{place} is an archive: say which of its arrays, as {place}:features")
            array = self._array = stored_array(file, columns[0] if columns else None)
            if not array.shape:
                raise GraphError(f"{place} is a single value: expected an array with a row per vertex")
            if array.dtype.kind not in "fiub" + ("SU" if what == "labels" else ""):
                raise GraphError(f"{place} must hold real numbers, got {array.dtype}")
            self.dtype, self.row, self.bytes = array.dtype, array.shape[1:], array.nbytes
            self.size: int | None = len(array)
            self.described = f"{place}: {what}, array {array.dtype} {list(array.shape)}"
            return
        self._table = name(f"of {what}")
        self._load(file, columns, ids, others)
        is_text = what == "labels" and len(self._columns) == 1 and not self._all(NUMBER)
        whole = what != "features" and bool(self._columns) and self._all(_SHORT)
        self.dtype = np.dtype(object if is_text else np.int64 if whole else np.float64)
        self.row = (max(1, len(self._columns)),)
        rows = int(database.value(f"SELECT count(*) FROM {self._table}"))
        self.size, self.bytes = None if key else rows, 4 * rows * len(self._columns)
        listed = list(self._columns.values())
        labels = ", ".join(listed[:_LISTED]) or "none"
        more = f", … ({len(listed)} in all)" if len(listed) > _LISTED else ""
        joined = f"joined by {key} (--key)" if key else "in the order of the vertices (--key joins)"
        self.described = f"{place}: {what}, {rows:,} rows {joined}, columns {labels}{more} (FILE:COLUMN,…)"
        self._check_rows(ids)

    @property
    def keys(self) -> str:
        """Query for (id, row) of the vertices of a keyed table."""
        return f"SELECT key AS id, rowid AS row FROM {self._table}"

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield the rows in vertex order, `[n, …]`.

        Vertices without a row in a keyed table have no label, and are in no mask. Raises a GraphError if a vertex lacks
        another row.
        """
        if self._array is not None:
            rows = max(1, _PIECE // max(1, math.prod(self.row)))
            for start, stop in spans(len(self._array), rows):
                yield self._array[start:stop]
                release(self._array)
            return
        order = f"FROM {self._table} ORDER BY rowid"
        if self._key is not None:
            order = f"FROM ids LEFT JOIN {self._table} r ON ids.id = r.key ORDER BY number"
            absent = f"SELECT id FROM ids WHERE id NOT IN (SELECT key FROM {self._table}) ORDER BY number LIMIT 1"
            if self._what not in ("labels", *MASKS) and (found := self._database.value(absent)) is not None:
                raise GraphError(f"{self.shown} has no row for vertex {found!r} ({self._key}): add one for each vertex")
        kind, missing = {"O": ("VARCHAR", "''"), "i": ("BIGINT", "-1"), "f": ("DOUBLE", "NULL")}[self.dtype.kind]
        missing = "0" if self._what in MASKS else missing
        values = [f"coalesce(try_cast({column} AS {kind}), {missing}) AS {column}" for column in self._columns]
        values = values or ["(key IS NOT NULL)::BIGINT"]  # a mask of vertices alone
        for chunk in self._database.chunks(f"SELECT {', '.join(values)} {order}"):
            yield np.stack(list(chunk.values()), axis=1)

    def whole(self) -> np.ndarray:
        """Return all rows, as `pieces`."""
        return np.concatenate([np.zeros((0, *self.row), self.dtype), *(piece.copy() for piece in self.pieces())])

    def _load(self, file: Path, columns: list[str] | None, ids: Ids, others: set[str]) -> None:
        """Make a table of text columns c0, c1, …, and key."""
        database, key, what = self._database, self._key, self._what
        # --key and FILE:COLUMN name columns of a header.
        named = [one for one in (key, *(columns or ())) if one]
        options = Wanted(ids, values=dict.fromkeys(named), header=bool(named) or None)
        table = open_table(database, database.link(file), str(file), options)
        known = list(table.names or map(str, range(table.width)))
        for one in [one for one in named if one not in known]:
            raise GraphError(f"{self.shown} has no column {one!r}: {did_you_mean(one, known)}")
        taken = columns or [one for one in known if one != key and one not in others]
        if not taken and (what not in MASKS or key is None):
            raise GraphError(f"{self.shown} has no column for {what}")
        self._columns = {f"c{known.index(one)}": one for one in taken}
        self.names = list(self._columns.values()) if table.names else None
        field = "nullif(trim({0}::VARCHAR), '')"
        if what in MASKS:
            field = f"CASE lower(trim({{0}}::VARCHAR)) WHEN 'true' THEN '1' WHEN 'false' THEN '0' ELSE {field} END"
        fields = {column: field.format(column) for column in self._columns}
        if key:
            column = f"c{known.index(key)}::VARCHAR"
            integer = f"CASE WHEN regexp_full_match({column}, '{INTEGER}') THEN try_cast({column} AS BIGINT) END"
            fields["key"] = f"nullif(trim({column}, ' \t\r'), '')" if ids == "names" else integer
        table.fill(database, self._table, fields, complete=False)

    def _all(self, pattern: str) -> bool:
        """Whether all fields match a pattern or are missing."""
        tests = [f"bool_and({column} IS NULL OR regexp_full_match({column}, '{pattern}'))" for column in self._columns]
        return False not in self._database.rows(f"SELECT {', '.join(tests) or 'true'} FROM {self._table}")[0]

    def _check_rows(self, ids: Ids) -> None:
        """Raise at the first missing or wrong field, and at the first key that is missing or repeated."""
        rows, table = self._database.rows, self._table
        if self._key is not None:
            row = self._database.value(f"SELECT min(rowid) FROM {table} WHERE key IS NULL")
            if row is not None:
                wanted = "a name" if ids == "names" else "an integer: --ids names if vertices have names"
                raise GraphError(f"{self.shown}, row {row + 1:,}, has in column {self._key} not {wanted}")
            repeated = f"SELECT key FROM {table} GROUP BY key HAVING count(*) > 1 ORDER BY min(rowid) LIMIT 1"
            for (twice,) in rows(repeated):
                raise GraphError(f"{self.shown} has {twice!r} twice in column {self._key}: give each vertex one row")
        # Text is no number, and a label that is missing is none.
        for column, label in self._columns.items() if self.dtype.kind != "O" else ():
            missing = "false" if self._what == "labels" else f"{column} IS NULL"
            wrong = f"{missing} OR NOT regexp_full_match({column}, '{NUMBER}')"
            for row, field in rows(f"SELECT rowid, {column} FROM {table} WHERE {wrong} ORDER BY rowid LIMIT 1"):
                raise GraphError(f"{self.shown}, row {row + 1:,}, has in column {label} not a number: {field!r}")


def check_files(files: VertexFiles, ids: Ids) -> None:
    """Raise a GraphError if arguments do not fit: ids other than row numbers need a key, masks need labels."""
    if files.paths and ids != "numbers" and files.key is None:
        raise GraphError(
            f"{next(iter(files.paths))} is given without --key, and --ids {ids} has no order of the vertices: say which "
            f"column of the tables holds the {ids}, as --key id"
        )
    if files.masks and files.labels is None:
        raise GraphError(f"{next(iter(files.masks))} is given without labels: masks say which labels are for what")
    for one in files.inputs:
        check_name("vertex_inputs", one)


def open_vertices(database: Database, files: VertexFiles, ids: Ids) -> tuple[dict[str, VertexTable], int | None]:
    """Open and load all files; return them with the number of vertices, or None if no file states it.

    Raises a GraphError if a file is damaged or holds something else.
    """
    found = {}
    # Tables with named columns first: a misspelled name is the fault, not the columns that others then take.
    for what, place in sorted(files.paths.items(), key=lambda entry: _parts(entry[1])[1] is None):
        beside = (_parts(other) for other in files.paths.values() if other != place)
        others = {column for file, columns in beside if file == file_of(place) for column in columns or ()}
        found[what] = VertexTable(database, what, place, key=files.key, ids=ids, others=others)
    found = {what: found[what] for what in files.paths}
    features = found.get("features")
    if features is not None and (len(features.row) != 1 or features.row[0] == 0):
        shape = ["V", *features.row]
        raise GraphError(f"{features.shown}: features must be real numbers [V, F], got {features.dtype} {shape}")
    rows = {
        one: table.size
        for one, table in found.items()
        if table.size is not None and (one not in MASKS or table.dtype == bool)
    }
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{one} {count:,}" for one, count in rows.items())
        raise GraphError(f"arrays of vertices differ in their number of rows: {told}")
    return found, next(iter(rows.values()), None)


def write_vertices(
    folder: FolderWriter, found: Mapping[str, VertexTable], files: VertexFiles, num_vertices: int
) -> None:
    """Write all arrays of vertices. Raises a GraphError as `Dataset`, or if a vertex lacks a row."""
    if "features" in found:
        _stream(folder, "features", found["features"], np.dtype(np.float32), num_vertices)
    if "labels" in found:
        _write_labels(folder, found, files, num_vertices)
    for one in files.inputs:
        table = found[f"{VERTEX_PREFIX}{one}"]
        _stream(folder, f"{VERTEX_PREFIX}{one}", table, held_dtype(table.dtype), num_vertices)


def _write_labels(
    folder: FolderWriter, found: Mapping[str, VertexTable], files: VertexFiles, num_vertices: int
) -> None:
    table = found["labels"]
    given = table.whole()
    if given.dtype.kind in "OSU":
        flat = given.reshape(len(given)).tolist()
        given = np.array([one.decode() if isinstance(one, bytes) else one for one in flat], object)
    elif given.dtype.kind == "f" and files.nan_is_unlabelled:
        given = np.where(np.isnan(given), -1, given).astype(np.int64)
    labels = named_labels(given, num_vertices, files.num_classes, files.multilabel)
    folder.add("labels", labels.array)
    names = table.names if labels.multilabel else labels.class_names
    if names is not None:
        folder.add(CLASS_NAMES, stored_names(CLASS_NAMES, names))
    if files.masks:
        masks: dict[str, Any] = dict.fromkeys(MASKS)
        for one in files.masks:
            mask = found[one].whole()
            masks[one] = mask if files.key is None else mask != 0
        for one, mask in checked_masks(masks, labels.array).items():
            folder.add(one, mask)
    if labels.num_classes is not None:
        folder.add("num_classes", np.array(labels.num_classes))
        folder.add("multilabel", np.array(labels.multilabel))


def _stream(folder: FolderWriter, what: str, table: VertexTable, dtype: np.dtype[Any], num_vertices: int) -> None:
    column = folder.open(what, dtype, (num_vertices, *table.row))
    count = 0
    for piece in table.pieces():
        held = as_held(f"{what}[{count}:]" if count else what, piece, dtype)
        count += len(held)
        if count > num_vertices:
            break
        column.write(held)
    if count != num_vertices:
        more = "more than " if count > num_vertices else ""
        raise GraphError(
            f"{table.shown}: {what} has {more}{min(count, num_vertices):,} rows, expected {num_vertices:,}"
        )
