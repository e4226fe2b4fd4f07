"""metrics.jsonl: one line of strict JSON per epoch, written as it happens, read back as `EpochRecord`.

Each line has `"schema": 1` and exactly the fields of `EpochRecord`. The file never holds an epoch that a resumed run
will train again: on resume it is rewritten from the checkpoint's history.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import final

from dorylax.runs.directory import SCHEMA, RunDirectoryAccessError, RunDirectoryError, write_text
from dorylax.runs.result import EpochRecord, TrainResult


@final
class MetricsWriter:
    """Observer that writes metrics.jsonl.

    Args:
        path: the file.
        history: the epochs that are already run; the file will start with exactly these.
    """

    def __init__(self, path: Path, history: Sequence[EpochRecord] = ()) -> None:
        self._path = path
        self._history = tuple(history)

    def started(self, total_epochs: int, first_epoch: int) -> None:  # noqa: ARG002
        """Rewrites the file up to the first epoch to come."""
        write_text(self._path, "".join(_line(record) for record in self._history if record.epoch < first_epoch))

    def epoch(self, record: EpochRecord) -> None:
        """Appends one line and hands it to the operating system.

        Raises:
            RunDirectoryAccessError: the file system refuses, a full disk, say.
        """
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(record))
        except OSError as error:
            raise RunDirectoryAccessError(f"{self._path} cannot be written: {error}") from error

    def finished(self, result: TrainResult) -> None:
        """Nothing: every line is already out."""


def read(path: Path) -> list[EpochRecord]:
    """The epochs in a metrics.jsonl, in order.

    A last line without its newline (the process was killed while writing) is left out.

    Raises:
        RunDirectoryError: unreadable, a damaged line, or a newer schema; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunDirectoryAccessError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from error
    records = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            fields = json.loads(line)
            schema = fields.pop("schema")
            if schema != SCHEMA:
                raise ValueError(f"schema {schema}, this version of dorylax reads {SCHEMA}")
            records.append(EpochRecord.from_dict(fields))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise RunDirectoryError(f"{path}, line {number}: {error}") from error
    return records


def _line(record: EpochRecord) -> str:
    return json.dumps({"schema": SCHEMA, **record.to_dict()}, allow_nan=False) + "\n"
