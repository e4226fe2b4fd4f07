"""settle: rows that never change are made once, and so are sent to other servers once.

Features that an operator with learned weights reads are such rows: the operator runs in every epoch, and need not have
them sent, reshaped or scaled again.
"""

from __future__ import annotations

from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def settle(program: AnySplit) -> AnySplit:
    """Moves rows that depend on data alone, and that graph operators read along edges, out of the epoch."""
    return program.split_again(next_passes(program, "settle"))
