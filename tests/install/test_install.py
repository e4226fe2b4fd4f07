"""Plain install, editable install, uninstalled checkout, and install without a compiler: from the root and elsewhere.

Everything happens in virtual environments in a temporary folder that see the dependencies of the running one but not its
dorylax. Nothing is downloaded: builds use `--no-build-isolation --no-deps`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="needs the checkout"),
    pytest.mark.timeout(900),
]

PROBE = """
import json, sys, warnings
import dorylax
early = sorted({"jax", "flax", "numpy", "optax"} & set(sys.modules))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    from dorylax import ops
    from dorylax.ops import native
    graph = dorylax.Graph.from_coo(np.array([0, 1]), np.array([1, 1]), 2)
    result = np.asarray(ops.gather(graph, np.ones((2, 3), np.float32))).tolist()
    ops.gather(graph, np.ones((2, 4), np.float32))
import dorylax.layers
import dorylax.experiments
print(json.dumps({
    "package": dorylax.__file__, "layers": dorylax.layers.__file__, "experiments": dorylax.experiments.__file__,
    "early": early, "native": native.status().path, "result": result,
    "warnings": [str(w.message) for w in caught if "dorylax" in str(w.message)],
}))
"""


def run(python: Path, *arguments: str, cwd: Path, **environment: str) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DORYLAX_NATIVE")}
    done = subprocess.run(
        [str(python), *arguments],
        cwd=cwd,
        env={**env, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def probe(python: Path, cwd: Path, **environment: str) -> dict:
    return json.loads(run(python, "-c", PROBE, cwd=cwd, **environment))


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout's sources, so that builds leave nothing in the real one."""
    copy = tmp_path_factory.mktemp("source") / "dorylax-checkout"
    files = ["pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE"]
    names = [*files, "dorylax", "layers", "pipeline", "serverless", "experiments"]
    copy.mkdir()
    for name in names:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, copy / name)
    # Optimised, the kernels take more than a minute to compile: here it matters where they end up, not how fast they are.
    recipe = (copy / "CMakeLists.txt").read_text()
    assert " -O3 " in recipe
    (copy / "CMakeLists.txt").write_text(recipe.replace(" -O3 ", " -O0 "))
    return copy


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The running environment's packages, without dorylax."""
    folder = tmp_path_factory.mktemp("dependencies")
    for site in dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))):
        for entry in Path(site).iterdir():
            if "dorylax" not in entry.name and entry.suffix != ".pth":
                (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="session")
def make_python(tmp_path_factory: pytest.TempPathFactory, dependencies: Path):
    """Makes virtual environments that see the dependencies; gives the interpreter."""

    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name) / "venv"
        venv.create(folder, symlinks=True)
        python = folder / "bin" / "python"
        site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
        (site / "dependencies.pth").write_text(f"{dependencies}\n")
        return python

    return make


def install(python: Path, checkout: Path, *options: str, **environment: str) -> None:
    pip = [
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        *("--no-build-isolation", "--no-deps", "--no-index", "--quiet"),
    ]
    # The build folder is shared, so that the second install compiles nothing; without a compiler there is none to share.
    run(Path(sys.executable), *pip, *options, cwd=checkout.parent, **environment)


@pytest.fixture(scope="session")
def plain(make_python, checkout: Path) -> Path:
    python = make_python("plain")
    install(python, checkout, f"--config-settings=build-dir={checkout.parent / 'build'}", str(checkout))
    return python


def elsewhere(tmp_path: Path, checkout: Path, place: str) -> Path:
    return checkout if place == "root" else tmp_path


@pytest.mark.parametrize("place", ["root", "elsewhere"])
def test_plain_install(plain: Path, checkout: Path, tmp_path: Path, place: str) -> None:
    found = probe(plain, elsewhere(tmp_path, checkout, place))
    site = plain.parent.parent
    # From the root, Python takes the checkout's sources; the kernel is the installed one all the same.
    assert Path(found["package"]).is_relative_to(checkout if place == "root" else site)
    assert Path(found["layers"]).is_relative_to(checkout if place == "root" else site)
    assert Path(found["native"]).is_relative_to(site)
    assert found["early"] == []
    assert found["warnings"] == []
    assert found["result"] == [[0, 0, 0], [2, 2, 2]]


