"""Passes: each turns a program into a cheaper one that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dorylax.errors import InputError
from dorylax.program.passes.crossing import cut, rematerialise, sink
from dorylax.program.passes.order import ORDER
from dorylax.program.passes.reorder import reorder
from dorylax.program.passes.split import fuse, hoist, prune, settle
from dorylax.program.tasks.split_model import AnySplit

PASSES: tuple[str, ...] = ORDER
"""Names of all passes, in their order of application."""


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
    functions: dict[str, Callable[[AnySplit], AnySplit]] = {
        "reorder": lambda program: reorder(program, hoisting="hoist" in wanted, stale_price=stale_price),
        "prune": prune,
        "settle": settle,
        "hoist": hoist,
        "fuse": fuse,
        "rematerialise": rematerialise,
        "sink": sink,
        "cut": cut,
    }
    unknown = sorted(wanted - functions.keys())
    if unknown:
        raise InputError(f"unknown pass {unknown[0]!r}: there are {', '.join(PASSES)}")
    for name in PASSES:
        if name in wanted:
            program = functions[name](program)
    return program
