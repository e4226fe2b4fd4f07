"""`dorylax train` whose worker processes are stopped: they neither answer nor die, and an epoch waits for their deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import alive, until, workers_of

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="workers are found in /proc, which Linux has"
)

_SETTINGS = {
    **{"data.size": "tiny", "tensor.backend": "local", "tensor.placement": "functions"},
    **{"tensor.workers": "2", "pipeline.intervals": "4"},
}


def living(workers: list[int]) -> set[int]:
    """Those that run, or are stopped."""
    return {one.pid for one in alive()} & set(workers)


def stands_still(file: Path) -> bool:
    """Whether nothing is appended to it for a second."""
    before = file.stat().st_size
    time.sleep(1)
    return file.stat().st_size == before


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A run in `tmp_path` / run that trains, and its workers, stopped."""
    words = [word for key, value in _SETTINGS.items() for word in ("--set", f"{key}={value}")]
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "dorylax", "train", *words, "--epochs", "1000000", "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "1000"},
    )
    metrics = folder / "seed-0" / "metrics.jsonl"
    workers: list[int] = []
    try:
        until(lambda: (metrics.is_file() and metrics.read_bytes().count(b"\n") > 2) or process.poll() is not None)
        assert process.poll() is None
        workers += workers_of(process.pid)
        assert len(workers) == 2
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        until(lambda: stands_still(metrics))  # an epoch that had all its answers has ended; the next one waits
        yield process, workers
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
        for worker in living(workers):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(
    hanging: tuple[subprocess.Popen[str], list[int]], tmp_path: Path, number: signal.Signals
) -> None:
    process, workers = hanging
    process.send_signal(number)
    time.sleep(1)
    assert process.poll() is None  # it waits for the epoch
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)  # the workers' deadline is 900 s
    assert process.returncode == 128 + number
    assert "continue with: dorylax train" in errors
    assert "Traceback" not in errors
    until(lambda: not living(workers))
    run = tmp_path / "run" / "seed-0"
    assert not (run / "summary.json").exists()
    assert not (run / ".lock").exists()
    assert all(json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())


def test_the_terminal_that_goes_is_no_second_signal(
    hanging: tuple[subprocess.Popen[str], list[int]], tmp_path: Path
) -> None:
    """One that closes sends SIGHUP several times; the epoch is finished, and saved, once the workers go on."""
    process, workers = hanging
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
    assert process.poll() is None
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    _, errors = process.communicate(timeout=300)  # it does not come to the deadline of 900 s
    assert process.returncode == 128 + signal.SIGTERM
    assert "continue with: dorylax train" in errors
    until(lambda: not living(workers))
    run = tmp_path / "run" / "seed-0"
    assert json.loads((run / "summary.json").read_text())["stopped"] == "signal"
    assert not (run / ".lock").exists()


def test_workers_that_are_stopped_do_not_outlive_it(hanging: tuple[subprocess.Popen[str], list[int]]) -> None:
    process, workers = hanging
    process.kill()
    until(lambda: not living(workers))
