"""What is in the image: the closure of imports, the distributions."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.image import contents
from dorylax.serverless.deploy.image.contents import DISTRIBUTIONS, ENTRY, closure, left_out, requirements

pytest.importorskip("awslambdaric", reason="needs awslambdaric")

# What Python imports from each distribution of the image.
PROVIDES = {"jax": "jax", "jaxlib": "jaxlib", "ml_dtypes": "ml_dtypes", "numpy": "numpy", "pyzmq": "zmq"}


def test_the_handler_s_modules_and_no_others() -> None:
    modules = closure(ENTRY).modules
    assert {
        *("dorylax/__init__.py", "dorylax/program/__init__.py", "dorylax/program/artefact/stage_file.py"),
        *("dorylax/serverless/__init__.py", "dorylax/serverless/function/entry.py"),
        *("dorylax/serverless/handler/handle.py", "dorylax/serverless/wire/event.py"),
    } <= set(modules)
    for place, path in modules.items():
        assert path.name == Path(place).name
        assert path.is_file()
    # Every folder is a package, and nothing of other floors is there.
    for place in modules:
        assert f"{Path(place).parent.as_posix()}/__init__.py" in modules
    parts = {tuple(place.split("/")[1:3]) for place in modules}
    others = ("layers", "pipeline", "experiments", "trainer", "config", "cli", "graph", "ops")
    assert not [part for part in parts if part[0] in others]
    for name in ("deploy", "backends", "controller"):
        assert ("serverless", name) not in parts


def test_every_foreign_import_has_its_distribution() -> None:
    foreign = set(closure(ENTRY).foreign)
    assert foreign == {"jax", "jaxlib", "ml_dtypes", "numpy", "zmq"}
    assert foreign <= {PROVIDES.get(name, name) for name in DISTRIBUTIONS}


def test_distributions_are_what_the_metadata_ask_for_but_for_scipy() -> None:
    """And flatbuffers, which JAX needs for `jax.export` and does not ask for."""
    asked = set()
    for name in DISTRIBUTIONS:
        for line in importlib.metadata.requires(name) or ():
            requirement, _, marker = line.partition(";")
            if not marker:
                asked.add(re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-"))
    named = {name.lower().replace("_", "-") for name in DISTRIBUTIONS}
    assert asked <= named | {"scipy"}
    assert named - asked == {"awslambdaric", "flatbuffers", "jax", "pyzmq"}


def test_versions_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = requirements(lapack=False)
    assert f"jax=={importlib.metadata.version('jax')}" in lines
    assert not [line for line in lines if line.startswith("scipy")]
    assert f"scipy=={importlib.metadata.version('scipy')}" in requirements(lapack=True)
    monkeypatch.setattr(contents, "DISTRIBUTIONS", ("jax", "not-there"))
    for platform, remedy in (("linux", r'pip install "dorylax\[aws\]"'), ("darwin", "deploy from Linux, for which .*")):
        monkeypatch.setattr(sys, "platform", platform)
        with pytest.raises(InputError, match=f"^not-there is not installed: {remedy}$"):
            requirements(lapack=False)


def test_imports_inside_functions_count_and_those_for_type_checkers_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "one.py": "from typing import TYPE_CHECKING\nimport os, foreign.deep\n"
        "if TYPE_CHECKING:\n    from package import two\nelse:\n    from package import three\n"
        "def f():\n    from package.folder import four\n",
        "two.py": "",
        "three.py": "from package.folder.five import NAME\n",
        "folder/__init__.py": "from . import six\n",
        "folder/four.py": "from .seven import thing\nfrom ..eight import NAME\n",
        "folder/five.py": "NAME = 1\n",
        "folder/six.py": "",
        "folder/seven.py": "import package.one\n",
        "eight.py": "",
        "__init__.py": "",
        "unrelated.py": "",
    }
    for place, text in sources.items():
        (tmp_path / "package" / place).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "package" / place).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = closure("package.one")
    expected = sources.keys() - {"two.py", "unrelated.py"}
    assert {place.removeprefix("package/") for place in found.modules} == expected
    assert found.foreign == ("foreign",)
    with pytest.raises(RunError, match=r"package\.nowhere has no source file"):
        closure("package.nowhere")


@pytest.mark.parametrize(
    ("place", "is_left_out"),
    [
        ("numpy/_core/tests/test_api.py", True),
        ("numpy/_core/include/numpy/ndarraytypes.h", True),
        ("numpy/__init__.pyi", True),
        ("jax/__pycache__/version.cpython-311.pyc", True),
        ("numpy/testing/__init__.py", False),
        ("numpy.libs/libscipy_openblas64_.so", False),
        ("tests.py", False),
    ],
)
def test_parts_that_are_left_out(place: str, is_left_out: bool) -> None:
    assert left_out(tuple(place.split("/"))) is is_left_out


def test_nothing_is_imported_to_find_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raising").mkdir()
    for name in ("__init__", "never", "run"):
        text = "from raising import run\nraise AssertionError('this was run')\n"
        (tmp_path / "raising" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert len(closure("raising.never").modules) == 3
    assert not {"raising", "raising.never", "raising.run"} & set(sys.modules)
