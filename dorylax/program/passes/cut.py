"""cut: a minimum cut decides what crosses between stages, with light arithmetic repeated where that ships fewer bytes.

A row's norm is read as one number and broadcast again; labels are read instead of their one-hot rows. Products with
matrices and random bits are not repeated here.
"""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn
from dorylax.program.passes.crossing import FLOPS_PER_BYTE, FORBIDDEN, MOVED, Crossing, choose_crossings
from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit

_HEAVY = frozenset({"dot_general", "conv_general_dilated", "threefry2x32", "scan", "while", "cond", "sort"})


def cut(program: AnySplit) -> AnySplit:
    """Chooses what crosses."""
    return choose_crossings(program.with_passes(next_passes(program, "cut")), _price)


def _price(equation: JaxprEqn, crossing: Crossing) -> float:
    if id(equation) in crossing.exclusive and not crossing.from_once:
        return MOVED  # not again, only elsewhere
    if equation.primitive.name in _HEAVY:
        return FORBIDDEN
    return crossing.flops(equation) / FLOPS_PER_BYTE
