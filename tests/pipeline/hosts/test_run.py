"""Runs whose hosts are processes: the same numbers as on one machine, the same answers between epochs, and nothing left."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.in_hosts import fail_at, first_in_hosts, refuse
from support.leftovers import children, sockets
from support.pipelines import (
    farthest,
    in_dtype,
    make_model,
    messy_data,
    optimizer,
    running,
    train_pipeline,
    train_single,
)

from dorylax.cli import main
from dorylax.config import RunConfig
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.launcher import HostError, OnEnd
from dorylax.pipeline.hosts.processes import Processes, ProcessLauncher
from dorylax.pipeline.hosts.run import HostsRun
from dorylax.pipeline.hosts.spec import HostSpec
from dorylax.pipeline.run import PipelineRun
from dorylax.pipeline.timeline import Span
from dorylax.program.model.flax_nnx import take_apart
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError
from dorylax.store.arrays import read_part
from dorylax.store.servers import GraphServerMetrics, read
from dorylax.trainer import Trainer, prepare_data
from dorylax.trainer.step.objective import CLASSES

pytestmark = pytest.mark.timeout(180)

DATA = messy_data(60, 240)
EPOCHS = 4
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of hosts
    before = children(), sockets()
    yield
    jax.config.update("jax_enable_x64", False)
    assert (children(), sockets()) == before
    assert not list(tmp_path.glob("dorylax-*"))


def train(run: PipelineRun, epochs: int) -> list[float]:
    return [run.run_epoch().loss for _ in range(epochs)]


def config(**options: Any) -> PipelineConfig:
    return PipelineConfig(**{"servers": 2, "intervals": 2, "hosts": "processes"} | options)


@pytest.mark.parametrize(
    ("model", "dtype", "options"),
    [
        ("gcn", "float64", {"servers": 4, "tensor": TensorConfig(placement="functions", backend="local", workers=1)}),
        ("gat", "float32", {"parameter_servers": 2}),
        ("sage", "float64", {"mode": "no-pipe"}),
        ("drifting", "float64", {"parameter_servers": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_synchronous_training_is_that_of_one_machine(model: str, dtype: str, options: dict[str, Any]) -> None:
    jax.config.update("jax_enable_x64", dtype == "float64")
    found = train_pipeline(model, DATA, EPOCHS, config(**options), dtype=dtype)
    assert farthest(found, train_single(model, DATA, EPOCHS, dtype=dtype)) <= TOLERANCE[dtype]


def test_what_may_be_asked_between_epochs(tmp_path: Path) -> None:
    spans: list[Span] = []
    options = config(mode="async", parameter_servers=2)
    with running("gcn", DATA, options, trace=spans.append) as run:
        assert isinstance(run, HostsRun)
        run.barrier(2)
        assert [run.run_epoch().epoch for _ in range(2)] == [0, 1]
        saved = run.save()  # held by the barrier
        assert saved is not None
        assert callable(saved.parts)
        parts = saved.parts(str(tmp_path))
        counters = run.counters()
        newest = run.run_epoch()
        assert run.drain() in (3, 4, 5)  # they do not run away from whoever asks
        while (drained := run.save()) is None:
            run.run_epoch()
        assert drained.record["version"] >= 3
        first = run.synchronise()
        while run.run_epoch().epoch < first:
            pass
    assert saved.record["version"] == 2
    assert {name.partition("/")[0] for name in saved.arrays} == {"parameter servers"}
    assert [*parts] == ["server 0", "server 1"]
    for name, part in parts.items():
        assert {key.partition("/")[0] for key in read_part(part)} == {name}
    assert newest.epoch == 2
    assert counters["graph_tasks"] > 0
    assert counters["messages"] > 0
    tasks = {(span.resource, span.server) for span in spans if span.epoch == 1}
    assert tasks >= {("graph", 0), ("graph", 1), ("tensor", 0), ("tensor", 1)}


@pytest.mark.parametrize(("model", "hosts"), [("gat", None), ("drifting", 2)])
def test_hosts_evaluate_a_version_where_their_rows_lie(model: str, hosts: int | None) -> None:
    """While intervals of later epochs train: exactly the version that they are given, in the order of the data's rows."""
    jax.config.update("jax_enable_x64", True)
    given = DATA.reorder(np.random.default_rng(2).permutation(60))  # whose rows are not its vertex ids
    data = in_dtype(given, "float64")
    masks = np.stack([data.train_mask, data.val_mask, data.test_mask])
    parts = take_apart(make_model(model, DATA, "float64"))
    forward = jax.jit(
        lambda params, state: parts.structure.apply_evaluate(
            params, parts.streams, state, data.graph, jnp.asarray(data.features)
        )
    )
    with running(model, given, config(mode="async", servers=3, num_hosts=hosts), dtype="float64") as run:
        assert isinstance(run, HostsRun)
        for _ in range(3):
            epoch = run.run_epoch()
            wanted = np.asarray(forward(epoch.params, epoch.state))
            found = run.evaluate(epoch.params, epoch.state)
            assert found.sums == pytest.approx(np.asarray(jax.jit(CLASSES.sums)(wanted, data.labels, masks)), abs=0)
            assert not found.nan
            (outputs,) = run.outputs(epoch.params, epoch.state)
            np.testing.assert_allclose(outputs, wanted, rtol=1e-9, atol=1e-12)
        broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), epoch.params)
        assert run.evaluate(broken, epoch.state).nan


