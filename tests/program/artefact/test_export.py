"""Artefacts of whole programs: they compute the model's gradients, are the same everywhere, and survive on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.reference import Intervals, ReferenceExecutor, artefact_compiler, interpret

from dorylax.errors import InputError
from dorylax.graph.graph import Graph
from dorylax.jax_internals import close, fresh_var
from dorylax.layers import GAT, GCN, GIN, GraphSAGE
from dorylax.ops import gather
from dorylax.program.artefact.export import MANIFEST, StageSet, export_stages, load, save
from dorylax.program.artefact.stage_file import StageReference, sha256_of
from dorylax.program.model.base import epoch_rng
from dorylax.program.model.kinds import take_apart
from dorylax.program.model.loss import cross_entropy
from dorylax.program.program import Program, trace
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.program.tracing.spec import DataSpec, RowSpec

V, E, F, C = 11, 40, 5, 3
SPEC = DataSpec((RowSpec("vertex", (F,), "float32", "features"),), RowSpec("vertex", (), "int32", "labels"))


@pytest.fixture(scope="module")
def data() -> RunData:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(rng.integers(0, V, E), rng.integers(0, V, E), num_vertices=V)
    features = rng.normal(size=(V, F)).astype(np.float32)
    labels = rng.integers(0, C, V).astype(np.int32)
    weights = training_weights(rng.random(V) < 0.6)
    return RunData(graph, (jnp.asarray(features),), jnp.asarray(labels), jnp.asarray(weights))


def check_against_oracle(model: Any, program: Program, data: RunData, **trees: Any) -> StageSet:
    """Runs one step through artefacts on three uneven intervals and compares loss and every gradient."""
    parts = take_apart(model, data.graph, *data.inputs, **trees)

    def loss(params: Any) -> Any:
        streams = epoch_rng(parts.streams, jnp.uint32(3), jnp.uint32(4))
        output, _ = parts.structure.apply_train(params, streams, parts.state, data.graph, *data.inputs)
        return jnp.where(data.weights != 0, cross_entropy(output, data.labels) * data.weights, 0).sum()

    expected, gradients = jax.jit(jax.value_and_grad(loss))(parts.params)
    stage_set = export_stages(program)
    executor = ReferenceExecutor(
        program,
        data,
        Intervals.of(data.graph, [0, 2, 7, V]),
        compile=artefact_compiler(program, stage_set, others=interpret),
    )
    found = executor.step(parts.params, parts.streams, parts.state, seed=3, epoch=4)
    np.testing.assert_allclose(found.loss, expected, rtol=1e-5)
    assert jax.tree.structure(found.gradients) == jax.tree.structure(gradients)
    for got, wanted in zip(jax.tree.leaves(found.gradients), jax.tree.leaves(gradients), strict=True):
        assert np.linalg.norm(got - wanted) <= 1e-5 * np.linalg.norm(wanted)
    return stage_set


MODELS: dict[str, Callable[[], Any]] = {
    "gcn": lambda: GCN(F, 4, C, rngs=nnx.Rngs(0)),
    "gat": lambda: GAT(F, 4, C, heads=2, num_layers=1, rngs=nnx.Rngs(0)),
    "sage": lambda: GraphSAGE(F, 4, C, aggregation="max", rngs=nnx.Rngs(0)),
    "gin": lambda: GIN(F, 4, C, train_epsilon=True, rngs=nnx.Rngs(0)),
}


@pytest.mark.parametrize("name", MODELS)
def test_artefacts_give_the_gradients_of_the_model(name: str, data: RunData) -> None:
    model = MODELS[name]()
    program = trace(model, SPEC)
    stage_set = check_against_oracle(model, program, data)
    assert list(stage_set.stages) == [k for k, task in enumerate(program.tasks) if task.kind == "stage"]
    assert {reference.sha256 for reference in stage_set.stages.values()} == set(stage_set.artefacts)
    for sha256, content in stage_set.artefacts.items():
        assert sha256_of(content) == sha256
        # Nothing says where the model was written.
        assert b".py" not in content


def deep(params: Any, graph: Graph, x: Any) -> Any:
    """Equal layers but for a factor."""
    first = x = x @ params["in"]
    for k in range(6):
        x = jnp.tanh(gather(graph, x) @ params["layers"][k] * (0.5 / (k + 1)) + 0.25 * first)
    return x @ params["out"]


def test_equal_layers_share_artefacts(data: RunData) -> None:
    rng = np.random.default_rng(1)
    shapes = {"in": (F, 4), "layers": [(4, 4)] * 6, "out": (4, C)}
    params = jax.tree.map(
        lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )
    stage_set = check_against_oracle(deep, trace(deep, SPEC, params=params), data, params=params)
    assert len(stage_set.artefacts) < len(stage_set.stages) - 4
    literals = {reference.literals for reference in stage_set.stages.values()}
    assert {float(np.float32(0.5 / k)) for k in (2, 3, 4, 5)} <= {value for values in literals for value in values}


def test_rows_that_are_all_alike_have_an_input_that_counts_them(data: RunData) -> None:
    def halved(params: Any, graph: Graph, x: Any) -> Any:
        return gather(graph, x @ params, jnp.full(graph.num_edges, 0.5))

    params = jnp.asarray(np.random.default_rng(2).normal(size=(F, C)), jnp.float32)
    program = trace(halved, SPEC, params=params)
    stage_set = check_against_oracle(halved, program, data, params=params)
    assert [reference.counted for reference in stage_set.stages.values()].count(True) == 1


def test_keys_are_refused() -> None:
    key = fresh_var(jax.typeof(jax.random.key(0)))
    program: Any = SimpleNamespace(
        tasks=[SimpleNamespace(kind="stage")],
        interfaces=[SimpleNamespace(reads=(key,), writes=())],
        function_of=lambda k: close([key], [], []),
    )
    with pytest.raises(ValueError, match=r"task 0 reads a typed random key \(key<fry>\[\]\)"):
        export_stages(program)


_EXPORT = """
import sys
from flax import nnx
from dorylax.layers import GCN
from dorylax.program.artefact.export import export_stages
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.program import trace

