"""Order of passes: first those that change the computation, then those that split it, then those that move equations."""

from __future__ import annotations

from dorylax.errors import InputError
from dorylax.program.tasks.split_model import SplitModel

ORDER = ("reorder", "prune", "settle", "hoist", "fuse", "rematerialise", "sink", "cut")


def next_passes(program: SplitModel, name: str) -> tuple[str, ...]:
    """Return the passes of a program after one more.

    Raises:
        InputError: The pass, or a later one, was already applied.
    """
    place = ORDER.index(name)
    for done in program.passes:
        if ORDER.index(done) >= place:
            raise InputError(f"pass {name} cannot follow {done}: passes apply once, in the order {', '.join(ORDER)}")
    return (*program.passes, name)
