"""fuse: fewer, larger tasks.

Forward and backward arithmetic of one level become one stage: the last layer, the loss and its gradient are one call. Stages
with little arithmetic per shipped byte stay on the graph server, which already has their rows.
"""

from __future__ import annotations

from dorylax.program.passes.order import next_passes
from dorylax.program.passes.placement import placed
from dorylax.program.tasks.split_model import AnySplit


def fuse(program: AnySplit) -> AnySplit:
    """Join stages of one level, and keep light stages on the graph server."""
    return placed(program.split_again(next_passes(program, "fuse")))
