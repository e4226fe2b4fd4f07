"""Files of a run with a line of strict JSON per record, appended as a run trains.

Functions raise RunDirectoryError if the file system refuses.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dorylax.store.digest import unsealed
from dorylax.store.durable import open_in_place, sync_file, write_file
from dorylax.store.run_directory import REMEDY, RunDirectoryError, access, check_schema, damaged_file, read_json

T = TypeVar("T")
Records = Iterable[Mapping[str, Any]]
"""Fields of records, without NaN and infinity, which raise ValueError."""


def write_lines(path: Path, schema: int, records: Records) -> None:
    """Write or replace a file of lines."""
    with access("the run directory", "written"):
        write_file(path, _text(schema, records))


def append_lines(path: Path, schema: int, records: Records) -> None:
    """Append lines to a file, which is no symbolic link, and hand them to the operating system."""
    text = _text(schema, records)
    with (
        access(path, "written"),
        os.fdopen(open_in_place(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "w") as file,
    ):
        file.write(text)


def _text(schema: int, records: Records) -> str:
    return "".join(json.dumps({"schema": schema, **fields}, allow_nan=False) + "\n" for fields in records)


def sync_lines(path: Path) -> None:
    """Flush a file of lines to disk."""
    with access(path, "written"):
        sync_file(path)


def read_lines(path: Path, schema: int, parse: Callable[[Mapping[str, Any]], T], remedy: str = REMEDY) -> list[T]:
    """Read a file of lines, without a last line that lacks its newline: its process was killed while writing.

    The file of a run that has ended must have the SHA-256 in the summary; lines of earlier versions have a digest each.

    Args:
        path: The file.
        schema: Newest schema of its lines.
        parse: Returns the record of a line from its fields; ValueError, KeyError, AttributeError and TypeError are damage.
        remedy: For `damaged_file`.
    """
    with access(path, "read"):
        content = path.read_bytes()
    sealed_as = None
    with contextlib.suppress(RunDirectoryError, AttributeError):  # the summary is damaged, which its own reader reports
        summary = path.with_name("summary.json")
        sealed_as = read_json(summary).get("files", {}).get(path.name) if summary.is_file() else None
    if sealed_as not in (None, {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}):
        raise damaged_file(path, "it does not have the SHA-256 in summary.json", remedy)
    found: list[T] = []
    try:
        for line in content.decode().split("\n")[:-1]:
            fields = json.loads(line)
            check_schema(f"{path}, line {len(found) + 1},", fields["schema"], schema)
            fields = unsealed(fields, without=schema)
            del fields["schema"]
            found.append(parse(fields))
    except UnicodeDecodeError as error:
        raise damaged_file(path, error, remedy) from error
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise damaged_file(path, f"line {len(found) + 1}: {error}", remedy) from error
    return found