def test_wheel_tag_and_contents(plain: Path) -> None:
    site = next((plain.parent.parent / "lib").glob("python*/site-packages"))
    (info,) = site.glob("dorylax-*.dist-info")
    (tag,) = [line for line in (info / "WHEEL").read_text().splitlines() if line.startswith("Tag: ")]
    assert tag.startswith("Tag: py3-none-")
    assert not tag.endswith("-any")
    installed = {path.relative_to(site / "dorylax").as_posix() for path in (site / "dorylax").rglob("*.*")}
    ours = {"pipeline/engine.py", "serverless/task.py", "layers/__init__.py", "experiments/run.py", "ops/native.py"}
    assert {"py.typed", *ours} <= installed
    assert not [name for name in installed if name.endswith((".cc", ".h", ".inl")) or name.startswith("tests")]


def test_console_script(plain: Path, tmp_path: Path) -> None:
    assert run(plain.parent / "dorylax", "--version", cwd=tmp_path).strip().startswith("dorylax ")


@pytest.mark.parametrize("place", ["root", "elsewhere"])
def test_experiments_script_after_a_plain_install(plain: Path, checkout: Path, tmp_path: Path, place: str) -> None:
    script = str(checkout / "experiments" / "run.py")
    assert run(plain, script, "--help", cwd=elsewhere(tmp_path, checkout, place)).startswith("Usage")


def test_editable_install(make_python, plain: Path, checkout: Path, tmp_path: Path) -> None:
    python = make_python("editable")
    install(python, checkout, f"--config-settings=build-dir={checkout.parent / 'build'}", "--editable", str(checkout))
    for place in ("root", "elsewhere"):
        found = probe(python, elsewhere(tmp_path, checkout, place))
        assert Path(found["package"]).is_relative_to(checkout)
        assert Path(found["layers"]).is_relative_to(checkout)
        assert Path(found["native"]).is_relative_to(python.parent.parent)
        assert found["warnings"] == []


@pytest.mark.parametrize("place", ["root", "elsewhere"])
def test_uninstalled_checkout(make_python, checkout: Path, tmp_path: Path, place: str) -> None:
    python = make_python("uninstalled")
    environment = {} if place == "root" else {"PYTHONPATH": str(checkout)}
    found = probe(python, elsewhere(tmp_path, checkout, place), **environment)
    assert Path(found["layers"]).is_relative_to(checkout)
    assert found["native"] is None
    assert found["early"] == []
    assert len(found["warnings"]) == 1
    assert found["result"] == [[0, 0, 0], [2, 2, 2]]
    script = str(checkout / "experiments" / "run.py")
    assert run(python, script, "--help", cwd=elsewhere(tmp_path, checkout, place)).startswith("Usage")


def test_without_a_compiler_the_install_succeeds_and_says_what_is_lost(
    make_python, checkout: Path, tmp_path: Path
) -> None:
    python = make_python("no-compiler")
    install(python, checkout, str(checkout), CC="/nonexistent/cc", CXX="/nonexistent/c++")
    found = probe(python, tmp_path)
    assert Path(found["package"]).is_relative_to(python.parent.parent)
    assert found["native"] is None
    assert len(found["warnings"]) == 1
    assert "no C++ compiler was found" in found["warnings"][0]
    assert found["result"] == [[0, 0, 0], [2, 2, 2]]


def test_no_module_shadows_the_standard_library() -> None:
    # Folders whose modules are importable by their bare names: the root, and those of scripts that are run directly.
    for folder in (ROOT, ROOT / "experiments", ROOT / "benchmarks"):
        names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
        assert not names & sys.stdlib_module_names


def test_no_package_index_is_named() -> None:
    for name in ("pyproject.toml", "constraints.txt", "README.md", ".ci/run"):
        text = (ROOT / name).read_text()
        assert "index-url" not in text
        assert "pypi.org" not in text
