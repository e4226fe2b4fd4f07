from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from dorylax.errors import RunWarning
from dorylax.store import lines
from dorylax.store.run_directory import RunDirectory, RunDirectoryError
from dorylax.store.servers import GraphServerMetrics, ParameterServerMetrics, ServerMetrics, ServersWriter, read


def epoch(number: int) -> list[ServerMetrics]:
    graph = GraphServerMetrics(
        number, 0, 2, 9, 0.5, 1 / 3, 2, 4, 0.25, 1.5, 2, 0.0, 0.125, 0.1, 3, 640, {"0": 5, "1": 2}, {"answered": 4}
    )
    parameter = ParameterServerMetrics(number, 0, 4, 1, 8, 1, 0.03, 1024, 2048, 4)
    return [graph, dataclasses.replace(graph, server=1), parameter]


def written(path: Path, epochs: range) -> Path:
    writer = ServersWriter(path, epochs.start)
    for number in epochs:
        writer.write(epoch(number))
    writer.sync()
    return path


def test_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "servers.jsonl", range(3))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["epoch"], line["kind"], line["server"]) for line in lines[:4]] == [
        *((0, "graph", 0), (0, "graph", 1), (0, "parameter", 0)),
        (1, "graph", 0),
    ]
    assert lines[0] == {"schema": 2, "kind": "graph", **dataclasses.asdict(epoch(0)[0])}
    assert read(path) == epoch(0) + epoch(1) + epoch(2)


def test_what_has_no_servers_has_no_file(tmp_path: Path) -> None:
    writer = ServersWriter(tmp_path / "servers.jsonl", 0)
    writer.write([])
    writer.sync()
    assert not list(tmp_path.iterdir())


def test_a_run_that_goes_on_has_no_epoch_twice(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.jsonl", range(6)).read_bytes()
    path = written(tmp_path / "servers.jsonl", range(4))
    with path.open("a") as file:
        file.write('{"schema": 1, "epo')  # killed while writing
    assert written(path, range(3, 6)).read_bytes() == whole
    ServersWriter(path, 0)
    assert path.read_bytes() == b""


def test_what_a_killed_process_has_of_its_last_epoch_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "servers.jsonl", range(2))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    assert read(path) == epoch(0)
    path.write_text("".join(lines[:2]))
    assert read(path) == epoch(0)[:2]  # nobody knows that there are more


@pytest.mark.parametrize("damage", ["bit", "gap", "short"])
def test_it_begins_anew_where_it_is_damaged(tmp_path: Path, damage: str) -> None:
    path = written(tmp_path / "servers.jsonl", range(4))
    lines = path.read_text().splitlines(keepends=True)
    if damage == "bit":
        RunDirectory(tmp_path).write_summary({})
        lines[4] = lines[4].replace('"messages": 3', '"messages": 2')
    elif damage == "gap":
        del lines[4]
    else:
        del lines[9:]
    path.write_text("".join(lines))
    with pytest.warns(RunWarning, match=r"servers\.jsonl is damaged .* It begins anew with epoch 4"):
        ServersWriter(path, 4)
    RunDirectory(tmp_path).remove_summary()
    assert read(written(path, range(4, 6))) == epoch(4) + epoch(5)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"schema": 3}, "schema 3.* update dorylax"),
        ({"kind": "driver"}, "line 2: kind must be graph or parameter, got 'driver'"),
        ({"new": 1}, "line 2: .*got an unexpected keyword argument 'new'"),
        ({"server": 0}, "line 2: it is of graph server 0 in epoch 0, not graph server 0 in epoch 1"),
        ({"epoch": 2}, "line 2: it is of graph server 1 in epoch 2, not graph server 0 in epoch 1"),
    ],
    ids=str,
)
def test_what_is_not_as_it_should_be_is_refused(tmp_path: Path, change: dict[str, object], match: str) -> None:
    path = written(tmp_path / "servers.jsonl", range(2))
    lines = path.read_text().splitlines(keepends=True)
    lines[1] = json.dumps(json.loads(lines[1]) | change) + "\n"
    path.write_text("".join(lines))
    with pytest.raises(RunDirectoryError, match=match):
        read(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(RunDirectoryError, match="utf-8") as caught:
        read(path)
    assert caught.value.damaged


def test_a_disk_that_refuses_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ServersWriter(tmp_path / "nowhere" / "servers.jsonl", 0)
    with pytest.raises(RunDirectoryError, match=r"servers\.jsonl cannot be written: .*No such file") as caught:
        writer.write(epoch(0))
    assert caught.value.refused
    path = written(tmp_path / "servers.jsonl", range(1))

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lines, "sync_file", full)
    with pytest.raises(RunDirectoryError, match="No space") as caught:
        ServersWriter(path, 1).sync()
    assert caught.value.refused
