"""Describes a program in a table with the vocabulary of Dorylus (`tasks.label`), and in plain values for JSON."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dorylax.jax_internals import Var, is_literal
from dorylax.program.jaxpr.global_sum import GLOBAL_SUM
from dorylax.program.jaxpr.graph_operators import operator_of
from dorylax.program.rows.types import GraphArray
from dorylax.program.tasks.label import task_label
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.task import Task
from dorylax.program.view.cost import ProgramCost, cost

VERSION = 1
"""Version of `description`; it increases when a field changes its meaning or disappears."""

_WIDTH = 120
_BYTES = ("gathered_bytes", "shipped_bytes")
_UNITS = "kMGTPE"
_SHAPES = 6  # maximum number of different shapes in a cell of the table


def describe(program: SplitModel, num_vertices: int | None = None, num_edges: int | None = None) -> str:
    """Return a table of the tasks, one row each, in the order of execution; at most 120 columns, no colours.

    FLOPs and bytes are estimates (`dorylax.program.view.cost`), with k, M and G in steps of 1000. Values that a task reads
    and writes are listed by shape, without the graph's arrays.

    Args:
        program: A program.
        num_vertices: V (default: that of the traced data).
        num_edges: E (default: that of the traced data).

    Raises:
        ValueError: A size is neither given nor known.
    """
    content = description(program, num_vertices, num_edges)
    tasks, vertices, edges = content["tasks"], content["num_vertices"], content["num_edges"]
    head = [
        f"{content['model']}: {len(tasks)} tasks on n = {vertices:,} vertices, e = {edges:,} edges",
        f"passes: {', '.join(content['passes']) or 'none'}",
    ]
    return "\n".join([*head, *_table(tasks), *_foot(content["totals"])]) + "\n"


def description(program: SplitModel, num_vertices: int | None = None, num_edges: int | None = None) -> dict[str, Any]:
    """Return plain values for JSON (docs/json.md lists the fields). Arguments and errors as for `describe`."""
    costs = cost(program, num_vertices, num_edges)
    origins = _origins(program)
    return {
        "version": VERSION,
        "model": program.traced.name,
        "num_vertices": costs.num_vertices,
        "num_edges": costs.num_edges,
        "passes": list(program.passes),
        "tasks": [_task(program, costs, origins, index) for index in range(len(program.tasks))],
        "totals": {"once": vars(costs.once).copy(), "epoch": vars(costs.epoch).copy()},
    }


def _operator_name(program: SplitModel, index: int) -> str:
    """Return the name of a graph operator, or the notable operations of a stage; empty for the driver."""
    task = program.tasks[index]
    if task.kind == "graph":
        return operator_of(task.equations[0]).name
    if task.kind == "driver":
        return ""
    if task.kind == "sum":
        return GLOBAL_SUM.name
    names = [equation.primitive.name for equation in task.equations]
    products = names.count("dot_general") + names.count("conv_general_dilated")
    parts = ["random"] if "threefry2x32" in names or "random_bits" in names else []
    if products:
        parts.append("1 product" if products == 1 else f"{products} products")
    if _computes_loss(program, task):
        parts.append("loss")
    return ", ".join(parts) or "elementwise"


def shape_text(value: Mapping[str, Any]) -> str:
    """Return the shape of a value of `description` in symbols: `[n,16]`."""
    return "[" + ",".join(str(dim).replace(" ", "") for dim in value["shape"]) + "]"


def _computes_loss(program: SplitModel, task: Task) -> bool:
    outputs = zip(program.traced.outputs, program.traced.step.jaxpr.outvars, strict=True)
    losses = {atom for entry, atom in outputs if entry.role == "loss" and not is_literal(atom)}
    return not losses.isdisjoint(task.defined)


def _origins(program: SplitModel) -> dict[Var, int | str]:
    """Return the origin of each value that a task may read: the index of a task, or the role and name of an input."""
    inputs = zip(program.traced.step.jaxpr.invars, program.traced.inputs, strict=True)
    named = {
        var: entry.name if entry.name.startswith(entry.role) else f"{entry.role} {entry.name}" for var, entry in inputs
    }
    written: dict[Var, int | str] = {}
    for index, interface in enumerate(program.interfaces):
        for var in interface.writes:
            written.setdefault(var, index)
    return named | written


def _task(program: SplitModel, costs: ProgramCost, origins: Mapping[Var, int | str], index: int) -> dict[str, Any]:
    task = program.tasks[index]
    interface, types = program.interfaces[index], program.analysis.types
    reads = [var for var in interface.reads if not isinstance(types[var], GraphArray)]
    return {
        "index": index,
        "task": task_label(program, index),
        "kind": task.kind,
        "operator": _operator_name(program, index),
        "direction": task.equations[0].params.get("direction") if task.kind == "graph" else None,
        "when": task.when,
        "where": task.place,
        "phase": task.phase,
        "space": task.space,
        "level": task.level,
        "equations": len(task.equations),
        "reads": [_value(var) | {"from": origins.get(var, "constant")} for var in reads],
        "writes": [_value(var) for var in interface.writes],
        **vars(costs.tasks[index]),
    }


def _value(var: Var) -> dict[str, Any]:
    aval: Any = var.aval
    shape = [dim if isinstance(dim, int) else str(dim) for dim in aval.shape]
    return {"shape": shape, "dtype": str(aval.dtype)}


def _table(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right", no_wrap=True)
    for name in ("task", "operator", "when", "where"):
        table.add_column(name, no_wrap=True)
    for name in ("reads", "writes"):
        table.add_column(name)
    for name in ("FLOPs", "gathered", "shipped"):
        table.add_column(name, justify="right", no_wrap=True)
    for task in tasks:
        operator = " ".join(filter(None, [task["operator"], task["direction"]]))
        numbers = [quantity(task["flops"]), *(_bytes(task[name]) if task[name] else "–" for name in _BYTES)]
        names = [str(task["index"]), task["task"], operator, task["when"], task["where"]]
        table.add_row(*names, _shapes(task["reads"]), _shapes(task["writes"]), *numbers)
    out = io.StringIO()
    Console(file=out, width=_WIDTH, color_system=None, markup=False, highlight=False, legacy_windows=False).print(table)
    return [line.rstrip() for line in out.getvalue().rstrip().splitlines()]


def _shapes(values: Iterable[Mapping[str, Any]]) -> str:
    """List different shapes with their counts: `[n,16] 2×[n]`, those with rows first."""
    counts: dict[str, int] = {}
    for value in sorted(values, key=lambda value: all(isinstance(dim, int) for dim in value["shape"])):
        text = shape_text(value)
        counts[text] = counts.get(text, 0) + 1
    words = [text if number == 1 else f"{number}×{text}" for text, number in counts.items()]
    if len(words) > _SHAPES:
        words[_SHAPES - 1 :] = [f"+{sum(list(counts.values())[_SHAPES - 1 :])}"]
    return " ".join(words) or "–"


def _foot(totals: Mapping[str, Mapping[str, int]]) -> list[str]:
    lines = [""]
    for name, when in (("once", "once"), ("epoch", "every epoch")):
        of = totals[name]
        lines.append(
            f"{when + ':':<12} {quantity(of['flops']):>7} FLOPs, {_bytes(of['gathered_bytes']):>8} gathered, "
            f"{_bytes(of['shipped_bytes']):>8} shipped; graph operators: "
            f"{of['forward_operators']} forward, {of['backward_operators']} backward"
        )
    return lines


def quantity(number: int) -> str:
    """Format a number in steps of 1000, to three digits: `999`, `12.3 k`, `4.57 M`."""
    if number < 1000:
        return str(number)
    steps = 1
    while steps < len(_UNITS) and number / 1000**steps >= 999.5:
        steps += 1
    return f"{number / 1000**steps:#.3g}".rstrip(".") + f" {_UNITS[steps - 1]}"


def _bytes(number: int) -> str:
    text = quantity(number)
    return f"{text}B" if " " in text else f"{text} B"
