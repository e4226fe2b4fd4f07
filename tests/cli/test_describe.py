"""`dorylax describe` on the tiny built-in graph."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.datasets import load
from dorylax.machine import resident_bytes
from dorylax.program.passes import PASSES
from dorylax.trainer import from_config

TINY = ("--data", "communities", "--set", "data.size=tiny")


def test_table(dorylax) -> None:
    code, out, err = dorylax("describe", *TINY, "--model", "gcn", "--set", "model.dropout=0")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("GCN: ")
    assert lines[0].endswith("tasks on n = 1,000 vertices, e = 10,000 edges")
    assert lines[1] == f"passes: {', '.join(PASSES)}"
    assert lines[-1].endswith("graph operators: 1 forward, 1 backward")


def test_a_wide_model_takes_no_memory(dorylax) -> None:
    before = resident_bytes()
    code, out, _ = dorylax("describe", *TINY, "--model", "mlp", "--set", "model.hidden_features=30000000")
    assert (code, resident_bytes() < before + 2**30) == (0, True)
    assert "30,000,000" in out or "30000000" in out


def test_json(dorylax) -> None:
    code, out, _ = dorylax("describe", *TINY, "--model", "gat", "--json", "--passes", "none", "--set", "model.heads=2")
    assert code == 0
    content = json.loads(out)
    assert (content["schema"], content["version"], content["passes"]) == (1, 1, [])
    assert (content["num_vertices"], content["num_edges"]) == (1000, 10_000)
    softmax = next(task for task in content["tasks"] if task["operator"] == "edge_softmax")
    assert softmax["task"] == "AE"
    assert softmax["reads"][0]["shape"] == ["e", 2]


@pytest.mark.parametrize(
    ("given", "applied"),
    [("all", list(PASSES)), ("none", []), ("hoist", ["hoist"]), ("fuse, hoist", ["hoist", "fuse"])],
)
def test_passes(dorylax, given: str, applied: list[str]) -> None:
    out = dorylax("describe", *TINY, "--model", "mlp", "--json", "--passes", given).out
    assert json.loads(out)["passes"] == applied


def test_flowchart(dorylax, tmp_path: Path) -> None:
    file = tmp_path / "gcn.mmd"
    code, out, _ = dorylax("describe", *TINY, "--mermaid", str(file))
    assert code == 0
    assert out.startswith("GCN: ")
    assert "flowchart" in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["gcn.mmd"]
    dorylax("describe", *TINY, "--model", "mlp", "--mermaid", str(file))
    assert "MLP" in file.read_text()


def test_a_model_that_cannot_be_split(dorylax, monkeypatch: pytest.MonkeyPatch) -> None:
    class OverMaximum(nnx.Module):
        def __init__(self) -> None:
            self.kernel = nnx.Param(jnp.ones((16, 4)))

        def __call__(self, graph: object, x: jax.Array) -> jax.Array:
            return (x - x.max(axis=0)) @ self.kernel[...]

    monkeypatch.setattr(from_config, "build_model", lambda config, data: OverMaximum())
    code, out, err = dorylax("describe", *TINY)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "combines values of different vertices" in err
    assert "test_describe.py" in err


FURTHER = """\
import jax.numpy as jnp
from flax import nnx
from dorylax import ops


class Needs(nnx.Module):
    def __init__(self, features, classes, *, rngs):
        self.out = nnx.Linear(features + 2, classes, rngs=rngs)

    def __call__(self, graph, x, *, pos, weight):
        return self.out(jnp.concatenate([ops.gather(graph, x, edge_weight=weight), pos], axis=-1))
"""


def test_a_model_that_needs_further_inputs(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("communities", size="tiny")
    further = {"pos": np.zeros((1000, 2), np.float32)}, {"weight": np.ones(10_000, np.float32)}
    dataclasses.replace(data, vertex_inputs=further[0], edge_inputs=further[1]).save(tmp_path / "both")
    dataclasses.replace(data, vertex_inputs=further[0]).save(tmp_path / "pos")
    (tmp_path / "mine.py").write_text(FURTHER)
    monkeypatch.chdir(tmp_path)
    code, out, err = dorylax("describe", "--data", "both", "--model", "mine.py:Needs")
    assert (code, err) == (0, "")
    assert "weight" in out
    assert "graph operators: 1 forward" in out
    code, out, err = dorylax("describe", "--data", "pos", "--model", "mine.py:Needs")
    assert (code, out) == (2, "")
    assert "mine.py:Needs needs the input 'weight', and the data set has pos" in err


def test_config_file(dorylax, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("data:\n  name: communities\n  size: tiny\nmodel:\n  name: mlp\n")
    assert dorylax("describe", "--config", str(tmp_path / "run.yaml")).out.startswith("MLP: ")
