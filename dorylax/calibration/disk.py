"""How fast files are written, until they are on disk, and read back from there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Step, Values, repeated
from dorylax.errors import named


def steps(sizes: Sizes, folder: Path) -> Iterator[Step]:
    """The measurements; reading where the system lets a file be forgotten. None where the folder may not be written.

    Args:
        sizes: of a file.
        folder: on the disk; a file is made there, and removed.
    """
    if not os.access(folder, os.W_OK | os.X_OK):
        return
    yield Step("disk, write", partial(_measure, sizes, folder, "write"))
    if hasattr(os, "posix_fadvise"):
        yield Step("disk, read", partial(_measure, sizes, folder, "read"))


def _measure(sizes: Sizes, folder: Path, way: str) -> Values:
    content = os.urandom(sizes.file_bytes)  # some disks write zeros faster
    with named(folder), TemporaryDirectory(prefix=".dorylax-calibrate-", dir=folder) as name:
        path = Path(name) / "file"

        def write() -> float:
            begin = time.perf_counter()
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            return len(content) / (time.perf_counter() - begin)

        def read() -> float:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                begin = time.perf_counter()
                while file.read(2**20):
                    pass
                return len(content) / (time.perf_counter() - begin)

        write()
        return repeated("disk", write if way == "write" else read, sizes.seconds, way=way)
