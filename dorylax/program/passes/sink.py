"""sink: equations move into the only stage that needs them, unless that ships more bytes.

By default, the earliest possible stage computes a value. If only one later stage reads it, its operands may be narrower than
the result (a broadcast, a one-hot row, a concatenation); the later stage then computes it.
"""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn
from dorylax.program.passes.crossing import FORBIDDEN, MOVED, Crossing, choose_crossings
from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def sink(program: AnySplit) -> AnySplit:
    """Move equations into their only reader."""
    return choose_crossings(program.with_passes(next_passes(program, "sink")), _price)


def _price(equation: JaxprEqn, crossing: Crossing) -> float:
    if crossing.from_once:
        return FORBIDDEN  # a moved equation would run in every epoch
    return MOVED if id(equation) in crossing.exclusive else FORBIDDEN
