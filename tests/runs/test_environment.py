from __future__ import annotations

import json
import os

from dorylax.store.run_directory import RunDirectory

CONFIG = {"train": {"epochs": 3}}


def test_environment(tmp_path):
    RunDirectory.create(tmp_path, CONFIG)
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["schema"] == 1
    assert environment["cpu_count"] == os.cpu_count()
    assert environment["kernel"]["name"] in {"native", "segment"}
    assert environment["packages"]["jax"].startswith("0.")
    assert environment["directory"] == str(tmp_path)
    assert environment["started_in"] == os.getcwd()
    assert set(environment) == {
        *("schema", "dorylax", "kernel", "python", "platform", "machine", "cpu_count", "jax_backend", "packages"),
        *("directory", "started_in", "started", "digest"),
    }
