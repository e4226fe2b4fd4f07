"""Error messages of a command whose disk fails, as the family `io_errors` judges them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from hostile.commands import complaint
from hostile.worker import Ended

KNOWN = {"sweep", "runs", "results.csv", "checkpoints", "parts"}
FINE = "[1/2] hidden=4, seed 0: test accuracy 21.0 %, loss 1.4354, 0.87 ms/epoch\n"
FAILED = "[2/2] hidden=8, seed 0: failed: RunError: nothing written to /x/checkpoints: Too many open files\n"
SUMMARY = "1 of 2 runs failed; the first one's traceback: sweep/errors/b.txt\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sweep" / "errors").mkdir(parents=True)
    (tmp_path / "sweep" / "errors" / "b.txt").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("code", "errors"),
    [
        (0, ""),
        (0, "warning: the trace cannot be written\n"),
        (0, FINE),
        (1, "error: sweep: No space left on device\n"),
        (1, "error: sweep/results.csv: No space left on device\n"),
        (1, f"{FINE}error: /x/results.csv: Input/output error\n"),
        (1, FINE + FAILED + SUMMARY),
        (1, "warning: damaged, not used\nerror: it cannot be read: [Errno 5] Input/output error: '/x/checkpoints'\n"),
    ],
)
def test_good_messages(folder: Path, code: int, errors: str) -> None:
    assert complaint(Ended(code, "", errors), folder, KNOWN) == ""


@pytest.mark.parametrize(
    ("code", "errors", "why"),
    [
        (None, "", "ended with None"),
        (-6, "", "ended with -6"),
        (2, "error: sweep: No space left on device\n", "ended with 2"),
        (0, "error: sweep: No space left on device\n", "ended with 0, and said"),
        (0, FINE + FAILED, "ended with 0, and said"),
        (1, "", "ended with 1, and said: nothing"),
        (1, FINE, "ended with 1"),
        (1, FINE + FAILED, "ended with 1"),
        (1, 2 * "error: sweep: No space left on device\n", "ended with 1"),
        (1, f"error: sweep: No space left on device\n{FINE}", "no error"),
        (1, "error: sweep: No space left on device\nsomething of a library\n", "ended with 1"),
        (1, "something of a library\n", "no error"),
        (1, "error: No space left on device\n", "names no file"),
        (1, "error: the runs cannot be written\n", "names no file"),
        (1, "error: /x/other.csv: Input/output error\n", "names no file"),
        (1, "error: sweep/.results.csv.dorylax-0123abcd: Input/output error\n", "users do not know"),
        (1, f"{FINE}[2/2] hidden=8, seed 0: failed: OSError: Input/output error\n{SUMMARY}", "names no file"),
        (1, FINE + SUMMARY, "counts failed runs"),
        (1, FINE + FAILED + SUMMARY.replace("b.txt", "c.txt"), "no traceback where it says"),
        (1, "Traceback (most recent call last):\n  …\nOSError: x\n", "printed a traceback"),
    ],
)
def test_bad_messages(folder: Path, code: int | None, errors: str, why: str) -> None:
    assert why in complaint(Ended(code, "", errors), folder, KNOWN)


def test_a_traceback_on_standard_output_is_seen(folder: Path) -> None:
    assert "traceback" in complaint(Ended(0, "Traceback (most recent call last):\n", ""), folder, KNOWN)
