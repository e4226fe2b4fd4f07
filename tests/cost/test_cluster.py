from __future__ import annotations

import re
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path

import pytest

from dorylax.cost import (
    DEFAULT_CLUSTER,
    INSTANCES,
    Function,
    Gpu,
    Instance,
    Variation,
    clusters,
    find_cluster,
)
from dorylax.cost.cluster_file import changed
from dorylax.settings.errors import ConfigError

FULL = """
name: mine
graph_server:
  name: box
  threads: 2
  flops: 5e10
  memory_bandwidth: 4e9
  network_bandwidth: 1e8
  overhead: 1e-4
  price: 1
  variation: {sigma: 0.5, straggler_probability: 0.25, straggler_factor: 2}
  gpu: {memory: 1e10, flops: 1e13, memory_bandwidth: 1e11, pcie_bandwidth: 1e10, launch: 1e-5}
parameter_server: c7g.2xlarge
function:
  memory_mb: 3008
  price_per_gb_second: 0.0000133334
  variation: {sigma: 0.125}
functions: 12
latency: 1e-3
"""


def test_names():
    assert find_cluster("default") is DEFAULT_CLUSTER
    assert all(find_cluster(name) is cluster and cluster.name == name for name, cluster in clusters().items())
    assert all(instance.name == name for name, instance in INSTANCES.items())


def test_the_papers_clusters_are_its_table():
    """Dorylus, evaluation: graph servers, parameter servers, functions per graph server."""
    chosen = {
        name: (one.graph_server.name, one.parameter_server.name, one.functions, one.function.memory_mb)
        for name, one in clusters().items()
        if name.startswith(("gcn-", "gat-"))
    }
    assert chosen == {
        "gcn-reddit-small": ("c5.2xlarge", "c5.xlarge", 80, 192),
        "gcn-reddit-large": ("c5n.2xlarge", "c5.2xlarge", 40, 192),
        "gcn-amazon": ("c5n.2xlarge", "c5.xlarge", 90, 192),
        "gcn-friendster": ("c5n.4xlarge", "c5.2xlarge", 50, 192),
        "gat-reddit-small": ("c5.2xlarge", "c5.xlarge", 40, 192),
        "gat-amazon": ("c5n.2xlarge", "c5.xlarge", 100, 192),
    }
    assert clusters()["gcn-amazon"].function.virtual_cpus == pytest.approx(0.11, abs=0.005)


def test_the_table_in_the_documentation_is_the_default_cluster():
    page = (Path(__file__).parent.parent.parent / "docs" / "log" / "2026-11.md").read_text()
    table = page.split("## The default cluster\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \|", table, re.MULTILINE)
    texts = {key: text.strip() for key, text in rows if key.endswith((".name", "prices_as_of", ".gpu"))}
    assert texts == {key: attrgetter(key)(DEFAULT_CLUSTER) or "null" for key in texts}
    assert {"graph_server.name", "graph_server.gpu", "parameter_server.name", "prices_as_of"} == set(texts)
    numbers = {key: float(text) for key, text in rows if key not in texts}
    assert numbers == {key: attrgetter(key)(DEFAULT_CLUSTER) for key in numbers}
    server, function, variation = (
        {field.name for field in fields(part)} - {"variation"} for part in (Instance, Function, Variation)
    )
    varied = {f"{part}.variation.{name}" for part in ("graph_server", "function") for name in variation}
    expected = {f"graph_server.{name}" for name in server} | {f"function.{name}" for name in function} | varied
    assert expected | {"functions", "latency"} <= {key for key, _ in rows}


def test_a_file_says_it_all(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(FULL)
    cluster = find_cluster(path)
    assert cluster == find_cluster(str(path))
    server = cluster.graph_server
    assert (server.name, server.threads, server.flops, server.price) == ("box", 2, 5e10, 1.0)
    assert (server.variation.sigma, server.variation.straggler_factor) == (0.5, 2.0)
    assert server.gpu == Gpu(1e10, 1e13, 1e11, 1e10, 1e-5)
    assert (server.threads_per_core, server.total_memory_bandwidth) == (1, 0.0)  # not those of the default's server
    assert cluster.parameter_server is INSTANCES["c7g.2xlarge"]
    function = DEFAULT_CLUSTER.function
    assert cluster.function == replace(
        function, memory_mb=3008, price_per_gb_second=0.0000133334, variation=replace(function.variation, sigma=0.125)
    )
    assert (cluster.name, cluster.functions, cluster.latency) == ("mine", 12, 1e-3)


def test_what_a_file_leaves_out_is_the_default_clusters(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: cheap\ngraph_server: {name: c5.2xlarge, price: 0.1}\n")
    server = replace(INSTANCES["c5.2xlarge"], price=0.1)
    assert find_cluster(path) == replace(DEFAULT_CLUSTER, name="cheap", graph_server=server)


def test_unknown_clusters_are_refused():
    with pytest.raises(ConfigError, match=r"unknown cluster 'defualt': did you mean default\? \(or give the path"):
        find_cluster("defualt")
    with pytest.raises(ConfigError, match="unknown cluster 'zzz': choose from default, small, gcn-reddit-small, "):
        find_cluster("zzz")
    for missing in ("nowhere.yaml", Path("folder") / "nowhere"):
        with pytest.raises(ConfigError, match=r"cannot read .*nowhere.*: No such file or directory"):
            find_cluster(missing)


def test_a_cluster_with_other_values():
    base = clusters()["gcn-amazon"]
    found = changed(base, {"graph_server": "r5.2xlarge", "functions": 7, "function.variation.sigma": 0.5, "latency": 1})
    assert found.graph_server == INSTANCES["r5.2xlarge"]
    assert (found.functions, found.latency, found.function.variation.sigma) == (7, 1.0, 0.5)
    assert found.function.memory_mb == base.function.memory_mb
    assert found.parameter_server == base.parameter_server
    cheap = changed(base, {"parameter_server.price": 0, "graph_server.name": "c5.xlarge", "graph_server.threads": 3})
    assert cheap.parameter_server == replace(base.parameter_server, price=0.0)
    assert cheap.graph_server == replace(INSTANCES["c5.xlarge"], threads=3)
    assert changed(base, {}) == base
    more = changed(base, {"graph_server.name": "p2.xlarge", "graph_server.gpu.memory": 32e9})
    known = INSTANCES["p2.xlarge"]
    assert more.graph_server == replace(known, gpu=replace(known.gpu, memory=32e9))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"function.memory": 3}, "function.memory is not a key of a cluster: .*memory_mb"),
        ({"functions": "many"}, "functions must be a whole number ≥ 0, got 'many'"),
        ({"function.memory_mb": 3}, "function.memory_mb must be in 128 "),
        ({"graph_server": "c5", "graph_server.price": 1}, "graph_server.price is given with what it is a part of"),
        ({"graph_server.price": 1, "graph_server": "c5"}, "graph_server is given with one of its parts"),
        ({"graph_server": "c55"}, "graph_server must be c5.xlarge, "),
    ],
)
def test_a_change_that_cannot_be(changes, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        changed(clusters()["gcn-amazon"], changes)
