"""Modules and classes have names that readers of the field expect: coined ones that were replaced do not come back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("dorylax", "layers", "pipeline", "serverless", "experiments", "benchmarks")
COINED = {
    *("arrived", "beginnings", "brake", "crew", "due", "fabric", "facts", "heart", "hollow", "keeper", "late"),
    *("leftover_of", "news", "parcel", "race", "standing", "told", "verdicts", "visit", "walked", "whole"),
}


def names(path: Path, text: str) -> Iterator[str]:
    """Yield the names of a module, of its folders and of its classes, in lower case without leading underscores."""
    yield from (part.removesuffix(".py").lower() for part in path.parts)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_").lower()


def test_no_coined_name_comes_back() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    found = set()
    for file in files:
        path = file.relative_to(ROOT)
        found |= {f"{path.as_posix()}: {name}" for name in COINED.intersection(names(path, file.read_text("utf-8")))}
    assert found == set(), "use the field's terms, such as heartbeat, backoff, hedging, supervisor, status"


def test_only_modules_and_classes_are_named() -> None:
    text = "class _Brake:\n    late = 1\n\ndef told(): ...\n"
    assert COINED.intersection(names(Path("pipeline/news.py"), text)) == {"news", "brake"}
