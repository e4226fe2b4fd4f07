"""Links in a run directory that somebody else made: what they lead to stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dorylax.errors import RunWarning
from dorylax.pipeline.trace import TraceWriter
from dorylax.runs.result import EpochRecord
from dorylax.store.lines import append_lines, write_lines
from dorylax.store.metrics import MetricsWriter
from dorylax.store.run_directory import RunDirectoryError
from dorylax.store.servers import ServersWriter
from dorylax.store.trace import TraceFile, cut

_RECORD = EpochRecord(0, 1.0, 0.5, 0.5, 0.5, 0.1)


def _metrics(path: Path) -> None:
    writer = MetricsWriter(path)
    writer.started(1, 0)
    writer.epoch(_RECORD)


def _trace(path: Path) -> None:
    with pytest.warns(RunWarning, match="is a symbolic link: remove that link"):
        TraceWriter.begin(path, "full", epochs=0, continues=False)


def _servers(path: Path) -> None:
    with pytest.warns(RunWarning, match="is damaged"):
        ServersWriter(path, 0)


def _refused(write: Callable[[Path], object]) -> Callable[[Path], None]:
    def refused(path: Path) -> None:
        with pytest.raises((OSError, RunDirectoryError), match="is a symbolic link: remove that link"):
            write(path)

    return refused


WRITERS = {
    "metrics": _metrics,
    "servers": _servers,
    "new lines": lambda path: write_lines(path, 1, [{}]),
    "trace": _trace,
    "new trace": _refused(TraceFile),
    "lines": _refused(lambda path: append_lines(path, 1, [{}])),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
def test_what_a_link_leads_to_stays(tmp_path: Path, write: Callable[[Path], None]) -> None:
    victim, link = tmp_path / "victim", tmp_path / "file"
    victim.write_text("a key\n")
    link.symlink_to(victim)
    write(link)
    assert victim.read_text() == "a key\n"


def test_a_trace_is_not_cut_through_a_link(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim.json", tmp_path / "trace.json"
    TraceFile(victim).close()
    link.symlink_to(victim)
    before = victim.read_bytes()
    cut(link, 0)  # it has no mark, and would begin anew
    assert victim.read_bytes() == before
    assert not link.exists()


def test_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    link = tmp_path / "servers.jsonl"
    link.symlink_to(tmp_path / "victim")
    with pytest.raises(RunDirectoryError, match="is a symbolic link: remove that link") as caught:
        append_lines(link, 1, [{}])
    assert caught.value.refused
    assert not (tmp_path / "victim").exists()
