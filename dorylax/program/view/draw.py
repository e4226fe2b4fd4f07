"""A program as a Mermaid flowchart, which GitHub, GitLab, and JupyterLab show as a picture."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from html import escape
from typing import Any

from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.view.describe import description, shape_text

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
