"""prune: unneeded gradients are neither computed nor shipped.

A plain split differentiates with respect to all inputs of a model, as in a system that sends cotangents back through every
layer. Only parameters are trained, so gradients with respect to features are dropped, and with them the backward gathers of
the first layer.
"""

from __future__ import annotations

import dataclasses

from dorylax.jax_internals import close
from dorylax.program.jaxpr.simplify import without_dead
from dorylax.program.passes.order import next_passes
from dorylax.program.tasks.split_model import AnySplit


def prune(program: AnySplit) -> AnySplit:
    """Drop the gradients with respect to inputs."""
    passes = next_passes(program, "prune")
    traced = program.traced
    jaxpr = traced.step.jaxpr
    kept = [k for k, output in enumerate(traced.outputs) if output.role != "input_gradient"]
    consts = dict(zip(jaxpr.constvars, traced.step.consts, strict=True))
    step = without_dead(close(jaxpr.invars, [jaxpr.outvars[k] for k in kept], jaxpr.eqns, consts))
    pruned = dataclasses.replace(traced, step=step, outputs=tuple(traced.outputs[k] for k in kept))
    return program.of(pruned, passes)
