"""hoist: graph operators that depend on data alone run once, not in every epoch.

`Â·X` of a first layer without dropout before it is the same in every epoch, and so are degrees and what is made of
them. With the operators goes all that leads to them and follows from them without parameters or randomness.
"""

from __future__ import annotations

from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def hoist(program: AnySplit) -> AnySplit:
    """Moves constant graph operators, and what is constant around them, out of the epoch."""
    return program.split_again(next_passes(program, "hoist"))