def test_what_goes_wrong_in_a_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dorylax.pipeline.shard_writing.own_rows", lambda *args, **options: {})  # no features
    with pytest.raises(HostError, match=r"graph server \d: KeyError"), running("gcn", DATA, config()):
        pass


def test_what_goes_wrong_in_an_interval_is_one_line_that_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    with first_in_hosts(fail_at, 2, 1), running("gcn", DATA, config()) as run:
        run.run_epoch()
        with pytest.raises(HostError) as caught:
            train(run, 2)
    assert str(caught.value) == "graph server 1, interval 2, epoch 1, GA: ArithmeticError: no such row"
    (note,) = caught.value.__notes__
    assert "in fails" in note  # the frames there
    assert "Traceback" not in capfd.readouterr().err


def test_the_command_ends_with_that_line_and_what_is_not_possible_is_told_from_what_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = ["data.size=tiny", "pipeline.servers=2", "pipeline.hosts=processes"]
    command = ["train", "--data", "communities", "--model", "gcn", "--epochs", "2", "--out", str(tmp_path / "out")]
    command += [word for setting in settings for word in ("--set", setting)]
    with first_in_hosts(fail_at, 0, 1):
        assert main(command) == 1
    *_, line = capfd.readouterr().err.splitlines()
    assert line == "error: graph server 0, interval 0, epoch 1, GA: ArithmeticError: no such row"
    with first_in_hosts(refuse):
        assert main([*command, "--resume", "--traceback"]) == 2
    errors = capfd.readouterr().err
    assert "in refuses" in errors
    server, _, text = errors.splitlines()[-1].partition(": tensor.host = ")
    assert server in ("error: graph server 0", "error: graph server 1")
    assert text == "192.0.2.1 must be an address of this machine"


