"""cut: a minimum cut chooses the values that cross between stages; cheap arithmetic is repeated if that ships fewer bytes.

For example, a stage reads a row's norm as one number and broadcasts it again, or reads labels instead of their one-hot rows.
Products with matrices and random bits are not repeated here.
"""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn
from dorylax.program.passes.crossing import FLOPS_PER_BYTE, FORBIDDEN, MOVED, Crossing, choose_crossings
from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit

_HEAVY = frozenset({"dot_general", "conv_general_dilated", "threefry2x32", "scan", "while", "cond", "sort"})


def cut(program: AnySplit) -> AnySplit:
    """Choose the crossing values."""
    return choose_crossings(program.with_passes(next_passes(program, "cut")), _price)


def _price(equation: JaxprEqn, crossing: Crossing) -> float:
    if id(equation) in crossing.exclusive and not crossing.from_once:
        return MOVED  # computed elsewhere, not twice
    if equation.primitive.name in _HEAVY:
        return FORBIDDEN
    return crossing.flops(equation) / FLOPS_PER_BYTE
