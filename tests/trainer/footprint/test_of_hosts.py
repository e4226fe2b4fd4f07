"""The memory and the threads of hosts against hosts, and hosts that do not fit are not started."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.processes import below

import dorylax
from dorylax.cli import main
from dorylax.config import RunConfig
from dorylax.errors import RunError
from dorylax.graph.data_shape import DataShape
from dorylax.graph.partition import lay_out, partition
from dorylax.machine import resident_bytes
from dorylax.memory.hosts import Cut, cutting
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.resources import most_threads
from dorylax.pipeline.shard_writing import write_shards
from dorylax.trainer import Trainer
from dorylax.trainer.footprint import of_config

_HERE = Path(__file__).parents[3]
_GIB = 2**30

pytestmark = pytest.mark.timeout(300)


def config(**overrides: Any) -> RunConfig:
    values = {"data.size": "tiny", "train.epochs": 1, "pipeline.servers": 2, "pipeline.hosts": "processes"}
    return RunConfig.resolve(values, {key.replace("__", "."): value for key, value in overrides.items()})


def totals(found: Any) -> dict[str, int]:
    return {phase.name: phase.total for phase in found.phases}


def test_all_processes_are_added_up() -> None:
    found = of_config.estimate(config(pipeline__servers=3, pipeline__parameter_servers=2))
    assert found is not None
    assert [phase.name for phase in found.phases] == [
        *("load", "cut", "graph server", "parameter server", "driver", "all processes")
    ]
    of = totals(found)
    assert of["all processes"] == 3 * of["graph server"] + 2 * of["parameter server"] + of["driver"]
    assert found.peak.name == "all processes"


def test_hosts_of_several_servers_have_libraries_once() -> None:
    alone = of_config.estimate(config(pipeline__servers=4))
    two = of_config.estimate(config(pipeline__servers=4, pipeline__num_hosts=2))
    assert alone is not None
    assert two is not None
    assert [phase.name for phase in two.phases[2:]] == [
        *("2 × graph server and parameter server", "2 × graph server", "driver", "all processes")
    ]
    assert two.peak.total < alone.peak.total


def test_hosts_on_a_cluster_are_counted_by_themselves(memory_of: Callable[[float], None]) -> None:
    memory_of(1 + resident_bytes() / 2**30)  # of this machine, where the driver is, beside what other tests have left
    found = of_config.estimate(config(pipeline__servers=64, pipeline__hosts="ray"))
    assert found is not None
    assert found.fits
    assert [phase.name for phase in found.phases] == ["load", "cut", "driver"]
    assert "each graph server needs 0.3 GiB on its node" in found.verdict()
    short = config(pipeline__servers=64, pipeline__hosts="ray", ray__memory=2**28)
    with pytest.raises(RunError, match=r"does not fit: each graph server needs .*, and ray\.memory is 0\.2 GiB"):
        of_config.check_config(short)


def test_what_does_not_fit_is_refused_before_data_are_loaded_or_hosts_started(
    memory_of: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    memory_of(24)
    words = ["train", "--data", "communities", "--set", "pipeline.servers=4", "--set", "pipeline.hosts=processes"]
    with monkeypatch.context() as patch:
        patch.setattr("dorylax.graph.datasets.load", None)
        assert main([*words, "--set", "data.size=friendster", "--out", str(tmp_path / "run")]) == 1
    text = capsys.readouterr().err
    assert "does not fit: needs" in text
    assert text.count("\n") == 1
    assert not (tmp_path / "run").exists()
    memory_of(0.5)
    data = dorylax.load("communities", size="tiny")
    monkeypatch.setattr("dorylax.pipeline.hosts.processes.ProcessLauncher.launch", None)
    with pytest.raises(RunError, match=r"at its peak \(all processes\), this machine has 0\.5 GiB"):
        Trainer.from_config(config(), data).fit()


def test_what_a_saved_partition_does_not_fit_in_is_refused_and_other_data_are_no_remedy(
    memory_of: Callable[[float], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parts, of_data = str(tmp_path / "parts"), ["--data", "communities", "--set", "data.size=small"]
    assert main(["partition", *of_data, "--servers", "2", "--method", "range", "--out", parts]) == 0
    capsys.readouterr()
    memory_of(0.5)
    settings = ["pipeline.servers=2", "pipeline.hosts=processes", f"pipeline.partition={parts}"]
    words = ["train", "--no-save", *of_data, *(word for setting in settings for word in ("--set", setting))]
    assert main(words) == 1
    text = capsys.readouterr().err
    assert "does not fit: needs" in text
    assert "data.size" not in text


def test_the_estimate_of_cutting_is_within_20_percent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the data set; of ids of edges only where a model reads them."""
    for module in ("graph.reorder", "memory.hosts"):
        monkeypatch.setattr(f"dorylax.{module}.SPAN", 1 << 17)  # what each thread has counts for little on large graphs
    monkeypatch.setattr("dorylax.memory.hosts.communities", lambda _: 0)  # they are found before what is measured here
    data = dorylax.load("communities", num_vertices=20_000, num_edges=40_000_000, num_features=300, num_classes=4)
    layout = lay_out(data.graph, partition(data.graph, 4, method="range"), 4)
    config = PipelineConfig(servers=4, intervals=4, hosts="processes", partition=str(tmp_path))
    for ids in (False, True):
        shape = dataclasses.replace(DataShape.of(data), edge_ids=ids)
        estimated = cutting(shape, Cut.at_random(shape, 4, 4), config)
        tracemalloc.start()
        try:
            found = write_shards(tmp_path, data, layout, ids=ids, digests=False)
            _, measured = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert found.summary.edge_ids == ids
        assert sum(estimated.values()) == pytest.approx(measured, rel=0.2)


