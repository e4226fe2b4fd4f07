"""An exported model, where dorylax is and where it is not."""

from __future__ import annotations

import json
import runpy
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from support import bare

from dorylax import layers, ops
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.graph.graph import Graph
from dorylax.inference import loader
from dorylax.runs.result import TrainResult
from dorylax.store import durable
from dorylax.trainer import Trainer

# A checkout without the built kernel says so once; that is not what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:dorylax runs without its native:RuntimeWarning")

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
SIZES = [(60, 300), (9, 40), (7, 0), (1, 0), (1, 3)]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load("communities", size="tiny")


def trained(data: Dataset, model: Any, **options: Any) -> TrainResult:
    return Trainer(model, data, optimizer=optax.adam(0.02), epochs=3, **options).fit()


def inputs(vertices: int, edges: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(vertices + edges)
    return rng.integers(0, vertices, (2, edges)), rng.normal(size=(vertices, width)).astype(np.float32)


@pytest.fixture(scope="module")
def exported(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[TrainResult, Path]]:
    folder = tmp_path_factory.mktemp("artefacts")
    found = {}
    for name in ("GCN", "GraphSAGE", "GAT", "GIN"):
        model = getattr(layers, name)(data.num_features, 8, data.num_classes, norm="batch", rngs=nnx.Rngs(0))
        found[name] = (trained(data, model), folder / f"{name}.zip")
        found[name][0].export(found[name][1])
    return found


USE = """
import importlib.util
import numpy as np
assert not any(importlib.util.find_spec(name) for name in ("dorylax", "flax", "optax", "scipy", "flatbuffers"))
given = np.load("in.npz")
for name in sys.argv:
    model = runpy.run_path(name)["Model"]()
    for k in range(int(given["sizes"])):
        np.save(f"{model.meta['model']}-{k}.npy", model(given[f"edges{k}"], given[f"x{k}"]))
"""


def test_it_runs_where_there_is_only_jax(
    exported: dict[str, tuple[TrainResult, Path]], data: Dataset, tmp_path: Path
) -> None:
    """In Python on graphs of several sizes, and as a program; neither dorylax nor Flax, SciPy or flatbuffers is there."""
    graphs = [inputs(*size, data.num_features) for size in SIZES]
    arrays = {f"edges{k}": edges for k, (edges, _) in enumerate(graphs)} | {
        f"x{k}": x for k, (_, x) in enumerate(graphs)
    }
    np.savez(tmp_path / "in.npz", sizes=len(graphs), **arrays)
    done = bare.run(tmp_path, *(str(path) for _, path in exported.values()), code=USE)
    assert done.returncode == 0, done.stderr
    for name, (result, _) in exported.items():
        for k, (edges, x) in enumerate(graphs):
            want = result.predict(Graph.from_edge_index(edges, len(x)), x)
            np.testing.assert_allclose(np.load(tmp_path / f"{name}-{k}.npy"), want, **TOLERANCE)
    result, path = exported["GAT"]
    edges, x = graphs[0]
    np.savez(tmp_path / "one.npz", edge_index=edges, x=x)
    done = bare.run(tmp_path, str(path), "one.npz", "out.npy")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy"), result.predict(Graph.from_edge_index(edges, len(x)), x), **TOLERANCE
    )
    np.savez(tmp_path / "wrong.npz", edge_index=edges, features=x)
    done = bare.run(tmp_path, str(path), "wrong.npz", "out.npy")
    assert (done.returncode, done.stderr) == (1, "error: wrong.npz has no x, but edge_index, features\n")


def test_no_kernel_of_ours_is_called(exported: dict[str, tuple[TrainResult, Path]]) -> None:
    for _, path in exported.values():
        assert b"dorylax_" not in functions_of(path)


def functions_of(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return b"".join(archive.read(name) for name in loader.FUNCTIONS.values())


def test_nor_where_functions_were_traced_for_it_before(data: Dataset, tmp_path: Path) -> None:
    inner = jax.jit(ops.gather)

    def model(params: Any, graph: Any, x: Any) -> Any:
        return inner(graph, x @ params)

    result = trained(data, model, params=np.ones((data.num_features, 4), np.float32))
    result.predict(data.graph, data.features)
    result.export(tmp_path / "model.zip")
    assert b"dorylax_" not in functions_of(tmp_path / "model.zip")


def test_values_of_edges_are_in_the_user_s_order(data: Dataset, tmp_path: Path) -> None:
    def model(params: Any, graph: Any, x: Any, *, weight: Any, pos: Any) -> Any:
        h = ops.gather(graph, x @ params, weight)
        return {"rows": h + pos, "edges": ops.scatter_src(graph, h)[:, 0], "classes": h.argmax(axis=1)}

    weight = np.random.default_rng(0).random(data.graph.num_edges).astype(np.float32)
    further = {"vertex_inputs": {"pos": data.features[:, :4]}, "edge_inputs": {"weight": weight}}
    with_inputs = Dataset("further", data.graph, data.features, data.labels, data.num_classes, **further)  # type: ignore[arg-type]
    params = np.random.default_rng(1).normal(size=(data.num_features, 4)).astype(np.float32)
    result = trained(with_inputs, model, params=params, loss=lambda output, labels: (output["rows"] ** 2).mean(axis=1))
    result.export(tmp_path / "model.zip")
    found = loader.Model(tmp_path / "model.zip")
    for vertices, edges in ((20, 90), (5, 0)):
        ends, x = inputs(vertices, edges, data.num_features)
        given = {"pos": x[:, :4], "weight": np.arange(edges, dtype=np.float32)}
        got, want = found(ends, x, **given), result.predict(Graph.from_edge_index(ends, vertices), x, **given)
        assert sorted(got) == ["classes", "edges", "rows"]
        assert (got["edges"].shape, got["classes"].dtype) == ((edges,), np.int32)
        for name in ("edges", "rows"):
            np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-4)
    with pytest.raises(ValueError, match="further inputs pos, weight, got none"):
        found(ends, x)
    with pytest.raises(ValueError, match="weight must have one row per edge, 90, got 5"):
        found(*inputs(20, 90, data.num_features), pos=np.ones((20, 4)), weight=np.ones(5))


