"""settle: constant rows are made once, and so are sent to other servers once.

One example are features that an operator with learned weights reads: the operator runs in every epoch, but the rows need not
be sent, reshaped or scaled again.
"""

from __future__ import annotations

from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def settle(program: AnySplit) -> AnySplit:
    """Move rows that depend only on data, and that graph operators read along edges, out of the epoch."""
    return program.split_again(next_passes(program, "settle"))
