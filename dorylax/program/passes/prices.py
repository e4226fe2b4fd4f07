"""rematerialise, sink, cut: three price lists for the minimum cut that chooses the values between stages (`crossing`).

- rematerialise: a backward stage recomputes forward values if that is cheaper than reading them. The graph server already
  has a stage's inputs, and the backward pass needs many of them (a weight gradient needs the rows to which the weight was
  applied). From these, the rest of the forward stage costs FLOPs instead of bytes.
- sink: equations move into the only stage that needs them, unless that ships more bytes. By default, the earliest possible
  stage computes a value. If only one later stage reads it, its operands may be narrower than the result (a broadcast, a
  one-hot row, a concatenation); the later stage then computes it.
- cut: cheap arithmetic is repeated if that ships fewer bytes. For example, a stage reads a row's norm as one number and
  broadcasts it again, or reads labels instead of their one-hot rows. Products and random bits are not repeated.
"""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn
from dorylax.program.passes.crossing import FORBIDDEN, MOVED, Crossing, choose_crossings
from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit

FLOPS_PER_BYTE = 100.0
"""FLOPs that a worker computes while it ships one byte: one core has about 10 GFLOP/s, its network 100 MB/s."""

_HEAVY = frozenset({"dot_general", "conv_general_dilated", "threefry2x32", "scan", "while", "cond", "sort"})


def rematerialise(program: AnySplit) -> AnySplit:
    """Choose between saving and recomputing, for all forward values that backward stages read."""

    def price(equation: JaxprEqn, crossing: Crossing) -> float:
        backward = crossing.program.analysis.backward
        if crossing.target.phase != "backward" or any(var in backward for var in equation.outvars):
            return FORBIDDEN
        return crossing.flops(equation) / FLOPS_PER_BYTE

    return choose_crossings(program.with_passes(next_passes(program, "rematerialise")), price)


def sink(program: AnySplit) -> AnySplit:
    """Move equations into their only reader."""

    def price(equation: JaxprEqn, crossing: Crossing) -> float:
        # A moved equation of a task that runs once would run in every epoch.
        return FORBIDDEN if crossing.from_once or id(equation) not in crossing.exclusive else MOVED

    return choose_crossings(program.with_passes(next_passes(program, "sink")), price)


def cut(program: AnySplit) -> AnySplit:
    """Choose the crossing values."""

    def price(equation: JaxprEqn, crossing: Crossing) -> float:
        if id(equation) in crossing.exclusive and not crossing.from_once:
            return MOVED  # computed elsewhere, not twice
        if equation.primitive.name in _HEAVY:
            return FORBIDDEN
        return crossing.flops(equation) / FLOPS_PER_BYTE

    return choose_crossings(program.with_passes(next_passes(program, "cut")), price)
