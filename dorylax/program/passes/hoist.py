"""hoist: graph operators that depend only on data run once, not in every epoch.

`Â·X` of a first layer without preceding dropout is the same in every epoch, and so are degrees and values derived from them.
The pass also hoists all equations that lead to these operators or follow from them without parameters or randomness.
"""

from __future__ import annotations

from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def hoist(program: AnySplit) -> AnySplit:
    """Move constant graph operators, and constant equations around them, out of the epoch."""
    return program.split_again(next_passes(program, "hoist"))
