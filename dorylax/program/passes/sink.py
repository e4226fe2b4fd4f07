"""sink: equations move into the only stage that needs them, when no more bytes are shipped for it.

A value's stage is the earliest that could compute it. What only one later stage reads may be narrower before it is
computed than after (a broadcast, a one-hot row, a concatenation): then it is computed there instead.
"""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn
from dorylax.program.passes.crossing import FORBIDDEN, MOVED, Crossing, choose_crossings
from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def sink(program: AnySplit) -> AnySplit:
    """Moves equations into their only reader."""
    return choose_crossings(program.with_passes(next_passes(program, "sink")), _price)


def _price(equation: JaxprEqn, crossing: Crossing) -> float:
    if crossing.from_once:
        return FORBIDDEN  # it would run in every epoch
    return MOVED if id(equation) in crossing.exclusive else FORBIDDEN
