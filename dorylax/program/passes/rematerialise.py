"""rematerialise: a backward stage computes forward values again where that is cheaper than to read them.

A stage's inputs are on the graph server anyway, and the backward pass needs many of them itself (a weight gradient
needs the rows that the weight was applied to); from these the rest of the forward stage can be had for FLOPs instead
of bytes.
"""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn
from dorylax.program.passes.crossing import FLOPS_PER_BYTE, FORBIDDEN, Crossing, choose_crossings
from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def rematerialise(program: AnySplit) -> AnySplit:
    """Chooses between saving and computing again, for all that backward stages read of forward stages."""
    passes = next_passes(program, "rematerialise")
    return choose_crossings(program.with_passes(passes), _price)


def _price(equation: JaxprEqn, crossing: Crossing) -> float:
    backward = crossing.program.analysis.backward
    if crossing.target.phase != "backward" or any(var in backward for var in equation.outvars):
        return FORBIDDEN
    return crossing.flops(equation) / FLOPS_PER_BYTE
