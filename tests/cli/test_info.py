"""`dorylax info` and `dorylax datasets`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dorylax import __version__
from dorylax.environment import environment
from dorylax.graph import datasets


def test_info(dorylax, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path))
    monkeypatch.setenv("DORYLAX_DATA", str(tmp_path / "data"))
    facts = json.loads(dorylax("info", "--json").out)
    assert facts["dorylax"] == __version__
    assert facts["kernel"] in ("native", "segment")
    assert (facts["kernel_reason"] is None) == (facts["kernel"] == "native")
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 2**20
    assert facts["cache_directory"] == str(tmp_path)
    assert facts["DORYLAX_DATA"] == str(tmp_path / "data")
    assert {"jax", "flax", "numpy"} <= facts["packages"].keys()
    text = dorylax("info").out
    for word in ("kernel", "GiB", str(tmp_path), facts["packages"]["jax"]):
        assert word in text


def test_datasets(dorylax) -> None:
    listed = json.loads(dorylax("datasets", "--json").out)["datasets"]
    assert {entry["name"] for entry in listed} == set(datasets.names())
    assert next(entry for entry in listed if entry["name"] == "cora")["size"]["num_vertices"] == 2708
    text = dorylax("datasets").out
    for name in datasets.names():
        assert name in text


def test_info_says_what_a_run_directory_says(dorylax) -> None:
    facts, found = json.loads(dorylax("info", "--json").out), environment()
    assert {name: facts[name] for name in ("dorylax", "python", "platform", "packages")} == {
        name: found[name] for name in ("dorylax", "python", "platform", "packages")
    }
    assert (facts["kernel"], facts["instruction_set"]) == (found["kernel"]["name"], found["kernel"]["instruction_set"])


PIPELINE = ("--data", "communities", "--model", "gcn", "--set", "data.size=tiny", "--set", "pipeline.servers=2")
REMARK = r"by the time model, functions take \d\S* times the time of the servers alone and \d\S* times the price: "


def test_functions_that_do_not_pay_are_named_before_a_run(dorylax) -> None:
    virtual = (*PIPELINE, "--set", "pipeline.clock=virtual")
    answer = dorylax("info", *virtual)
    assert answer.code == 0
    assert re.fullmatch(REMARK + r"tensor.placement=auto puts 0 of \d stages on functions\n", answer.out)
    assert re.search(REMARK, dorylax("train", *virtual, "--epochs", "1", "--no-save").out)
    there = (
        "--set",
        "pipeline.hosts=processes",
        "--set",
        "tensor.backend=local",
        "--set",
        "tensor.placement=functions",
    )
    hosts = dorylax("info", *PIPELINE, *there)
    assert "all processes" in hosts.out
    assert re.search(REMARK + r"tensor.placement=functions puts [1-9] of", hosts.out)


def test_without_functions_nothing_is_said_of_them(dorylax) -> None:
    assert "functions" not in dorylax("info", *PIPELINE, "--set", "pipeline.hosts=processes").out


def test_the_memory_of_a_run(dorylax) -> None:
    words = ("info", "--data", "communities", "--model", "sage", "--set", "data.size=tiny")
    answer = dorylax(*words)
    assert answer.code == 0
    for part in ("sage on communities: 1,000 vertices", "evaluation", "fits: needs", "interpreter and libraries"):
        assert part in answer.out
    found = json.loads(dorylax(*words, "--json").out)
    assert found["fits"] is True
    assert found["data"]["num_edges"] == 10_000
    totals = {phase["name"]: sum(phase["parts"].values()) for phase in found["phases"]}
    assert found["peak"] == {"phase": max(totals, key=totals.__getitem__), "bytes": max(totals.values())}
    assert found["config"]["model"]["name"] == "sage"
