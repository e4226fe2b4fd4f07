"""Runs on the real clock as simulations on one machine have them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.calibrations import measured

from dorylax.calibration.description import cluster_of, to_text
from dorylax.calibration.reference import REFERENCES
from dorylax.cost import DEFAULT_CLUSTER, Cluster, find_cluster
from dorylax.pipeline.config import PipelineConfig
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError
from dorylax.simulation.here import here, on_one_machine
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import ScenarioError


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Two cores."""
    path = tmp_path_factory.mktemp("machine") / "mine.yaml"
    path.write_text(to_text(cluster_of(measured(), "mine", 0.0)))
    return find_cluster(path)


def test_threads_of_this_process(machine: Cluster) -> None:
    config, cluster = on_one_machine(PipelineConfig(servers=2, intervals=3), machine)
    assert (config.clock, config.graph_threads, config.tensor.slots) == ("virtual", 1, 1)
    assert (cluster.one_machine.tensor_threads, cluster.one_machine.workers) == (2, 0)
    assert not cluster.ships
    # Inside a tensor task and around it.
    assert cluster.function.overhead == pytest.approx(3e-4 + 2e-4)


def test_workers_behind_a_link(machine: Cluster) -> None:
    tensor = TensorConfig(backend="local", workers=4, slots=3, latency=0.25, bandwidth=1e6)
    config, cluster = on_one_machine(PipelineConfig(tensor=tensor), machine)
    shared = cluster.one_machine
    assert (shared.tensor_threads, shared.workers, shared.request_seconds, shared.link_bandwidth) == (1, 4, 0.25, 1e6)
    assert cluster.ships
    assert (cluster.functions, config.tensor.slots, config.tensor.backend) == (3, 3, "inline")
    assert cluster.function.overhead == pytest.approx(2e-3 + 2e-4)
    assert cluster.function.lone_bandwidth == 1e9


def test_processes_have_their_share_of_the_cores(machine: Cluster) -> None:
    _, cluster = on_one_machine(PipelineConfig(servers=2, hosts="processes"), machine)
    assert (cluster.one_machine.processes, cluster.one_machine.tensor_threads) == (True, 1)


def test_only_a_machine_that_was_measured() -> None:
    with pytest.raises(ConfigError, match="default is no machine that was measured"):
        on_one_machine(PipelineConfig(), DEFAULT_CLUSTER)


@pytest.mark.parametrize("backend", ["ray", "emulator", "aws"])
def test_what_is_elsewhere_shares_nothing(machine: Cluster, backend: str) -> None:
    options = {"host": "10.0.0.1"} if backend == "aws" else {}
    with pytest.raises(ConfigError, match=f"must be inline or local on one machine, got {backend}"):
        on_one_machine(PipelineConfig(tensor=TensorConfig(backend=backend, **options)), machine)


SETTINGS = {"data.name": "communities", "data.size": "tiny", "model.name": "gcn", "train.epochs": 4}


@pytest.mark.parametrize(
    "given",
    [
        {"pipeline.intervals": 2},
        {"pipeline.servers": 2, "pipeline.hosts": "processes"},
        {
            "pipeline.mode": "async",
            "tensor.backend": "local",
            "tensor.workers": 2,
            "tensor.latency": 0.01,
            "tensor.placement": "functions",
        },
    ],
    ids=str,
)
def test_a_run_is_simulated(machine: Cluster, given: dict[str, object]) -> None:
    settings = SETTINGS | given
    found = simulate(here("run", settings, machine))
    twice = [
        replace(one, low=2 * one.low, median=2 * one.median, high=2 * one.high) if one.kind == "reference" else one
        for one in machine.measured.results
    ]
    slower = replace(machine, measured=replace(machine.measured, results=tuple(twice)))
    assert 0 < found.epoch < simulate(here("run", settings, slower)).epoch
    assert found.calls[-1].requests > 0


def test_each_request_waits_for_the_link(machine: Cluster) -> None:
    """One task at a time: an epoch takes a second longer for each request where each takes one."""
    given = {**SETTINGS, "pipeline.mode": "no-pipe", "pipeline.intervals": 1, "tensor.backend": "local"}
    given["tensor.placement"] = "functions"
    epochs = [simulate(here("run", {**given, "tensor.latency": seconds}, machine)).epoch for seconds in (0.0, 1.0, 2.0)]
    requests = epochs[1] - epochs[0]
    assert requests == pytest.approx(round(requests), rel=0.02)
    assert epochs[2] - epochs[1] == pytest.approx(requests, rel=0.02)


def test_a_run_without_a_pipeline_has_nothing_to_share(machine: Cluster) -> None:
    with pytest.raises(ScenarioError, match="run has no pipeline"):
        here("run", SETTINGS, machine)


@pytest.mark.parametrize("name", REFERENCES)
def test_tasks_of_the_reference_take_what_was_measured(machine: Cluster, name: str) -> None:
    """On average; what is around tasks comes on top, which spans of the real clock do not have. Messages have nothing."""
    reference = REFERENCES[name]
    settings = {
        "data.name": "communities",
        "data.size": reference.of.size,
        "model.name": "gcn",
        "model.hidden_features": reference.of.hidden,
        "model.dropout": 0.5,
        **{f"pipeline.{key}": value for key, value in reference.of.settings.items()},
        **{f"tensor.{key}": value for key, value in reference.of.tensor.to_dict().items()},
    }
    found = [task for task in simulate(here("run", settings, machine)).tasks if task.resource == reference.resource]
    around = 0.0 if name == "message" else machine.measured.at("task", part="around").median
    mean = sum(task.seconds for task in found) / sum(task.number for task in found)
    assert mean - around == pytest.approx(machine.measured.at("reference", tasks=name).median, rel=0.05)
