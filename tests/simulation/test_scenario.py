from __future__ import annotations

import dataclasses

import pytest

from dorylax.cost import INSTANCES, find_cluster
from dorylax.simulation.scenario import GraphSizes, Scenario, ScenarioError
from dorylax.simulation.settings import load

TEXT = """
name: mine
graph: {vertices: 1000, edges: 20000, features: 30, classes: 4, cut_ratio: 0.25}
model: {name: gcn, hidden_features: 8}
train: {epochs: 50}
pipeline: {servers: 3, intervals: 4, cluster: gcn-amazon}
"""


def test_a_file_says_what_runs_on_what(tmp_path):
    path = tmp_path / "any.yaml"
    path.write_text(TEXT)
    found = load(path)
    assert (found.name, found.backend) == ("mine", "functions")
    assert found.graph == GraphSizes(1000, 20_000, 30, 4, cut_ratio=0.25)
    assert (found.pipeline.servers, found.pipeline.clock, found.config.train.epochs) == (3, "virtual", 50)
    assert found.config.model.hidden_features == 8
    assert found.cluster == dataclasses.replace(find_cluster("gcn-amazon"), contention=True)


def test_without_a_graph_it_is_a_data_set_and_without_a_name_the_files(tmp_path):
    path = tmp_path / "cora-on-two.yaml"
    path.write_text("data.name: cora\npipeline.servers: 2\ncontention: false\n")
    found = load(path)
    assert (found.name, found.graph, found.config.data.name) == ("cora-on-two", None, "cora")
    assert found.cluster == find_cluster("default")


def test_backends_differ_in_servers_and_functions_alone():
    scenario = Scenario.of("any", {"pipeline.servers": 2})
    assert scenario.on("functions") is scenario
    cpu, gpu = scenario.on("cpu"), scenario.on("gpu")
    assert cpu.cluster == dataclasses.replace(scenario.cluster, functions=0)
    assert gpu.cluster == dataclasses.replace(cpu.cluster, graph_server=INSTANCES["p3.2xlarge"])
    with pytest.raises(ScenarioError, match="any is on cpu already"):
        cpu.on("gpu")


@pytest.mark.parametrize(
    "lines",
    [
        "cluster: {functions: 40, graph_server: c5n.4xlarge, function: {memory_mb: 512}}\n",
        "cluster: {functions: 40, graph_server: c5n.4xlarge, function.memory_mb: 512}\n",
        "cluster.functions: 40\ncluster.graph_server: c5n.4xlarge\ncluster.function.memory_mb: 512\n",
    ],
)
def test_a_file_changes_the_cluster_as_sweeps_do(lines, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT + lines)
    cluster = find_cluster("gcn-amazon")
    function = dataclasses.replace(cluster.function, memory_mb=512)
    server = INSTANCES["c5n.4xlarge"]
    expected = dataclasses.replace(cluster, functions=40, graph_server=server, function=function, contention=True)
    found = load(path)
    assert found.cluster == expected
    assert found.on("cpu").cluster == dataclasses.replace(expected, functions=0)
    assert "40 functions for each server at a time, 120 in all" in found.assumptions()
    assert "graph.cut_ratio = 0.25, so 17 % of the edges join servers" in found.assumptions()
