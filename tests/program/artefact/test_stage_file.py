"""Stage files: what a worker loads, with nothing installed but what it needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from dorylax.errors import InputError
from dorylax.program.artefact import stage_file
from dorylax.program.artefact.stage_file import Stage, StageReference, sha256_of

_ROOT = Path(__file__).parents[3]


def artefact(fun: Callable[..., Any], *inputs: str) -> bytes:
    """An exported function of arrays such as "float32 rows, 4"."""
    scope = export.SymbolicScope()
    split = [entry.partition(" ") for entry in inputs]
    specs = [jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype) for dtype, _, shape in split]
    return bytes(export.export(jax.jit(fun), platforms=["cpu"])(*specs).serialize())


@pytest.fixture(scope="module")
def content() -> bytes:
    """x [rows, 4], w [4, 3], heads [2·rows] → x w [rows, 3] and the sum of all heads."""
    return artefact(lambda x, w, heads: (x @ w, heads.sum()), "float32 rows, 4", "float32 4, 3", "float32 2*rows")


@pytest.fixture
def stage(content: bytes) -> Stage:
    return stage_file.load(content)


def operands(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    return [rng.normal(size=shape).astype(np.float32) for shape in ((rows, 4), (4, 3), (2 * rows,))]


def test_computes_for_any_number_of_rows_and_compiles_once_for_each(stage: Stage) -> None:
    for rows in (3, 5, 3):
        x, w, heads = operands(rows)
        product, total = stage.call(x, w, jnp.asarray(heads))
        np.testing.assert_allclose(product, x @ w, rtol=1e-5)
        np.testing.assert_allclose(total, heads.sum(), rtol=1e-5)
    stage.compile(7)
    assert set(stage._compiled) == {3, 5, 7}
    before = stage._compiled[5]
    stage(*operands(5))
    assert stage._compiled[5] is before


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, None, r"takes 3 arguments, got 2"),
        (0, np.zeros((3, 4), np.float64), r"argument 0 must be float32 \[rows, 4\], got float64 \[3, 4\]"),
        (0, np.zeros((3, 5), np.float32), r"argument 0 must be float32 \[rows, 4\], got float32 \[3, 5\]"),
        (0, np.zeros(3, np.float32), r"argument 0 must be float32 \[rows, 4\], got float32 \[3\]"),
        (0, [[0.0] * 4] * 3, r"argument 0 must be float32 \[rows, 4\], got list"),
        (0, np.zeros((0, 4), np.float32), r"with at least one row, got \[0, 4\]"),
        (2, np.zeros(7, np.float32), r"argument 2 must be float32 \[6\], for the 3 rows of argument 0, got \[7\]"),
    ],
    ids=["count", "dtype", "width", "rank", "no array", "no rows", "rows"],
)
def test_refuses_wrong_arguments(stage: Stage, place: int, value: Any, message: str) -> None:
    given: list[Any] = operands(3)
    given[place : place + 1] = [] if value is None else [value]
    with pytest.raises(ValueError, match=message):
        stage.call(*given)


def test_number_of_rows_from_several_entries_per_row() -> None:
    stage = stage_file.load(artefact(lambda heads: heads.reshape(-1, 2).sum(1), "float32 2*rows"))
    (sums,) = stage.call(np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(sums, [1, 5, 9])
    with pytest.raises(ValueError, match=r"argument 0 must be float32 \[2\*rows\] with at least one row, got \[5\]"):
        stage.call(np.zeros(5, np.float32))


def test_reference_orders_inputs_and_outputs_and_adds_literals() -> None:
    inputs = ("float32 rows", "float32 rows", "float32", "bool rows")
    stage = stage_file.load(artefact(lambda a, b, scale, _: (a - b, a * scale), *inputs))
    reference = StageReference("", reads=(1, 0), literals=(0.1,), counted=True, writes=(1, 0))
    first, second = np.float32([1, 2]), np.float32([30, 50])
    scaled, difference = reference.call(stage, [first, second], 2)
    np.testing.assert_array_equal(difference, [29, 48])
    np.testing.assert_array_equal(scaled, second * np.float32(0.1))


def test_files_are_checked_by_their_names(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / f"{sha256_of(content)}.stage"
    path.write_bytes(content)
    assert stage_file.load(path).sha256 == stage_file.load(str(path)).sha256 == sha256_of(content)
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes(damaged)
    with pytest.raises(InputError) as caught:
        stage_file.load(path)
    for part in (str(path), sha256_of(content), sha256_of(damaged), "damaged"):
        assert part in str(caught.value)


def test_bytes_are_checked_where_their_hash_is_given(content: bytes) -> None:
    with pytest.raises(InputError, match=f"expected SHA-256 {'0' * 64}, found {sha256_of(content)}"):
        stage_file.load(content, "0" * 64)


def test_refuses_what_is_no_artefact(tmp_path: Path) -> None:
    path = tmp_path / "some.stage"
    path.write_bytes(b"\x00" * 64)
    with pytest.raises(InputError, match=r"some.stage \(64 bytes\) is not a stage that JAX .* can read"):
        stage_file.load(path)


def test_refuses_64_bits_where_jax_has_32() -> None:
    with jax.enable_x64(True):
        content = artefact(lambda x: x + 1, "float64 rows")
        stage_file.load(content)
    with pytest.raises(ValueError, match="computes in float64: set JAX_ENABLE_X64=1"):
        stage_file.load(content)


_WORKER = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

class Only(PathFinder):
    # What a worker has; JAX itself needs ml_dtypes and opt_einsum.
    allowed = {*sys.stdlib_module_names, "jax", "jaxlib", "numpy", "ml_dtypes", "opt_einsum", "flatbuffers", "dorylax"}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        top = name.partition(".")[0]
        # The standard library's own _sysconfigdata has the platform in its name.
        return super().find_spec(name, path, target) if top in cls.allowed or top.startswith("_sysconfigdata") else None

for name in list(sys.modules):  # what .pth files of this environment have imported
    if name.partition(".")[0] not in Only.allowed and not name.startswith("_"):
        del sys.modules[name]
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Only]
for absent in ("flax", "scipy", "optax", "pydantic"):
    try:
        __import__(absent)
        sys.exit(f"{absent} can be imported: this test tests nothing")
    except ModuleNotFoundError:
        pass
import numpy as np
from dorylax.program.artefact import stage_file
stage = stage_file.load(sys.argv[1])
given = np.load(sys.argv[2])
np.savez(sys.argv[3], *stage.call(*(given[name] for name in given.files)))
try:
    stage_file.load(sys.argv[4]).call(np.zeros((2, 3, 3), np.float32))
    sys.exit("a stage that calls LAPACK must load it")
except ModuleNotFoundError as error:
    assert error.name == "scipy", error
print(*sorted({name for name in sys.modules if name.startswith("dorylax")}))
"""


def test_runs_where_only_jax_numpy_and_flatbuffers_are(tmp_path: Path, stage: Stage, content: bytes) -> None:
    path = tmp_path / f"{sha256_of(content)}.stage"
    path.write_bytes(content)
    np.savez(tmp_path / "given.npz", *operands(4))
    solver = tmp_path / "solver.stage"
    solver.write_bytes(artefact(jnp.linalg.cholesky, "float32 rows, 3, 3"))
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, path, tmp_path / "given.npz", tmp_path / "found.npz", solver],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "dorylax",
        "dorylax.errors",
        "dorylax.jax_internals",
        "dorylax.program",
        "dorylax.program.artefact",
        "dorylax.program.artefact.stage_file",
    ]
    with np.load(tmp_path / "found.npz") as found:
        for name, expected in zip(found.files, stage.call(*operands(4)), strict=True):
            np.testing.assert_array_equal(found[name], expected)
