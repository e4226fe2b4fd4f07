from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.calibrations import measured

from dorylax.calibration.description import cluster_of, to_text
from dorylax.cost import DEFAULT_CLUSTER, find_cluster
from dorylax.pipeline.config import PipelineConfig


def test_the_file_is_a_cluster(tmp_path: Path) -> None:
    found = measured()
    path = tmp_path / "mine.yaml"
    path.write_text(to_text(cluster_of(found, "mine", 0.125)))
    cluster = find_cluster(path)
    assert cluster.measured == found
    server = cluster.graph_server
    assert server == cluster.parameter_server
    assert (server.threads, server.price, cluster.prices_as_of) == (2, 0.125, "2026-11")
    # Two threads do 20,000 operations in 0.5 µs and 60,000 in as long: 80,000 in 1 µs.
    assert server.flops == pytest.approx(80e9 / 2)
    # Of those beyond the cache the one that is nearest to 128: by one thread, and by both together.
    assert (server.memory_bandwidth, server.total_memory_bandwidth) == (5e9, 6e9)
    assert (server.threads_per_core, cluster.contention) == (1, True)
    assert server.lone_thread == 1  # one does 30 in the time in which each of two does 40
    assert (server.overhead, server.network_bandwidth, cluster.latency) == (pytest.approx(3e-4), 2e9, 5e-5)
    assert cluster.function == DEFAULT_CLUSTER.function
    assert PipelineConfig(clock="virtual", cluster=str(path)).cluster == str(path)


def test_names_are_texts_whatever_they_look_like(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(to_text(cluster_of(replace(measured(), processor='a "b" # c'), "1e3", 0.0)))
    cluster = find_cluster(path)
    assert cluster.name == "1e3"
    assert cluster.measured is not None
    assert cluster.measured.processor == 'a "b" # c'


def test_each_list_says_its_unit() -> None:
    text = to_text(cluster_of(measured(), "mine", 0.0))
    assert "  gather:  # bytes/s; " in text
    assert "  task:  # seconds; " in text


def test_a_lone_hyper_thread_is_faster_than_one_of_two() -> None:
    """Alone it multiplies at 90, beside another at 40 each (above), and reads 5: what it reads beside others is less."""
    found = measured(threads_per_core=2)
    fast = [
        replace(one, low=90e9, median=90e9, high=90e9) if one.kind == "product" and one.point["threads"] == 1 else one
        for one in found.results
    ]
    server = cluster_of(replace(found, results=tuple(fast)), "mine", 0.0)["graph_server"]
    assert (server["threads_per_core"], server["lone_thread"]) == (2, pytest.approx(90 / 40))
    assert server["memory_bandwidth"] == pytest.approx(5e9 / (90 / 40))
    assert server["total_memory_bandwidth"] == 6e9


def test_where_one_thread_was_not_measured_it_is_as_fast_as_others() -> None:
    found = measured()
    results = tuple(one for one in found.results if one.kind != "product" or one.point["threads"] != 1)
    assert cluster_of(replace(found, results=results), "mine", 0.0)["graph_server"]["lone_thread"] == 1
