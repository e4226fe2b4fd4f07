"""Sweeps over the nodes of a Ray cluster: the bytes of one machine, whatever is lost on the way."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.leftovers import nothing_left
from support.ray_cluster import CPUS, RayCluster

from dorylax.experiments.execution import Executor, carry_out, known_outcomes
from dorylax.experiments.executors.local import InProcess, Processes
from dorylax.experiments.executors.ray_tasks import named_files, ray_tasks
from dorylax.experiments.run import main
from dorylax.experiments.runner import directory, error_file, fail
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.experiments.sweep_file import read
from dorylax.settings.errors import ConfigError
from dorylax.store.run_directory import RunDirectory
from dorylax.trainer import EpochRecord

pytestmark = pytest.mark.timeout(120)

_SWEEP = """\
base: {data.size: tiny, model.name: gcn, pipeline.servers: 2, pipeline.intervals: 2, pipeline.clock: virtual}
grid: {pipeline.mode: [pipe, async], train.epochs: [3]}
seeds: 1
"""
_MLP = "base: {data.size: tiny, model.name: mlp, train.epochs: 3}\nseeds: 2\n"
_WAITS = """\
import pathlib, time
import optax

def waits(learning_rate):
    adam = optax.adam(learning_rate)

    def update(*arguments):
        while not pathlib.Path("lost").exists():
            time.sleep(0.05)
        return adam.update(*arguments)

    return optax.GradientTransformation(adam.init, update)
"""
"""An optimizer whose first step, when it is traced, waits for a file: until then, no run that uses it can end."""

_FOREVER = 1_000_000


class _Watcher:
    """Records events, and calls back when a run starts for the first time and, on request, when one ends."""

    def __init__(self, at_start: Callable[[Run], None] = lambda _: None, *, at_end: bool = False) -> None:
        self.told: list[tuple[str, str]] = []
        self.reasons: list[str] = []
        self.seen: set[str] = set()
        self._at_start, self._at_end = at_start, at_end

    def begins(self, run: Run) -> None:
        self.told.append(("begins", run.key))

    def started(self, run: Run, total_epochs: int, first_epoch: int) -> None:
        if run.key not in self.seen:
            self.seen.add(run.key)
            self._at_start(run)

    def epoch(self, run: Run, record: EpochRecord) -> None: ...

    def again(self, run: Run, why: str) -> None:
        self.told.append(("again", run.key))
        self.reasons.append(why)

    def finished(self, run: Run, summary: Mapping[str, Any]) -> None: ...

    def ends(self, outcome: RunOutcome) -> None:
        self.told.append(("ends", outcome.run.key))
        if self._at_end:
            self._at_start(outcome.run)


def _results(folder: Path, executor: Executor, watcher: _Watcher, text: str = _SWEEP) -> bytes:
    sweep = read(text, "s.yaml", "s")
    outcomes, stopped = carry_out(known_outcomes(sweep, folder), folder, watcher, executor=executor)
    assert stopped is None
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    return (folder / "results.csv").read_bytes()


def test_results_are_those_of_one_machine(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line; a run that fails is told as there, too."""
    monkeypatch.setenv("NPROC", "1")
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def breaks(learning_rate):\n    raise ValueError('no such thing')\n")
    text = _SWEEP.replace("grid: {", 'grid: {optimizer.name: [adam, "mine.py:breaks"], ')
    Path("s.yaml").write_text(text.replace("[pipe, async]", "[async]"))
    words = ["--sweep", "s.yaml", "--no-report"]
    assert main([*words, "--out", "here", "--jobs", "2"]) == 1
    there = ["--out", "there", "--hosts", "ray", "--address", ray_cluster.address, "--cpus-per-run", "1"]
    assert main([*words, *there]) == 1
    assert Path("there/results.csv").read_bytes() == Path("here/results.csv").read_bytes()
    failed = read(text.replace("[pipe, async]", "[async]"), "s.yaml", "s").runs[-1]
    last = [error_file(Path(folder), failed).read_text().splitlines()[-1] for folder in ("here", "there")]
    assert last[0] == last[1] == ("mine.py:2 (breaks): raise ValueError('no such thing'): ValueError: no such thing")
    assert sorted(path.name for path in Path("there").iterdir()) == sorted(path.name for path in Path("here").iterdir())