def test_hosts_log_as_much_as_the_driver_by_their_names(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for level, logs in ((logging.INFO, False), (logging.DEBUG, True)):
        caplog.set_level(level, "dorylax")
        with running("gcn", DATA, config()) as run:
            run.run_epoch()
        begins = (
            "graph server 1: DEBUG:dorylax.pipeline.host:graph server 1, interval 3, epoch 0, with weights of version 0"
        )
        assert (begins in capfd.readouterr().err.splitlines()) == logs


@pytest.mark.core  # real host processes
def test_a_trainer_trains_by_hosts(tmp_path: Path) -> None:
    """With evaluations, checkpoints, a trace and a summary; what they began, this process ends, and the other way round."""

    def trained(name: str, epochs: int, hosts: str) -> Any:
        return Trainer(
            make_model("gcn", DATA),
            DATA,
            optimizer=optimizer(),
            epochs=epochs,
            checkpoint_every=1,
            pipeline=config(hosts=hosts),
            run_directory=tmp_path / name,
            resume=True,
        ).fit()

    results = []
    for name, hosts in (("one", ("processes", "inline")), ("other", ("inline", "processes"))):
        trained(name, 2, hosts[0])
        results.append(trained(name, 4, hosts[1]))
        assert {path.name for path in (tmp_path / name).iterdir()} >= {"summary.json", "trace.json", "metrics.jsonl"}
        metrics = read(tmp_path / name / "servers.jsonl")
        assert [(line.epoch, line.server) for line in metrics] == [
            (epoch, server) for epoch in range(4) for server in (0, 1, 0)
        ]
        for line in metrics:
            if isinstance(line, GraphServerMetrics):
                assert line.graph_tasks == metrics[line.server].graph_tasks  # type: ignore[union-attr]
                assert line.calls == {"answered": line.tensor_tasks}
                assert line.rows_by_lag.keys() == (set() if line.epoch == 0 else {"0"})
                assert line.messages == metrics[line.server].messages > 0  # type: ignore[union-attr]
            else:
                assert (line.pulls, line.updates, line.stashes_max) == (4, 1, 4)
                assert line.bytes_received == metrics[2].bytes_received > 0  # type: ignore[union-attr]
    one, other = results
    assert [record.loss for record in one.history] == pytest.approx([record.loss for record in other.history], rel=1e-5)


def test_spans_of_all_hosts_have_the_clock_of_the_run() -> None:
    """Each epoch lies between when it was asked for and when it was finished; nothing comes before its cause."""
    spans: list[Span] = []
    asked: list[tuple[float, float]] = []
    with running("gcn", DATA, config(mode="no-pipe", servers=3, parameter_servers=2), trace=spans.append) as run:
        assert isinstance(run, HostsRun)
        run.barrier(3)
        for _ in range(3):
            begin = run.seconds
            run.run_epoch()
            asked.append((begin, run.seconds))
        saved = run.save()
        error = 2 * max(clock.error(run._clock.now()) for clock in run._hosts.clocks.values())
    assert error < 1
    assert min(span.start for span in spans) > -error  # what is compiled first is on no clock
    steps = {span.version: span for span in spans if span.name == "WU" and span.server == 0}
    for epoch, (begin, end) in enumerate(asked):
        mine = [span for span in spans if span.epoch == epoch]
        assert {(span.resource, span.server) for span in mine} >= {("graph", server) for server in range(3)}
        assert all(begin - error <= span.start <= span.end <= end + error for span in mine)
        finished = [span for span in mine if span.name == "finish"]
        assert len(finished) == 6
        assert max(span.end for span in finished) <= steps[epoch + 1].start + error
        later = [span.start for span in spans if span.epoch == epoch + 1]
        assert all(steps[epoch + 1].end - error <= start for start in later)
    assert saved is not None
    spans.clear()
    with running("gcn", DATA, config(mode="no-pipe", servers=3), epoch=3, saved=saved, trace=spans.append) as run:
        run.run_epoch()
    assert {span.epoch for span in spans} == {3, -1}  # an optimizer step, but nothing that is computed once
    assert {span.name for span in spans if span.epoch < 0} == {"WU"}
    assert min(span.start for span in spans) >= saved.record["clock"] - error


def test_where_hosts_have_shards_the_driver_loads_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"data.name": "communities", "data.size": "tiny", "model.name": "gcn", "train.epochs": 2}
    values |= {"pipeline.servers": 2, "pipeline.intervals": 2, "pipeline.partition": str(tmp_path / "part")}
    arguments = ["--data", "communities", "--set", "data.size=tiny", "--servers", "2", "--intervals", "2"]
    assert main(["partition", *arguments, "--out", str(tmp_path / "part")]) == 0
    here = Trainer.from_config(RunConfig.resolve(values), run_directory=tmp_path / "run")
    result = here.fit()

    data = prepare_data(RunConfig.resolve(values).data)
    monkeypatch.setattr("dorylax.trainer.from_config.prepare_data", None)
    values |= {"pipeline.hosts": "processes", "pipeline.num_hosts": 1, "train.epochs": 3}
    trainer = Trainer.from_config(RunConfig.resolve(values), run_directory=tmp_path / "run", resume=True)
    np.testing.assert_allclose(trainer.predict("last"), here.predict("last"), rtol=1e-5, atol=1e-6)
    started: list[list[str]] = []
    launch = ProcessLauncher.launch

    async def noted(launcher: ProcessLauncher, specs: Sequence[HostSpec], on_end: OnEnd) -> Processes:
        started.append([spec.name for spec in specs])
        return await launch(launcher, specs, on_end)

    more = {"pipeline.num_hosts": 5, "pipeline.parameter_servers": 3, "tensor.backend": "local"}
    with monkeypatch.context() as patch:
        patch.setattr(ProcessLauncher, "launch", noted)
        other = Trainer.from_config(RunConfig.resolve(values | more), run_directory=tmp_path / "run", resume=True)
        np.testing.assert_allclose(other.predict("last"), here.predict("last"), rtol=1e-5, atol=1e-6)
    assert started == [["graph server 0, parameter server 0", "graph server 1"]]
    found = trainer.fit()
    assert found.first_epoch == 2
    assert [record.val_accuracy for record in found.history[:2]] == [record.val_accuracy for record in result.history]
    assert found.history[-1].test_accuracy is not None
    graph, x = data.graph, data.features  # the driver is given them now, as any others
    np.testing.assert_allclose(found.predict(graph, x), trainer.predict(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="here in shards alone"):
        trainer.intermediates()
    for wrong, key in (({"pipeline.servers": 1}, "servers"), ({"data.split_seed": 1}, "partition")):
        with pytest.raises(ConfigError, match=rf"^pipeline\.{key}"):
            Trainer.from_config(RunConfig.resolve(values | wrong)).fit()


def test_a_driver_may_be_slow_after_the_switch_to_synchronous_epochs() -> None:
    """Hosts wait before each of them until the driver comes to it; they do not run away."""
    config = PipelineConfig(servers=2, intervals=2, hosts="processes", mode="async", staleness=2)
    with running("gcn", DATA, config) as run:
        run.run_epoch()
        first = run.synchronise()
        for epoch in range(1, first + 2):
            time.sleep(0.5)
            assert run.run_epoch().epoch == epoch
