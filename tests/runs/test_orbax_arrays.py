"""Arrays on disk by Orbax: read as they were written, and one short error where the disk refuses."""

from __future__ import annotations

import errno
import logging
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dorylax.runs import orbax_arrays

ARRAYS = {"a": {f"x{k}": np.arange(k + 1, dtype=np.float32) for k in range(9)}, "b": {}}


@pytest.fixture
def hook() -> Iterator[list[object]]:
    """What a `sys.unraisablehook` is given that was there before."""
    found: list[object] = []
    before, sys.unraisablehook = sys.unraisablehook, found.append
    yield found
    sys.unraisablehook = before


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Nothing larger than a kilobyte can be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_once(
    tmp_path: Path,
    hook: list[object],
    full_disk: None,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    noise = np.random.default_rng(0).integers(0, 2**32, 10_000, dtype=np.uint32)
    with pytest.raises(OSError, match="File too large") as caught:
        orbax_arrays.write(tmp_path / "arrays", {"a": {f"x{k}": noise + k for k in range(20)}})
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "arrays"))
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert hook == []
    assert capfd.readouterr().err == ""


def test_what_others_have_to_say_is_still_said(
    tmp_path: Path, hook: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    orbax_arrays.write(tmp_path / "arrays", ARRAYS)
    hook.clear()  # late answers of the test before, from between the fixture's hook and that of `write`
    late, other = (SimpleNamespace(exc_value=RuntimeError(text)) for text in ("Event loop is closed", "another"))
    for what in (late, other, SimpleNamespace(exc_value=None)):
        sys.unraisablehook(what)  # type: ignore[arg-type]
    assert [getattr(one, "exc_value", None) for one in hook] == [other.exc_value, None]
    for name in ("absl", "asyncio"):
        logging.getLogger(name).error("of a user's")
    assert [record.message for record in caplog.records if record.message == "of a user's"] == ["of a user's"] * 2


def test_arrays_that_orbax_refuses_are_no_matter_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zero size"):
        orbax_arrays.write(tmp_path / "arrays", {"a": {"x": np.zeros((0, 3))}})
