"""Changes of a Python file, one place at a time, that a test ought to notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_COMPARISONS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
}
_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_DROPPED = (ast.Return, ast.Delete, ast.AugAssign, ast.Continue, ast.Break)
_DECLARATIONS = ("annotation", "returns", "decorator_list")
_UNTOUCHED = (ast.JoinedStr, ast.Raise, ast.Import, ast.ImportFrom)  # texts of errors decide nothing


class Mutant(NamedTuple):
    """One change of a file.

    Attributes:
        file: which.
        place: of what is replaced: line, column, last line, last column; columns in bytes.
        scope: the class and the function that it is in.
        old: what stands there.
        new: what stands there instead.
    """

    file: Path
    place: tuple[int, int, int, int]
    scope: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.scope}: {' '.join(self.old.split())} → {self.new}"

    def applied(self, source: bytes) -> bytes:
        """The file with the change."""
        lines = source.splitlines(keepends=True)
        first, column, last, end = self.place
        changed = lines[first - 1][:column] + self.new.encode() + lines[last - 1][end:]
        return b"".join([*lines[: first - 1], changed, *lines[last:]])


def mutants(file: Path) -> Iterator[Mutant]:
    """All mutants of a file, from top to bottom."""
    source = file.read_text(encoding="utf-8")

    def visit(node: ast.AST, field: str, scope: str) -> Iterator[Mutant]:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            scope = f"{scope}.{node.name}" if scope else node.name
        if isinstance(node, ast.expr | ast.stmt):
            place = (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
            old = ast.get_source_segment(source, node) or ""
            yield from (Mutant(file, place, scope, old, new) for new in _changes(node, field))
        for name, value in ast.iter_fields(node):
            if name not in _DECLARATIONS:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not isinstance(child, _UNTOUCHED):
                        yield from visit(child, name, scope)

    yield from visit(ast.parse(source), "", "")


def _changes(node: ast.expr | ast.stmt, field: str) -> Iterator[str]:
    """What may stand there instead; `field` is what the node is of its parent."""
    yield from _dropped(node) if isinstance(node, ast.stmt) else _replaced(node)
    if field == "test" and isinstance(node, ast.Name | ast.Attribute | ast.Call):
        yield f"not {ast.unparse(node)}"


def _dropped(node: ast.stmt) -> Iterator[str]:
    guard = isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], _LEAVES)
    call = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Yield)
    kept = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    if guard or call or kept or isinstance(node, _DROPPED):
        yield "pass"


def _replaced(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[place] = _COMPARISONS[type(operator)]()
            yield ast.unparse(changed)
    elif isinstance(node, ast.BoolOp):
        yield ast.unparse(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield ast.unparse(ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield repr(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in _NAMES:
            yield ast.unparse(node).removesuffix(name) + _NAMES[name]
