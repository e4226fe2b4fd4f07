"""`dorylax info` and `dorylax datasets`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dorylax import __version__
from dorylax.graph import datasets
from dorylax.run_directory import environment


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