def test_partitioning_counts_by_its_method() -> None:
    shape = DataShape(1_100_000, 1_300_000_000, 301, 50, edge_ids=False, graph_in="aligned", features_in="aligned")
    cut = Cut.at_random(shape, 4, 8)
    found = {
        method: sum(cutting(shape, cut, PipelineConfig(servers=4, hosts="processes", partitioner=method)).values())
        for method in ("metis", "ldg", "range", "random")
    }
    assert found["metis"] > 29 * _GIB
    assert max(found["ldg"], found["range"], found["random"]) < 2.5 * _GIB


def test_it_may_be_tried_all_the_same(memory_of: Callable[[float], None]) -> None:
    memory_of(0.5)
    found = Trainer.from_config(config(single__memory="ignore"), dorylax.load("communities", size="tiny")).fit()
    assert len(found.history) == 1


def test_more_servers_have_less_each_and_more_ghosts() -> None:
    shape = DataShape(1_000_000, 20_000_000, 100, 10)
    cuts = [Cut.at_random(shape, servers, 4) for servers in (1, 2, 8, 64)]
    assert [cut.ghosts[0] for cut in cuts][:2] == [0, 500_000]
    assert cuts[3].ghosts[0] < 20_000_000 / 64
    assert [cut.rows for cut in cuts] == [1_000_000, 500_000, 125_000, 15_625]
    for cut in cuts:
        assert cut.interval_rows <= cut.sources <= min(cut.interval_edges, cut.rows + cut.ghosts[0])


@contextlib.contextmanager
def sampled(words: list[str]) -> Any:
    """Runs `dorylax train` with these words; gives the largest PSS and the most threads by process, once it has ended."""
    line = [sys.executable, "-m", "dorylax", "train", "--no-save", *words]
    process = subprocess.Popen(line, cwd=_HERE, stdout=subprocess.DEVNULL, env={**os.environ, "DORYLAX_FORK": "0"})
    peaks: dict[int, int] = {}
    threads = 0
    try:
        while process.poll() is None:
            there = [process.pid, *below(process.pid)]
            counted = 0
            for pid in there:
                with contextlib.suppress(OSError):
                    counted += len(list(Path(f"/proc/{pid}/task").iterdir()))
                    peaks[pid] = max(peaks.get(pid, 0), pss(pid))
            threads = max(threads, counted)
            time.sleep(0.05)
    finally:
        process.kill()
        assert process.wait() == 0
    driver = peaks.pop(process.pid)
    yield driver, sorted(peaks.values()), threads


def pss(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc")
def test_the_estimate_is_within_25_percent_of_hosts_and_15_of_all_of_them(tmp_path: Path) -> None:
    """On a saved partition, whose ghosts are known; PSS: pages that processes share count once.

    Without forks, which share the pages of libraries: the estimate does not count on that.
    """
    data = dorylax.load("communities", num_vertices=100_000, num_edges=1_000_000, num_features=300, num_classes=8)
    path, parts = str(tmp_path / "data.npz"), str(tmp_path / "parts")
    data.save_npz(Path(path))
    del data
    general = ["--data", path, "--set", "data.row_normalise=false"]
    assert main(["partition", *general, "--servers", "2", "--intervals", "4", "--out", parts]) == 0
    settings = ["model.hidden_features=64", "pipeline.servers=2", "pipeline.intervals=4", "pipeline.hosts=processes"]
    settings.append(f"pipeline.partition={parts}")
    words = [*general, "--model", "gcn", *(word for setting in settings for word in ("--set", setting))]
    info = [sys.executable, "-m", "dorylax", "info", "--json", *words]
    found = json.loads(subprocess.run(info, cwd=_HERE, check=True, capture_output=True, text=True).stdout)
    estimated = {phase["name"]: phase["total"] for phase in found["phases"]}
    with sampled([*words, "--epochs", "6"]) as (driver, (parameter, *graph), threads):
        pass
    assert len(graph) == 2
    assert min(graph) > 2**29, "the hosts are too small to say anything about arrays"
    for measured in graph:
        assert estimated["graph server"] == pytest.approx(measured, rel=0.25)
    assert estimated["parameter server"] == pytest.approx(parameter, rel=0.25)
    assert estimated["all processes"] == pytest.approx(driver + parameter + sum(graph), rel=0.15)
    most = most_threads(PipelineConfig(servers=2, intervals=4, hosts="processes"))
    assert 0.6 * most < threads <= most
