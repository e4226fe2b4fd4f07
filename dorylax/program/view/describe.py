"""Describes a program in a table with the vocabulary of Dorylus, in a flowchart, and in values for JSON."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dorylax.jax_internals import Var, is_literal
from dorylax.program.jaxpr.graph_operators import GLOBAL_SUM, operator_of
from dorylax.program.rows.types import GraphArray
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
        "task": program.label(index),
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


_COLOURS = {
    "graph": "fill:#dbeafe,stroke:#2563eb,color:#1f2937",
    "vertex": "fill:#dcfce7,stroke:#16a34a,color:#1f2937",
    "edge": "fill:#fef3c7,stroke:#d97706,color:#1f2937",
    "sum": "fill:#f3e8ff,stroke:#9333ea,color:#1f2937",
    "driver": "fill:#e5e7eb,stroke:#6b7280,color:#1f2937",
}


def draw(program: SplitModel) -> str:
    """Return the tasks of a program as a Mermaid flowchart.

    A node is a task: its number and name, its operator, and the place that runs it. An arrow runs from the task that
    writes a value to a task that reads it, with the shape of the value. Inputs and parameters are omitted.
    """
    content = description(program, 1, 1)  # the sizes do not appear
    tasks = content["tasks"]
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    arrows: dict[tuple[int, int], list[str]] = defaultdict(list)
    for task in tasks:
        groups[_group(task)].append(task)
        for value in task["reads"]:
            if isinstance(value["from"], int):  # written by a task
                arrows[value["from"], task["index"]].append(shape_text(value))
    plural = "s" * (len(tasks) != 1)
    title = f"{content['model']}: {len(tasks)} task{plural}; passes: {', '.join(content['passes']) or 'none'}"
    lines = ["---", f"title: {json.dumps(title, ensure_ascii=False)}", "---", "flowchart TB"]
    for number, (group, members) in enumerate(groups.items()):
        lines.append(f"  subgraph group{number} [{_quoted(group)}]")
        lines += [f"    task{task['index']}[{_text(task)}]:::{_kind(task)}_task" for task in members]
        lines.append("  end")
    for (source, reader), shapes in arrows.items():
        more = f" +{len(shapes) - 1}" if len(shapes) > 1 else ""
        lines.append(f"  task{source} -->|{_quoted(shapes[0] + more)}| task{reader}")
    drawn = set(map(_kind, tasks))
    lines += [f"  classDef {kind}_task {style}" for kind, style in _COLOURS.items() if kind in drawn]
    return "\n".join(lines) + "\n"


def _group(task: Mapping[str, Any]) -> str:
    """Return the heading above a task. Driver tasks of both passes end the epoch."""
    if task["when"] == "once":
        return "once, before training"
    ends = task["kind"] == "driver" and task["phase"] == "both"
    return "backward" if ends or task["phase"] == "backward" else "forward"


def _text(task: Mapping[str, Any]) -> str:
    place = "" if task["kind"] == "driver" else task["where"]
    words = filter(None, [f"{task['index']} {task['task']}", task["operator"], place])
    return _quoted("\n".join(words)).replace("\n", "<br>")


def _kind(task: Mapping[str, Any]) -> str:
    return str(task["space"] if task["kind"] == "stage" else task["kind"])


def _quoted(text: str) -> str:
    """Return a Mermaid string. Its character entities start with # in place of &."""
    return '"' + escape(text).replace("&", "#").replace("##x27;", "'") + '"'
