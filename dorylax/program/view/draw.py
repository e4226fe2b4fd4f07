"""A program as a Mermaid flowchart, which GitHub, GitLab, and JupyterLab show as a picture."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from html import escape

from dorylax.jax_internals import Var
from dorylax.program.tasks.label import task_label
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.task import Task
from dorylax.program.view.describe import crossing_values, operator_name, shape_text, sources

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
    groups: dict[str, list[int]] = defaultdict(list)
    for index, task in enumerate(program.tasks):
        groups[_group(task)].append(index)
    count = len(program.tasks)
    title = f"{program.traced.name}: {count} task{'s' * (count != 1)}; passes: {', '.join(program.passes) or 'none'}"
    lines = ["---", f"title: {json.dumps(title, ensure_ascii=False)}", "---", "flowchart TB"]
    for number, (group, members) in enumerate(groups.items()):
        lines.append(f"  subgraph group{number} [{_quoted(group)}]")
        lines += [f"    task{index}[{_text(program, index)}]:::{_kind(program.tasks[index])}_task" for index in members]
        lines.append("  end")
    for (source, reader), values in _arrows(program).items():
        lines.append(f"  task{source} -->|{_quoted(_summary(values))}| task{reader}")
    drawn = {_kind(task) for task in program.tasks}
    lines += [f"  classDef {kind}_task {style}" for kind, style in _COLOURS.items() if kind in drawn]
    return "\n".join(lines) + "\n"


def _group(task: Task) -> str:
    """Return the heading above a task. Driver tasks of both passes end the epoch."""
    if task.when == "once":
        return "once, before training"
    return "backward" if task.phase == "backward" or (task.kind == "driver" and task.phase == "both") else "forward"


def _arrows(program: SplitModel) -> dict[tuple[int, int], list[Var]]:
    """Return (writer, reader) → the values that cross."""
    home = sources(program)
    arrows: dict[tuple[int, int], list[Var]] = defaultdict(list)
    for reader in range(len(program.tasks)):
        for var in crossing_values(program, reader)[0]:
            if var in home:
                arrows[home[var], reader].append(var)
    return arrows


def _text(program: SplitModel, index: int) -> str:
    task = program.tasks[index]
    words = [f"{index} {task_label(program, index)}", operator_name(program, index)]
    return _quoted("\n".join(filter(None, [*words, "" if task.kind == "driver" else task.place]))).replace("\n", "<br>")


def _kind(task: Task) -> str:
    return task.kind if task.kind != "stage" else str(task.space)


def _summary(values: Sequence[Var]) -> str:
    """Return the first value's shape, and the number of further values."""
    return shape_text(values[0]) + (f" +{len(values) - 1}" if len(values) > 1 else "")


def _quoted(text: str) -> str:
    """Return a Mermaid string. Its character entities start with # in place of &."""
    return '"' + escape(text).replace("&", "#").replace("##x27;", "'") + '"'
