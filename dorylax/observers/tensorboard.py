"""Event files for TensorBoard: a run's scalars, written during training.

`TensorBoard` is an observer of the trainer (`dorylax.observers.base`). It imports tensorboardX (`pip install
"dorylax[tensorboard]"`) for the messages and the record format. The library's `SummaryWriter` is not used: it writes from a
thread that dies on a full disk, and training would then wait for it without end.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, final

from dorylax.errors import InputError
from dorylax.runs.metric import ACCURACIES
from dorylax.store.durable import sync_file
from dorylax.store.run_directory import RunDirectoryError, access

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, Mask, TrainResult

_MASKS: tuple[Mask, ...] = ("train", "val", "test")
_FLUSH_SECONDS = 5.0
"""Seconds between flushes, each of which waits for the disk."""


@final
class TensorBoard:
    """Observer that writes a run's scalars as event files.

    Scalars of each epoch:
        - `loss`
        - after an evaluation `accuracy/train`, `accuracy/val` and `accuracy/test` (fractions; micro-F1 for multi-label
          data), or else `evaluated_loss/…`, or the metric, such as `roc_auc/val`
        - `seconds_per_epoch` (simulated on the virtual clock)
        - `dollars`: US dollars up to its end, if the run has a bill

    At the end of the run, at the step after its last epoch: `final/val_accuracy` and `final/test_accuracy`, or
    `final/…_loss`, or such as `final/val_roc_auc`, all of the best epoch.

    A resumed run writes a further file into the same folder, which makes TensorBoard discard the steps from the first
    repeated epoch on. Use the observer as a context manager, so that an exception closes the file too.

    Args:
        folder: Folder for event files, made when training starts. Give each run its own: TensorBoard treats all files of a
            folder as one run.

    Raises:
        InputError: tensorboardX is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._library = load_library()
        self._folder = self._file = Path(folder)
        self._writer: Any = None
        self._flushed = 0.0

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The first error is the one to report.
        with contextlib.nullcontext() if error is None else contextlib.suppress(RunDirectoryError):
            self.close()

    def started(self, total_epochs: int, first_epoch: int) -> None:  # noqa: ARG002
        """Start a file.

        Raises:
            RunDirectoryError: The file system refuses.
        """
        self.close()
        library = self._library
        with access(self._folder, "written"):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = _new_file(self._folder, first_epoch)
            # The library treats relative paths such as "s3:…" as cloud storage.
            self._writer = library.writer(str(self._file.absolute()))
        self._write(library.event(wall_time=time.time(), file_version="brain.Event:2"))
        start = library.session_log(status=library.session_log.START)
        self._write(library.event(wall_time=time.time(), step=first_epoch, session_log=start))

    def epoch(self, record: EpochRecord) -> None:
        """Write the scalars of an epoch.

        Raises:
            RunDirectoryError: The file system refuses.
        """
        scalars = {
            "loss": record.loss,
            "accuracy/train": record.train_accuracy,
            "accuracy/val": record.val_accuracy,
            "accuracy/test": record.test_accuracy,
            "evaluated_loss/train": record.train_loss,
            "evaluated_loss/val": record.val_loss,
            "evaluated_loss/test": record.test_loss,
            **{f"{record.metric}/{mask}": record.score(mask) for mask in _MASKS if record.metric is not None},
            "seconds_per_epoch": record.seconds,
            "dollars": record.dollars,
        }
        self._write_scalars(record.epoch, scalars)

    def finished(self, result: TrainResult) -> None:
        """Write the final scores, and close and sync the file.

        Raises:
            RunDirectoryError: The file system refuses.
        """
        # At the first step of a continued run, which discards them.
        names = ("val_accuracy", "test_accuracy", "val_loss", "test_loss")
        scalars = {f"final/{name}": getattr(result, name) for name in names}
        if result.metric not in (*ACCURACIES, "loss"):
            scalars |= {
                f"final/val_{result.metric}": result.val_score,
                f"final/test_{result.metric}": result.test_score,
            }
        self._write_scalars(len(result.history), scalars)
        self.close()
        with access(self._folder, "written"):
            sync_file(self._file)

    def close(self) -> None:
        """Close the file, if there is one.

        Raises:
            RunDirectoryError: The file system refuses buffered data; the file is closed nevertheless.
        """
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with access(self._folder, "written"):
                writer.close()

    def _write_scalars(self, step: int, scalars: Mapping[str, float | None]) -> None:
        library = self._library
        values = [
            library.summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items() if value is not None
        ]
        if values:
            self._write(library.event(wall_time=time.time(), step=step, summary=library.summary(value=values)))

    def _write(self, event: Any) -> None:
        if self._writer is None:
            return
        with access(self._folder, "written"):
            self._writer.write(event.SerializeToString())
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._writer.flush()
                self._flushed = time.monotonic()


def _new_file(folder: Path, first_epoch: int) -> Path:
    """Make an empty file with a new name, because the library truncates an existing file.

    TensorBoard reads files in the order of their names; those of the same second are ordered by epoch.
    """
    name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{first_epoch:08d}"
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
    while True:
        path = folder / next(names)
        with contextlib.suppress(FileExistsError):
            path.touch(exist_ok=False)
            return path


class Library(NamedTuple):
    """The used parts of tensorboardX.

    Attributes:
        writer: Writer of records.
        event, session_log, summary: Classes of messages.
    """

    writer: Any
    event: Any
    session_log: Any
    summary: Any


def load_library() -> Library:
    """Import tensorboardX.

    Raises:
        InputError: It is not installed.
    """
    try:
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
        from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
        from tensorboardX.record_writer import RecordWriter  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError(
            f'event files for TensorBoard need tensorboardX ({error}): pip install "dorylax[tensorboard]"'
        ) from error
    return Library(RecordWriter, Event, SessionLog, Summary)