spec = DataSpec((RowSpec("vertex", (5,), "float32", "features"),), RowSpec("vertex", (), "int32", "labels"))
# The second one's parameters have other values, and all its variables other ids.
for model in (GCN(5, 4, 3, rngs=nnx.Rngs(0)), GCN(5, 4, 3, rngs=nnx.Rngs(int(sys.argv[1])))):
    print(*(reference.sha256 for reference in export_stages(trace(model, spec)).stages.values()))
"""


def test_the_same_in_every_process() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _EXPORT, seed],
            cwd=Path(__file__).parents[3],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    found = {line for process in running for line in process.communicate()[0].splitlines()}
    assert [process.returncode for process in running] == [0, 0]
    (line,) = found
    assert len(line.split()) > 5


# On disk


@pytest.fixture
def stage_set() -> StageSet:
    contents = [b"first", b"second"]
    artefacts = {sha256_of(content): content for content in contents}
    one, two = artefacts
    return StageSet(
        {
            2: StageReference(one, (1, 0), (0.1, float("inf"), -0.0), False, (0,)),
            5: StageReference(two, (), (), True, (1, 0)),
        },
        artefacts,
    )


def test_saved_and_loaded(tmp_path: Path, stage_set: StageSet) -> None:
    save(stage_set, tmp_path / "new")
    assert load(tmp_path / "new") == stage_set
    names = {f"{sha256}.stage" for sha256 in stage_set.artefacts}
    assert {path.name for path in (tmp_path / "new").iterdir()} == {*names, MANIFEST}


def test_what_is_there_stays_and_what_is_damaged_is_mended(tmp_path: Path, stage_set: StageSet) -> None:
    save(stage_set, tmp_path)
    one, two = (tmp_path / f"{sha256}.stage" for sha256 in stage_set.artefacts)
    before = one.stat()
    two.write_bytes(b"damaged")
    with pytest.raises(InputError, match=rf"{two.name} is damaged: expected SHA-256 {two.stem}, found [0-9a-f]{{64}}"):
        load(tmp_path)
    save(stage_set, tmp_path)
    assert one.stat().st_ino == before.st_ino
    assert load(tmp_path) == stage_set


def test_missing_artefact(tmp_path: Path, stage_set: StageSet) -> None:
    save(stage_set, tmp_path)
    path = tmp_path / f"{next(iter(stage_set.artefacts))}.stage"
    path.unlink()
    with pytest.raises(InputError, match=f"{path.name} is missing"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=2), "version: Input should be less than or equal to 1, got 2"),
        (lambda m: m.update(version=True), "version: Input should be a valid integer, got true"),
        (lambda m: m.pop("format"), "format: Field required"),
        (lambda m: m.update(extra=1), "extra: Extra inputs are not permitted, got 1"),
        (lambda m: m.pop("jax"), "jax: Field required"),
        (lambda m: m["stages"][0].update(extra=1), r"stages\.0\.extra: Extra inputs are not permitted"),
        (lambda m: m["stages"][1].pop("counted"), r"stages\.1\.counted: Field required"),
        (lambda m: m["stages"][1].update(task=2), "stages: task 2 has two stages, expected one"),
        (
            lambda m: m["stages"][0].update(task=-1),
            r"stages\.0\.task: Input should be greater than or equal to 0, got -1",
        ),
        (lambda m: m["stages"][0].update(sha256="0"), "stages: sha256 of task 2 must be one of artefacts, not 0"),
        (lambda m: m["stages"][0].update(reads=[1, 1]), r"reads: must be distinct integers, got \[1, 1\]"),
        (lambda m: m["stages"][0].update(writes=[1]), r"writes: must be each of 0, 1, … once, got \[1\]"),
        (lambda m: m["stages"][0].update(literals=[0.5]), r"literals\.0: Input should be a valid string, got 0\.5"),
        (lambda m: m["stages"][0].update(literals=["x"]), r"literals\.0: must be a hexadecimal float, got 'x'"),
        (lambda m: m["stages"][0].update(literals="12"), r"literals: Input should be a valid array, got '12'"),
        (lambda m: m["stages"][0].update(counted=0), "counted: Input should be a valid boolean, got 0"),
        (
            lambda m: m["artefacts"].update({"../x": 1}),
            r"artefacts.*String should match pattern .*, got '\.\./x'",
        ),
        (lambda m: m.update(stages={}), "stages: Input should be a valid array"),
    ],
)
def test_manifest_is_strict(
    tmp_path: Path, stage_set: StageSet, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    save(stage_set, tmp_path)
    path = tmp_path / MANIFEST
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path)
    assert str(path) in str(caught.value)


def test_manifest_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(InputError, match=f"{MANIFEST}: the manifest: Invalid JSON"):
        load(tmp_path)


def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, stage_set: StageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Any, target: Any) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk is full"):
        save(stage_set, tmp_path)
    assert list(tmp_path.iterdir()) == []
