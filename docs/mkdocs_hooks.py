"""What the site needs besides pages (mkdocs.yml): the home page, links that leave docs/, and where the sources are."""

from __future__ import annotations

import posixpath
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
"""Pages that stand beside docs/, and where they are on the site."""

_SOURCES = ("layers", "pipeline", "serverless", "experiments")
"""Folders that are installed inside of the package; docs/architecture.md, "Layout"."""

_laid_out = tempfile.TemporaryDirectory(prefix="dorylax-site-")

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


@event_priority(100)  # before mkdocstrings reads it
def on_config(config: Any) -> Any:
    """Shows mkdocstrings the sources of this checkout as they are installed."""
    package = Path(_laid_out.name) / "dorylax"
    ignored = shutil.ignore_patterns("__pycache__", "kernel")
    shutil.copytree(ROOT / "dorylax", package, ignore=ignored, dirs_exist_ok=True)
    for name in _SOURCES:
        shutil.copytree(ROOT / name, package / name, ignore=ignored, dirs_exist_ok=True)
    for file in (package / "layers").rglob("*.py"):  # griffe knows arguments of dataclasses under this name only
        text = file.read_text(encoding="utf-8").replace("\n@module\n", "\n@dataclasses.dataclass(kw_only=True)\n")
        file.write_text(text.replace("import annotations\n", "import annotations\nimport dataclasses\n", 1), "utf-8")
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_laid_out.name]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that stand beside docs/."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links to files of the checkout lead to their pages; those that have none are text."""
    own = page.file.src_uri
    folder = ROOT if own in PAGES.values() else (ROOT / "docs" / own).parent

    def linked(match: re.Match[str]) -> str:
        text, target = match.groups()
        name, _, anchor = target.partition("#")
        if not name or "://" in target:
            return match[0]
        path = (folder / name).resolve().relative_to(ROOT.resolve()).as_posix()
        there = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if there is None:
            return text
        there = posixpath.relpath(there, posixpath.dirname(own) or ".")
        return f"[{text}]({there}{'#' + anchor if anchor else ''})"

    markdown = markdown.replace("](docs/images/", "](images/")
    return re.sub(r"(?m)^((?!\s*(?:[-*|>#]|\d+\. )).+)\n(?=[-*] )", r"\1\n\n", _LINK.sub(linked, markdown))
