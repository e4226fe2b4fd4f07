"""Places a stage on a worker, or on the graph server that already has its rows."""

from __future__ import annotations

import dataclasses

from dorylax.program.jaxpr.flops import equation_flops
from dorylax.program.jaxpr.sizes import value_bytes
from dorylax.program.jaxpr.symbols import SYMBOLS
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import AnySplit, SplitModel

SHIPPED_FLOPS_PER_BYTE = 2.0
"""Minimum FLOPs per byte of rows read and written for which a stage is worth shipping.

Below it, sending a byte takes longer than computing on it. Elementwise stages have less than 1."""


def placed(program: AnySplit) -> AnySplit:
    """Keep light stages on the graph server, if stages are fused at all."""
    if "fuse" not in program.passes:
        return program
    tasks = tuple(
        dataclasses.replace(task, place="graph server" if _light(program, k) else "worker")
        if task.kind == "stage"
        else task
        for k, task in enumerate(program.tasks)
    )
    return program.with_tasks(tasks)


def _light(program: SplitModel, index: int) -> bool:
    task, interface = program.tasks[index], program.interfaces[index]
    assert task.space is not None
    sizes = {SYMBOLS[task.space]: 1000}
    crossing = [var for var in (*interface.reads, *interface.writes) if isinstance(program.analysis.types[var], Rows)]
    shipped = sum(value_bytes(var.aval, sizes) for var in crossing)
    flops = sum(equation_flops(equation, sizes) for equation in task.equations)
    return flops < SHIPPED_FLOPS_PER_BYTE * shipped
