"""Names of tasks in the vocabulary of Dorylus.

Thorpe et al., "Dorylus: Affordable, Scalable, and Accurate GNN Training with Distributed CPU Servers
and Serverless Threads", OSDI 2021: GA gathers along edges into vertices, SC scatters vertices' values to edges, AV
is arithmetic per vertex, AE per edge; ∇ marks the backward pass. Names describe a task's work: a gather in the backward
pass is ∇GA, whichever operator it differentiates. GS, a sum over all vertices or edges within a model, is our addition.
"""

from __future__ import annotations

from dorylax.program.jaxpr.graph_operators import operator_of
from dorylax.program.tasks.split_model import SplitModel


def task_label(program: SplitModel, index: int) -> str:
    """Return a task's name: GA, SC, AV, AE, with ∇ in the backward pass and `AV+∇AV` if both passes are one stage.

    Graph operators that only count edges are "count", sums over all rows GS. The driver's tasks are "setup" (once), "begin"
    and "end" (of an epoch), and "between" if they compute with completed sums, or with parts of sums still to complete.
    """
    task = program.tasks[index]
    if task.kind == "driver":
        if task.when == "once":
            return "setup"
        written = {var for other in program.tasks[:index] if other.when == "epoch" for var in other.defined}
        if written.isdisjoint(task.read):
            return "begin"
        needed = {var for other in program.tasks[index + 1 :] for var in other.read}
        return "end" if needed.isdisjoint(task.defined) else "between"
    if task.kind == "graph":
        label: str = operator_of(task.equations[0]).label
        if label == "count":
            return label
    elif task.kind == "sum":
        label = "GS"
    else:
        label = "AE" if task.space == "edge" else "AV"
    return {"forward": label, "backward": f"∇{label}", "both": f"{label}+∇{label}"}[task.phase]
