"""Each room stays within its budget of lines (`tests/budgets.toml`). A commit that raises a number says what it bought."""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_BUDGETS: dict[str, dict[str, int]] = tomllib.loads((_ROOT / "tests" / "budgets.toml").read_text(encoding="utf-8"))
_FOLDERS = ("layers", "pipeline", "serverless", "experiments", "tests", "benchmarks")
_SUFFIXES = {".py", ".cc", ".h", ".inl", ".html", ".jinja", ".css", ".js"}
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def _rooms() -> dict[str, list[Path]]:
    """Return the source files of each room: a folder of dorylax, `dorylax` for the files beside them, or a top folder."""
    rooms = {f"dorylax/{path.name}": _sources(path) for path in (_ROOT / "dorylax").iterdir() if path.is_dir()}
    rooms |= {name: _sources(_ROOT / name) for name in _FOLDERS}
    rooms["dorylax"] = sorted((_ROOT / "dorylax").glob("*.py"))
    return {name: files for name, files in rooms.items() if files}


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and "__pycache__" not in path.parts)


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _code_lines(path: Path) -> int:
    """Count the lines of a Python file without blank lines, comments and docstrings; all lines of other files."""
    if path.suffix != ".py":
        return _lines(path)
    text = path.read_text(encoding="utf-8")
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found.difference(_docstrings(ast.parse(text))))


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of texts that stand alone as statements, attribute docstrings included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


_ROOMS = _rooms()


def test_every_room_has_a_budget() -> None:
    assert sorted(_BUDGETS) == sorted(_ROOMS)


@pytest.mark.parametrize("room", sorted(_ROOMS))
def test_a_room_stays_within_its_budget(room: str) -> None:
    found = {"lines": sum(map(_lines, _ROOMS[room])), "code": sum(map(_code_lines, _ROOMS[room]))}
    over = {key: number for key, number in found.items() if number > _BUDGETS[room][key]}
    assert not over, f"{room} exceeds tests/budgets.toml: shorten it, or raise the number in a commit of its own"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('"""Doc."""\n\nx = 1  # why\n', 1),
        ("# only a comment\n\n", 0),
        ('class A:\n    """Doc\n\n    string."""\n\n    y: int = 2\n    """Attribute."""\n', 2),
        ('x = """text\nthat is data"""\n', 2),
        ("call(\n    1,\n    2,\n)\n", 4),
    ],
)
def test_comments_blank_lines_and_docstrings_do_not_count(text: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert _code_lines(tmp_path / "module.py") == code
