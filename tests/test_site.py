"""The site is built from docs/ without a network, strictly, and fetches nothing when it is read."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dorylax

ROOT = Path(__file__).parent.parent
PARTS = ("mkdocs", "material", "mkdocstrings")

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PARTS), reason='no mkdocs: pip install ".[docs]"'
)

# As the command, but for sockets, none of which connects.
BUILD = """
import socket, sys
def refused(*_): raise OSError("the site's build uses the network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refused
from mkdocs.__main__ import cli
cli(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", BUILD, "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")]
    for name in (*pages, "changelog", "security"):
        assert (site / name / "index.html").is_file(), name
    home = (site / "index.html").read_text(encoding="utf-8")
    assert (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") in home
    assert 'href="experiments/"' in home
    assert not (site / "mkdocs_hooks.py").exists()


def test_nothing_is_fetched(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]*)"', text)
        fetched += [
            target
            for link in re.findall(r"<link\b[^>]*>", text)
            if 'rel="canonical"' not in link
            for target in re.findall(r'\bhref="([^"]*)"', link)
        ]
        assert fetched
        assert [target for target in fetched if re.match(r"(https?:)?//", target)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"@import|url\(\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def public_names() -> set[str]:
    """Return the public names without the package: `Trainer`, `ops.gather`."""
    names = {name for name in dorylax.__all__ if not name.startswith("__")}
    for package in (dorylax.ops, dorylax.layers, dorylax.experiments, dorylax.tasks):
        names |= {f"{package.__name__[8:]}.{name}" for name in package.__all__ if callable(getattr(package, name))}
    return names


def test_every_public_name_is_documented(site: Path) -> None:
    text = (site / "api" / "index.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'id="dorylax\.([\w.]+)"', text))
    # An operator that is called like its module stands under it.
    assert {name for name in public_names() if not shown & {name, f"{name}.{name.rpartition('.')[2]}"}} == set()


def test_every_public_name_has_an_example() -> None:
    """The examples run in `test_docs`."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    used = {
        ast.unparse(node).removeprefix("dorylax.")
        for node in ast.walk(ast.parse(examples))
        if isinstance(node, ast.Attribute)
    }
    assert public_names() - used == set()
