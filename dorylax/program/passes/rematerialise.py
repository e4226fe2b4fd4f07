"""rematerialise: a backward stage recomputes forward values if that is cheaper than reading them.

The graph server already has a stage's inputs, and the backward pass needs many of them (a weight gradient needs the rows to
which the weight was applied). From these, the rest of the forward stage costs FLOPs instead of bytes.
"""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn
from dorylax.program.passes.crossing import FLOPS_PER_BYTE, FORBIDDEN, Crossing, choose_crossings
from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def rematerialise(program: AnySplit) -> AnySplit:
    """Choose between saving and recomputing, for all forward values that backward stages read."""
    passes = next_passes(program, "rematerialise")
    return choose_crossings(program.with_passes(passes), _price)


def _price(equation: JaxprEqn, crossing: Crossing) -> float:
    backward = crossing.program.analysis.backward
    if crossing.target.phase != "backward" or any(var in backward for var in equation.outvars):
        return FORBIDDEN
    return crossing.flops(equation) / FLOPS_PER_BYTE
