"""metrics.jsonl: a line of strict JSON per epoch, written as it ends and read back as `EpochRecord`.

The file never holds an epoch that a resumed run will train again: on resume it is rewritten from the checkpoint's history.
Lines of schemas 2 and 3 have a digest each; only lines from 3 on have scores of metrics other than accuracy and loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from dorylax.runs.result import EpochRecord, TrainResult
from dorylax.store.lines import append_lines, read_lines, sync_lines, write_lines
from dorylax.store.run_directory import RunDirectory, damaged_file

SCHEMA = 4


@final
class MetricsWriter:
    """Observer that writes metrics.jsonl, which begins with the records of the epochs of earlier processes."""

    def __init__(self, path: Path, history: Sequence[EpochRecord] = ()) -> None:
        self._path = path
        self._history = tuple(history)

    def started(self, total_epochs: int, first_epoch: int) -> None:  # noqa: ARG002
        """Rewrite the file up to the first epoch to come."""
        write_lines(self._path, SCHEMA, (one.to_dict() for one in self._history if one.epoch < first_epoch))

    def epoch(self, record: EpochRecord) -> None:
        """Append a line."""
        append_lines(self._path, SCHEMA, [record.to_dict()])

    def finished(self, result: TrainResult) -> None:  # noqa: ARG002
        """Flush the lines to disk."""
        sync_lines(self._path)


def of_run(run: RunDirectory) -> list[EpochRecord]:
    """Return all epochs of a run that has ended; as `read`, but their number must be that in the summary."""
    records, epochs = read(run.metrics_path), (run.summary or {}).get("epochs")
    if epochs is not None and len(records) != epochs:
        raise damaged_file(run.metrics_path, f"{len(records)} of {epochs} epochs are there")
    return records


def read(path: Path) -> list[EpochRecord]:
    """Return the epochs in a metrics.jsonl, in order.

    Raises:
        RunDirectoryError: The file cannot be read, is damaged, lacks an epoch, or has a newer schema.
    """
    records = read_lines(path, SCHEMA, EpochRecord.from_dict)
    for number, record in enumerate(records):
        if record.epoch != number:
            raise damaged_file(path, f"line {number + 1}: it is of epoch {record.epoch}, not {number}")
    return records
