"""metrics.jsonl: one line of strict JSON per epoch, written as it happens, read back as `EpochRecord`.

Each line has `"schema": 3`, the fields of `EpochRecord`, and its digest; those of schema 1 had none, and none before 3 had
scores of other metrics than accuracy and loss. The file
never holds an epoch that a resumed run will train again: on resume it is rewritten from the checkpoint's history.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import final

from dorylax.runs.result import EpochRecord, TrainResult
from dorylax.store.digest import DigestError, sealed, unsealed
from dorylax.store.durable import sync_file
from dorylax.store.run_directory import (
    DamagedFileError,
    RunDirectory,
    RunDirectoryAccessError,
    RunDirectoryError,
    append_text,
    write_text,
)

SCHEMA = 3
_WITHOUT_DIGESTS = 1


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
        append_text(self._path, _line(record))

    def finished(self, result: TrainResult) -> None:  # noqa: ARG002
        """Puts the lines on disk.

        Raises:
            RunDirectoryAccessError: the file system refuses.
        """
        try:
            sync_file(self._path)
        except OSError as error:
            raise RunDirectoryAccessError(f"{self._path} cannot be written: {error}") from error


def of_run(run: RunDirectory) -> list[EpochRecord]:
    """All epochs of a run that has ended, as many as its summary says.

    Raises:
        RunDirectoryError: as `read`; or there are more or fewer.
    """
    records, epochs = read(run.metrics_path), (run.summary or {}).get("epochs")
    if epochs is not None and len(records) != epochs:
        raise DamagedFileError.of(run.metrics_path, f"{len(records)} of {epochs} epochs are there")
    return records


def read(path: Path) -> list[EpochRecord]:
    """The epochs in a metrics.jsonl, in order.

    A last line without its newline (the process was killed while writing) is left out.

    Raises:
        RunDirectoryError: unreadable, a damaged line, an epoch missing, or a newer schema; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunDirectoryAccessError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise DamagedFileError.of(path, error) from error
    records: list[EpochRecord] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            fields = unsealed(json.loads(line), without=_WITHOUT_DIGESTS)
            schema = fields.pop("schema")
            if schema > SCHEMA:
                raise RunDirectoryError(
                    f"{path}, line {number}, has schema {schema}, this version of dorylax reads up to {SCHEMA}: "
                    "update dorylax"
                )
            records.append(EpochRecord.from_dict(fields))
            if records[-1].epoch != number - 1:
                raise DigestError(f"it is of epoch {records[-1].epoch}, not {number - 1}")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise DamagedFileError.of(path, f"line {number}: {error}") from error
    return records


def _line(record: EpochRecord) -> str:
    return json.dumps(sealed({"schema": SCHEMA, **record.to_dict()}), allow_nan=False) + "\n"
