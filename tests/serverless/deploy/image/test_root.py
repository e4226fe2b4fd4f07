"""The image's own files, made without a container engine: what they hold, and that the function runs from them alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rie import Emulated

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.function import warm_invocation
from dorylax.serverless.deploy.image import root as roots
from dorylax.serverless.deploy.image.contents import HANDLER
from dorylax.serverless.deploy.image.context import Context
from dorylax.serverless.function.invocation import read_response

pytest.importorskip("awslambdaric", reason="needs awslambdaric")

TOPS = {
    "__pycache__",
    "awslambdaric",
    "dorylax",
    "flatbuffers",
    "jax",
    "jaxlib",
    "ml_dtypes",
    "numpy",
    "numpy.libs",
    "opt_einsum",
    "pyzmq.libs",
    "runtime_client",  # of awslambdaric
    "simplejson",
    "snapshot_restore_py",
    "zmq",
}


@pytest.fixture(scope="module")
def context() -> Context:
    return Context.make("x86_64")


@pytest.fixture(scope="module")
def target(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = roots.build(context, tmp_path_factory.mktemp("image") / "root")
    before = _snapshot(found)
    yield found
    assert _snapshot(found) == before  # the image is read-only


@pytest.fixture(scope="module")
def started(target: Path) -> roots.StartMeasurement:
    return roots.start(target, warm_invocation())


def _module(name: str) -> str:
    """The name of a module on the top, which may be one file: `name.py`, `name.cpython-….so`."""
    return name if name.endswith(".libs") else name.partition(".")[0]


def _snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_the_image_s_file_list(target: Path, context: Context) -> None:
    tops = [path.name for path in target.iterdir()]
    metadata = [top for top in tops if top.endswith(".dist-info")]
    assert {_module(top) for top in tops if top not in metadata} == TOPS
    assert len(metadata) == len(context.distributions)
    files = [path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()]
    for word in ("flax", "optax", "scipy", "pytest", "boto3", "orbax", "cloudpickle", "pymetis"):
        # jax has modules that are called after SciPy, and are not of it
        assert not [file for file in files if file.split("/")[0].lower().startswith(word)]
    assert not [file for file in files if "/tests/" in file or file.endswith((".pyi", ".h"))]


def test_every_module_has_bytecode(target: Path) -> None:
    import importlib.util

    sources = [path for path in target.rglob("*.py") if "dist-info" not in str(path)]
    missing = [path for path in sources if not Path(importlib.util.cache_from_source(str(path))).is_file()]
    # Whatever does not compile cannot be imported either.
    assert [path for path in missing if "dorylax" in path.parts or "jax" in path.parts] == []
    assert len(missing) <= len(sources) // 100


def test_the_function_answers_from_these_files_alone(started: roots.StartMeasurement) -> None:
    assert read_response(json.dumps(started.response).encode()) is None
    assert 0 < started.seconds < 120
    assert {_module(file.split("/")[0]) for file in started.files} <= TOPS
    assert "dorylax/serverless/function/entry.py" in started.files


def test_what_is_read_off_the_source_is_what_is_imported(started: roots.StartMeasurement, context: Context) -> None:
    imported = {file for file in started.files if file.startswith("dorylax/")}
    listed = {place for place in context.files if place.startswith("dorylax/")}
    assert imported <= listed
    assert listed - imported <= {place for place in listed if place.endswith("__init__.py")}


def test_awslambdaric_in_it_answers_the_emulator(target: Path) -> None:
    """The image's own command, where Python sees these files alone."""
    environment = {
        "PYTHONPATH": str(target),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
        "JAX_PLATFORMS": "cpu",
    }
    emulator = Emulated(environment, timeout=60.0, handler=HANDLER, options=("-S",))
    try:
        reply = emulator.invoke(warm_invocation())
    finally:
        emulator.end()
    assert reply.error is None, reply.body
    assert read_response(reply.body) is None


def test_size(target: Path) -> None:
    size = roots.size(target)
    assert size.nbytes == sum(size.parts.values())
    assert size.files == sum(len(files) for _, _, files in os.walk(target))
    assert next(iter(size.parts)) == "jaxlib"
    assert size.nbytes < 600e6


def test_a_root_that_lacks_something(context: Context, tmp_path: Path) -> None:
    (tmp_path / "dorylax").mkdir()
    (tmp_path / "dorylax" / "__init__.py").write_text("")
    with pytest.raises(RunError, match=r"does not start from .*: ModuleNotFoundError: No module named 'dorylax\.serv"):
        roots.start(tmp_path, b"{}")
    with pytest.raises(InputError, match="must be empty, and is not"):
        roots.build(context, tmp_path)
