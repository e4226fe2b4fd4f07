"""Passes: each turns a program into a cheaper one that computes the same.

- prune: unneeded gradients are neither computed nor shipped. A plain split differentiates with respect to all inputs of a
  model, as in a system that sends cotangents back through every layer. Only parameters are trained, so gradients with
  respect to features are dropped, and with them the backward gathers of the first layer.
- settle: constant rows are made once, and so are sent to other servers once. One example are features that an operator with
  learned weights reads: the operator runs in every epoch, but the rows need not be sent, reshaped or scaled again.
- hoist: graph operators that depend only on data run once, not in every epoch. `Â·X` of a first layer without preceding
  dropout is the same in every epoch, and so are degrees and values derived from them. The pass also hoists all equations
  that lead to these operators or follow from them without parameters or randomness.
- fuse: forward and backward arithmetic of one level become one stage: the last layer, the loss and its gradient are one
  call. Stages with little arithmetic per shipped byte stay on the graph server, which already has their rows.
- reorder: see `reorder`; rematerialise, sink and cut: see `crossing`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial

from dorylax.errors import InputError
from dorylax.jax_internals import close
from dorylax.program.jaxpr.flops import equation_flops
from dorylax.program.jaxpr.rewrite import without_dead
from dorylax.program.jaxpr.symbols import SYMBOLS, value_bytes
from dorylax.program.passes.crossing import choose_crossings, cut, rematerialise, sink
from dorylax.program.passes.reorder import reorder
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import AnySplit, SplitModel

PASSES = ("reorder", "prune", "settle", "hoist", "fuse", "rematerialise", "sink", "cut")
"""Names of all passes, in their order of application: first those that change the computation, then those that split it,
then those that move equations."""

SHIPPED_FLOPS_PER_BYTE = 2.0
"""Minimum FLOPs per byte of rows read and written for which a stage is worth shipping.

Below it, sending a byte takes longer than computing on it. Elementwise stages have less than 1."""


def optimise(program: AnySplit, passes: Iterable[str] = PASSES, *, stale_price: float = 0.0) -> AnySplit:
    """Apply passes, in the order of `PASSES`.

    Args:
        program: A program from `trace`.
        passes: Names of the passes; all by default.
        stale_price: See `reorder`.

    Raises:
        InputError: A name is unknown, or a pass precedes one that was already applied.
    """
    wanted = frozenset(passes)
    # Each receives a program whose record already names the pass, because the split into tasks depends on the record.
    functions: dict[str, Callable[[AnySplit], AnySplit]] = {
        "reorder": partial(reorder, hoisting="hoist" in wanted, stale_price=stale_price),
        "prune": _prune,
        "settle": SplitModel.split_again,
        "hoist": SplitModel.split_again,
        "fuse": _fuse,
        "rematerialise": partial(choose_crossings, price=rematerialise),
        "sink": partial(choose_crossings, price=sink),
        "cut": partial(choose_crossings, price=cut),
    }
    unknown = sorted(wanted.difference(PASSES))
    if unknown:
        raise InputError(f"unknown pass {unknown[0]!r}: there are {', '.join(PASSES)}")
    for name in sorted(wanted, key=PASSES.index):
        for done in program.passes:
            if PASSES.index(done) >= PASSES.index(name):
                raise InputError(
                    f"pass {name} cannot follow {done}: passes apply once, in the order {', '.join(PASSES)}"
                )
        program = functions[name](program.changed(passes=(*program.passes, name)))
    return program


def _prune(program: AnySplit) -> AnySplit:
    """Drop the gradients with respect to inputs."""
    traced = program.traced
    jaxpr = traced.step.jaxpr
    kept = [k for k, output in enumerate(traced.outputs) if output.role != "input_gradient"]
    consts = dict(zip(jaxpr.constvars, traced.step.consts, strict=True))
    step = without_dead(close(jaxpr.invars, [jaxpr.outvars[k] for k in kept], jaxpr.eqns, consts))
    pruned = dataclasses.replace(traced, step=step, outputs=tuple(traced.outputs[k] for k in kept))
    return program.of(pruned, program.passes)


def _fuse(program: AnySplit) -> AnySplit:
    """Join stages of one level, and keep light stages on the graph server."""
    fused = program.split_again()
    tasks = tuple(
        dataclasses.replace(task, place="graph server" if _light(fused, k) else "worker")
        if task.kind == "stage"
        else task
        for k, task in enumerate(fused.tasks)
    )
    return fused.changed(tasks=tasks)


def _light(program: SplitModel, index: int) -> bool:
    task, interface = program.tasks[index], program.interfaces[index]
    assert task.space is not None
    sizes = {SYMBOLS[task.space]: 1000}
    crossing = [var for var in (*interface.reads, *interface.writes) if isinstance(program.analysis.types[var], Rows)]
    shipped = sum(value_bytes(var.aval, sizes) for var in crossing)
    flops = sum(equation_flops(equation, sizes) for equation in task.equations)
    return flops < SHIPPED_FLOPS_PER_BYTE * shipped
