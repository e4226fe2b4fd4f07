"""Estimates the memory of a trainer that has already loaded its data, before it begins."""

from __future__ import annotations

import dataclasses

from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.machine import Limit, resident_bytes
from dorylax.memory.estimate import Estimate, Remedy
from dorylax.memory.phases import Process, held, phases
from dorylax.program.model.base import ModelParts
from dorylax.trainer.footprint.compiled import clearly_fits, compiled_on_shapes
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.gradient import Gradient
from dorylax.trainer.vertex_order import is_ordered


def estimate_trainer(
    functions: StepFunctions,
    gradient: Gradient,
    parts: ModelParts,
    data: Dataset,
    limit: Limit,
    *,
    community: bool,
    edge_ids: bool,
) -> tuple[Estimate | None, float]:
    """Estimate the memory of training on loaded data.

    Args:
        functions: Step functions of the model and the optimizer.
        gradient: Gradient function.
        parts: The model.
        data: The data set.
        limit: Memory limit of the process.
        community: Whether training reorders the data.
        edge_ids: Whether the model reads edge ids.

    Returns:
        The estimate, or None if training clearly fits; and the seconds spent on compiling functions for training.
    """
    shape = dataclasses.replace(DataShape.of(data), edge_ids=edge_ids)
    if clearly_fits(shape, parts, limit.bytes - resident_bytes()):
        return None, 0.0
    # The data are counted separately, so that resident data do not count as libraries.
    data.release()
    ordered = community and is_ordered(data)
    libraries = max(0, resident_bytes() - held(shape, ordered=ordered))
    compiled, code, seconds = compiled_on_shapes(functions, gradient, parts, shape, community=community)
    process = Process(libraries, code)
    parted = phases(shape, process, community=community, loads=False, orders=not ordered, compiled=compiled)
    return Estimate(shape, parted, limit, process, compiled), seconds


def refusal(found: Estimate, *, community: bool) -> str:
    """Return the error message for a run that does not fit, with remedies.

    Args:
        found: The estimate.
        community: Whether its data will be reordered.
    """
    ways = []
    if community:
        given = phases(found.shape, found.process, community=False, loads=False, compiled=found.compiled)
        ways = [Remedy("single.order=given", max(phase.total for phase in given))]
    return found.refusal(ways)
