"""The order of passes: those that change what is computed, those that split it, those that move equations between stages."""

from __future__ import annotations

from dorylax.program.jaxpr.errors import PassError
from dorylax.program.tasks.split_model import SplitModel

ORDER = ("reorder", "prune", "settle", "hoist", "fuse", "rematerialise", "sink", "cut")


def next_passes(program: SplitModel, name: str) -> tuple[str, ...]:
    """The passes of a program after one more.

    Raises:
        PassError: the pass was applied already, or a later one was.
    """
    place = ORDER.index(name)
    for done in program.passes:
        if ORDER.index(done) >= place:
            raise PassError(f"pass {name} cannot follow {done}: passes apply once, in the order {', '.join(ORDER)}")
    return (*program.passes, name)