def test_a_node_that_is_lost_changes_nothing(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only one that has room, while the second run is under way; another one comes instead."""
    monkeypatch.setenv("NPROC", str(CPUS + 1))
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(_WAITS)
    text = _SWEEP.replace("pipeline.mode: [pipe, async]", 'optimizer.name: [adam, "mine.py:waits"]')
    nodes = [ray_cluster.add_node(CPUS + 1)]
    lost: list[str] = []

    def lose(_: Run) -> None:
        # Events and results arrive on separate paths: the second run may start before the first run's result arrives.
        ended = {key for what, key in watcher.told if what == "ends"}
        if not lost and ended and watcher.seen - ended:
            lost.extend(watcher.seen - ended)
            ray_cluster.remove_node(nodes.pop())
            nodes.append(ray_cluster.add_node(CPUS + 1))
            Path("lost").touch()

    watcher = _Watcher(lose, at_end=True)
    try:
        with ray_tasks(ray_cluster.config(), _runs(text), jobs=None, cpus=CPUS + 1) as executor:
            assert executor.at_a_time == 1
            there = _results(Path("there"), executor, watcher, text)
    finally:
        ray_cluster.remove_node(nodes.pop())
        ray_cluster.settle()
    assert [key for what, key in watcher.told if what == "again"] == lost
    assert re.fullmatch(r"its process on node \S+ \([0-9a-f]{8}\) was lost", *watcher.reasons)
    assert len([key for what, key in watcher.told if what == "begins"]) == 2
    assert there == _results(Path("here"), Processes(2), _Watcher(), text)


def test_a_process_that_is_killed_is_replaced(ray_cluster: RayCluster, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(run: Run) -> None:
        if not killed:
            killed.extend(ray_cluster.running("run_here"))
            os.kill(killed[0], signal.SIGKILL)

    watcher = _Watcher(kill)
    with nothing_left(sockets_stay=True), ray_tasks(ray_cluster.config(), _runs(_MLP), jobs=1, cpus=1) as executor:
        there = _results(tmp_path / "there", executor, watcher, _MLP)
    assert len(killed) == 1
    assert re.fullmatch(r"its process on node \S+ \([0-9a-f]{8}\) was lost", *watcher.reasons)
    assert there == _results(tmp_path / "here", InProcess(), _Watcher(), _MLP)


def test_what_is_stopped_has_been_saved(ray_cluster: RayCluster, tmp_path: Path) -> None:
    sweep = read(f"base: {{data.size: tiny, model.name: mlp, train.epochs: {_FOREVER}}}\nseeds: 1\n", "s", "s")
    (run,) = sweep.runs
    fail(tmp_path, run, "of an earlier start")

    def interrupt(_: Run) -> None:
        raise KeyboardInterrupt

    with nothing_left(sockets_stay=True), ray_tasks(ray_cluster.config(), sweep.runs, jobs=None, cpus=1) as executor:
        known = known_outcomes(sweep, tmp_path)
        outcomes, stopped = carry_out(known, tmp_path, _Watcher(interrupt), executor=executor)
    assert (stopped, outcomes[run.key].status) == ("interrupted", "open")
    found = RunDirectory.open(directory(tmp_path, run))
    assert found.summary["stopped"] == "signal"
    assert len(list(found.checkpoints_path.iterdir())) == 1
    assert not (found.path / ".lock").exists()


def _runs(text: str = _SWEEP) -> tuple[Run, ...]:
    return read(text, "s.yaml", "s").runs


def test_what_cannot_be_is_said_before_anything_runs(ray_cluster: RayCluster, tmp_path: Path) -> None:
    def refusal(runs: tuple[Run, ...], cpus: int | None = 1) -> str:
        with pytest.raises(ConfigError) as caught, ray_tasks(ray_cluster.config(), runs, jobs=None, cpus=cpus):
            pass
        return str(caught.value)

    assert refusal(_runs(), 99) == "--cpus-per-run = 99, but no node of the cluster has more than 4 CPUs: give fewer"
    text = _SWEEP.replace("virtual", "real").replace("grid:", "zip: {pipeline.hosts: [ray]}\ngrid:")
    assert refusal(_runs(text)).startswith(
        "pipeline.hosts = ray asks for room on the cluster that --hosts ray has given"
    )
    runs = _runs(_SWEEP.replace("data.size: tiny", f"data.name: {tmp_path / 'gone.npz'}"))
    assert f"has no {tmp_path / 'gone.npz'}, which the sweep names" in refusal(runs)


def test_the_files_that_a_configuration_names(tmp_path: Path) -> None:
    (run,) = _runs("base: {data.name: my.npz, pipeline.partition: parts, model.name: gcn}\nseeds: 1\n")
    assert sorted(named_files(run.config)) == ["my.npz", "parts"]
    assert named_files(_runs()[0].config) == []
