"""Modules and classes have names that readers of the field expect: coined ones that were replaced do not come back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("dorylax", "layers", "pipeline", "serverless", "experiments", "benchmarks")
COINED = {
    "arrived": "ReceivedGradient",
    "beginnings": "InitialState",
    "brake": "backoff",
    "crew": "the contents, such as workers",
    "due": "PendingStep",
    "fabric": "the contents, such as transport",
    "facts": "the contents, such as properties",
    "heart": "heartbeat",
    "hollow": "abstract_array",
    "keeper": "supervisor",
    "late": "LateGradient",
    "leftover_of": "temp_file_pattern",
    "news": "status",
    "parcel": "bundle",
    "race": "hedging",
    "standing": "RunState",
    "told": "Notification",
    "verdicts": "verification_cache",
    "visit": "IntervalPass",
    "walked": "Traversal",
    "whole": "CompleteGradient",
}
"""Coined names of modules and classes, and the term that replaces each."""

REMAINING = {
    "dorylax/cost/time_model.py": {"late"},
    "experiments/verdicts.py": {"verdicts"},  # the verdict on a variant, a column of the report
    "pipeline/hosts/heart.py": {"heart"},
    "pipeline/hosts/messages.py": {"news", "standing", "told"},
    "pipeline/hosts/news.py": {"news"},
    "pipeline/messages.py": {"walked"},
    "pipeline/parameters/intervals.py": {"due"},
    "pipeline/setup.py": {"beginnings"},
    "pipeline/transport/frames.py": {"parcel"},
}
"""Files that still have such names: a rename removes its entry, and no entry is added."""

FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


def names(text: str, path: Path) -> Iterator[str]:
    """Yield the names of a module, of its folders and of its classes, in lower case without leading underscores."""
    yield from (part.removesuffix(".py").lower() for part in path.parts)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_").lower()


def test_no_coined_name_comes_back() -> None:
    assert len(FILES) > 100
    found = {}
    for file in FILES:
        path = file.relative_to(ROOT)
        new = COINED.keys() & set(names(file.read_text(encoding="utf-8"), path)) - REMAINING.get(path.as_posix(), set())
        if new:
            found[path.as_posix()] = {name: COINED[name] for name in new}
    assert not found, "use the field's terms"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("pipeline/news.py", "", {"news"}),
        ("pipeline/server.py", "class _Brake:\n    late = 1\n", {"brake"}),
        ("pipeline/server.py", "def told(late): ...\n", set()),  # ordinary words name functions and values
    ],
)
def test_modules_and_classes_are_named(path: str, text: str, expected: set[str]) -> None:
    assert COINED.keys() & set(names(text, Path(path))) == expected
