"""Event files for TensorBoard: a run's scalars, written as it trains.

An observer of the trainer (`dorylax.observers.base`). It needs tensorboardX (`pip install "dorylax[tensorboard]"`),
which is imported when a `TensorBoard` is made. Of it come the messages and the record format. Its `SummaryWriter`, which
writes from a thread, is left aside: where the disk is full that thread dies, and training would wait for it for ever.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, final

from dorylax.errors import InputError
from dorylax.runs.metric import ACCURACIES
from dorylax.store.durable import sync_file
from dorylax.store.run_directory import RunDirectoryError

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, Mask, TrainResult

_MASKS: tuple[Mask, ...] = ("train", "val", "test")
_FLUSH_SECONDS = 5.0
"""Between two flushes, each of which waits for the disk."""


@final
class TensorBoard:
    """Observer that writes a run's scalars as event files.

    By epoch: `loss`; where it was evaluated `accuracy/train`, `accuracy/val` and `accuracy/test` (fractions; micro-F1 for
    multi-label data), or where there is none `evaluated_loss/…`, or the metric (`roc_auc/val`, say); `seconds_per_epoch`
    (simulated on the virtual clock), and `dollars`, the US dollars up to its end, where the run costs something. When the
    run ends, at the step after its last epoch: `final/val_accuracy` and `final/test_accuracy`, or `final/…_loss`, or
    `final/val_roc_auc` and its like, those of the best epoch.

    A resumed run writes a further file into the same folder, which tells TensorBoard to forget all steps from the epoch
    on at which it goes on.

    Use it as a context manager, so that the file is closed when the run ends by an exception.

    Args:
        folder: where event files go; made when training begins. Give each run its own: TensorBoard takes all files of a
            folder for those of one run.

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
        # After an error, that one is to be told, not what comes of it here.
        with contextlib.nullcontext() if error is None else contextlib.suppress(RunDirectoryError):
            self.close()

    def started(self, total_epochs: int, first_epoch: int) -> None:  # noqa: ARG002
        """Begins a file.

        Raises:
            RunDirectoryError: the file system refuses.
        """
        self.close()
        library = self._library
        with self._guarded():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = _new_file(self._folder, first_epoch)
            # An absolute path is never taken for one of a cloud's stores ("s3:…").
            self._writer = library.writer(str(self._file.absolute()))
        self._write(library.event(wall_time=time.time(), file_version="brain.Event:2"))
        start = library.session_log(status=library.session_log.START)
        self._write(library.event(wall_time=time.time(), step=first_epoch, session_log=start))

    def epoch(self, record: EpochRecord) -> None:
        """Writes the scalars of an epoch.

        Raises:
            RunDirectoryError: the file system refuses, a full disk, say.
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
        """Writes the final accuracies, closes the file and puts it on disk.

        Raises:
            RunDirectoryError: the file system refuses.
        """
        # At the step that a run of more epochs begins with, which forgets them there.
        names = ("val_accuracy", "test_accuracy", "val_loss", "test_loss")
        scalars = {f"final/{name}": getattr(result, name) for name in names}
        if result.metric not in (*ACCURACIES, "loss"):
            scalars |= {
                f"final/val_{result.metric}": result.val_score,
                f"final/test_{result.metric}": result.test_score,
            }
        self._write_scalars(len(result.history), scalars)
        self.close()
        with self._guarded():
            sync_file(self._file)

    def close(self) -> None:
        """Closes the file; harmless when there is none.

        Raises:
            RunDirectoryError: the file system refuses what was still to be written; the file is closed.
        """
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with self._guarded():
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
        with self._guarded():
            self._writer.write(event.SerializeToString())
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._writer.flush()
                self._flushed = time.monotonic()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunDirectoryError(f"{self._folder} cannot be written: {error}", refused=True) from error


def _new_file(folder: Path, first_epoch: int) -> Path:
    """An empty file with a name that nobody else has: the library empties a file that is there already.

    TensorBoard reads files in the order of their names: of two that begin in the same second, by the epoch.
    """
    name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{first_epoch:08d}"
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
    while True:
        path = folder / next(names)
        with contextlib.suppress(FileExistsError):
            path.touch(exist_ok=False)
            return path


class Library(NamedTuple):
    """What is used of tensorboardX.

    Attributes:
        writer: of records into a file.
        event, session_log, summary: classes of messages.
    """

    writer: Any
    event: Any
    session_log: Any
    summary: Any


def load_library() -> Library:
    """Imports tensorboardX.

    Raises:
        InputError: it is not installed.
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