def test_linen_modules_and_half_precision(data: Dataset, tmp_path: Path) -> None:
    class Mean(linen.Module):
        @linen.compact
        def __call__(self, graph: Any, x: Any, train: bool) -> Any:
            x = linen.Dropout(0.5, deterministic=not train)(x)
            return linen.Dense(4, param_dtype=jnp.bfloat16)(ops.gather(graph, x, reduce="mean"))

    result = trained(data, Mean())
    result.export(tmp_path / "model.zip")
    edges, x = inputs(20, 90, data.num_features)
    want = result.predict(Graph.from_edge_index(edges, 20), x)
    np.testing.assert_allclose(loader.Model(tmp_path / "model.zip")(edges, x), want, rtol=1e-2, atol=1e-2)


def test_what_depends_on_sizes_is_refused_in_a_line(data: Dataset, tmp_path: Path) -> None:
    def sizes(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, x @ params) + jnp.zeros((1000, 4))

    result = trained(data, sizes, params=np.ones((data.num_features, 4), np.float32), optimize=False)
    with pytest.raises(ValueError, match="cannot be exported") as caught:
        result.export(tmp_path / "model.zip")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_do_not_fit_are_a_line(exported: dict[str, tuple[TrainResult, Path]], data: Dataset) -> None:
    model = loader.Model(exported["GCN"][1])
    edges, x = inputs(9, 20, data.num_features)
    for given, message in (
        ((edges, x[:, :3]), r"x must be \[V, 16\], got \[9, 3\]"),
        ((edges + 5, x), r"edge_index holds \d+, and x has rows for the vertices 0 … 8"),
        ((edges - 9, x), r"edge_index holds -\d"),
        ((edges.T, x), r"edge_index must be integers \[2, E\], got int64 \[20, 2\]"),
        ((edges * 1.0, x), "got float64"),
        ((edges, x * np.nan), "x holds NaN or infinity"),
        ((edges, x.astype(str)), "x must be float32, got <U"),
        ((edges, x[:0]), "at least one, got 0"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            model(*given)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="takes the further inputs none, got weight"):
        model(edges, x, weight=x)
    assert repr(model) == "Model(GCN of communities, 16 features per vertex)"


@pytest.mark.parametrize("what", ["no zip", "no meta", "bytes", "version", "keys", "not JSON", "no function"])
def test_a_file_that_is_not_as_it_was_written(
    exported: dict[str, tuple[TrainResult, Path]], tmp_path: Path, what: str
) -> None:
    with zipfile.ZipFile(exported["GCN"][1]) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    meta = json.loads(files["meta.json"])
    wanted = {
        "no zip": "is no exported model, or is damaged",
        "no meta": "has no meta.json",
        "bytes": "parameters.npz is not what was written",
        "version": r"format and version must be \('dorylax model', 1\), got \('dorylax model', 2\)",
        "keys": "must have the keys",
        "not JSON": "meta.json is not JSON",
        "no function": "with_edges.jax is not what was written",
    }[what]
    path = tmp_path / "model.zip"
    if what == "no meta":
        del files["meta.json"]
    elif what == "bytes":
        files["parameters.npz"] = files["parameters.npz"][:-9] + b"x" * 9
    elif what == "version":
        files["meta.json"] = json.dumps(meta | {"version": 2, "more": 1}).encode()
    elif what == "keys":
        files["meta.json"] = json.dumps(meta | {"more": 1}).encode()
    elif what == "not JSON":
        files["meta.json"] = b"{"
    elif what == "no function":
        del files["with_edges.jax"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    if what == "no zip":
        path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=wanted):
        loader.Model(path)


def test_the_same_run_gives_the_same_bytes(exported: dict[str, tuple[TrainResult, Path]], tmp_path: Path) -> None:
    result, path = exported["GIN"]
    result.export(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == path.read_bytes()


def test_a_full_disk_leaves_what_was_there(
    exported: dict[str, tuple[TrainResult, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.zip").write_text("before")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*model\.zip"):
        exported["GIN"][0].export(tmp_path / "model.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["model.zip"]
    assert (tmp_path / "model.zip").read_text() == "before"


def test_two_artefacts_in_one_process(exported: dict[str, tuple[TrainResult, Path]], data: Dataset) -> None:
    edges, x = inputs(9, 20, data.num_features)
    models = {name: runpy.run_path(str(path))["Model"]() for name, (_, path) in exported.items()}
    for name, (result, _) in exported.items():
        want = result.predict(Graph.from_edge_index(edges, 9), x)
        np.testing.assert_allclose(models[name](edges, x), want, **TOLERANCE)
